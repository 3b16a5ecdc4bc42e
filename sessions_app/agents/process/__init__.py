"""Run processes for agents, and end them with everything they started (D35, D40)."""
