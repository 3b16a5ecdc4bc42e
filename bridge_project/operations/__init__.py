"""Set up, start, back up and diagnose a bridge."""
