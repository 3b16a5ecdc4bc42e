"""Take the events that agents report through hooks, and store them as messages."""
