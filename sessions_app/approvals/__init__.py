"""Record tool calls and the decisions about them (D37, D38)."""
