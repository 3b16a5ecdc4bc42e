"""Keep git in the roots, and run no repository program but commit hooks (D10)."""
