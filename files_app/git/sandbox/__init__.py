"""Run git so that a repository can neither run programs nor lead outside the roots (D10)."""
