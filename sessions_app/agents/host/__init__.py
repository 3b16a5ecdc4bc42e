"""Run each session's driver in a process that outlives a bridge, its host (D79)."""
