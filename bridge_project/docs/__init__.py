"""Generate the pages and documents that describe the bridge."""
