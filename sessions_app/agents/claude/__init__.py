"""The agent claude-code, through claude-agent-sdk (D41)."""
