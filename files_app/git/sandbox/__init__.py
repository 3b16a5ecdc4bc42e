"""Run git safely: no repository can run programs or leave the roots (D10)."""
