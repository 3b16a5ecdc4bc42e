"""Run agents: a driver for each kind, and the supervisor of all (D34 to D41)."""
