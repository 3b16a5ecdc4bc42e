"""The handlers of client messages about sessions, one module a topic."""
