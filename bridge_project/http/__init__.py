"""What all HTTP endpoints share: errors, JSON bodies, tokens, rates."""
