"""Give HTTP endpoints their errors, JSON bodies, authentication and rate limits."""
