"""One WebSocket connection: phases, requests, delivery, acknowledgements (D21 to D31)."""
