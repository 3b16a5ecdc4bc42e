"""The ``watch`` client: a device in the terminal (D43)."""
