"""What all HTTP endpoints share: errors, JSON bodies, authentication, rate limits."""
