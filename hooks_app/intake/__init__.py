"""Take a hook event: validate it, store it, append what follows from it to the log (D31 to D37)."""
