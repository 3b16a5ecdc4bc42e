"""Share errors, JSON bodies, authentication and rate limits among HTTP endpoints."""
