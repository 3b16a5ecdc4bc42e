"""Append rows to the log, read them, wake sockets, delete old rows (D26 to D30)."""
