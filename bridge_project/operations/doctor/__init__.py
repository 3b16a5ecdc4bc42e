"""Check the bridge and its machine, and name the remedies (D43)."""
