"""Attack the bridge from outside; docs/security.md lists what is tried."""
