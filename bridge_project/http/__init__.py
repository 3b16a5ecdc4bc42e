"""Share among HTTP endpoints errors, JSON bodies, authentication and rate limits."""
