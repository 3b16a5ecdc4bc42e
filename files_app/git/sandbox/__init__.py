"""Run git so that a repository can neither run programs nor leave the roots (D10)."""
