"""Validate and store hook events, and append their messages to the log (D31)."""
