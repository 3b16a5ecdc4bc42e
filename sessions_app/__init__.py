"""Store sessions and their messages, run agents, and serve devices by WebSocket."""
