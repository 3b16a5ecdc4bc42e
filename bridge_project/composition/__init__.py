"""Assemble the apps into a serving bridge, and report its state."""
