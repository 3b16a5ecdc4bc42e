"""Tool calls, and who decided about them (D37, D38)."""
