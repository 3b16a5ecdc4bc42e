"""Track sessions that the bridge knows only by their hook events (D34)."""
