"""Sessions' beginnings and ends, and those known only by their hook events (D34)."""
