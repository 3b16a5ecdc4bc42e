"""Serve one WebSocket: phases, requests, delivery, acknowledgements (D21 to D31)."""
