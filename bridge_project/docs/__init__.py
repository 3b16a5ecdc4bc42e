"""Generate documentation from the bridge's own tables: pages, OpenAPI, AsyncAPI."""
