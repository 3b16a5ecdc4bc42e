"""The pages and documents that describe the bridge, made from its own tables."""
