"""Run the ``watch`` client: a device in the terminal (D43)."""
