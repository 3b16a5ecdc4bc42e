"""The log: append rows, read them, wake the sockets, forget them in time (D26 to D30)."""
