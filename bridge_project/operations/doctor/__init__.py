"""What `doctor` looks at, what is wrong with it, and the command that mends it (D43)."""
