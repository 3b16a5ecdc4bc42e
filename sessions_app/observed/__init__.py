"""Create, title, close and forget sessions, also those known only by hooks (D34)."""
