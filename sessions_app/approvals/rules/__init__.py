"""Let a person say yes once for all like calls of a session (D68)."""
