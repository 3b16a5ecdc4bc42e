"""Define every WebSocket message and HTTP body of the specification, purely."""
