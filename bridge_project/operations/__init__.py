"""Set up, back up, keep running and diagnose a bridge."""
