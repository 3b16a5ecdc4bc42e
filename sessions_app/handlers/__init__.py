"""Handle client messages about sessions, one module a topic."""
