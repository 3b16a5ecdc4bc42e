"""Web Push: what is subscribed, what may be connected to, and one push on its way (D56)."""
