"""Assemble the apps into a bridge, start it, and report its state."""
