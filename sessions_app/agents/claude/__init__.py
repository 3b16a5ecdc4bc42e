"""Run claude-code through claude-agent-sdk (D41)."""
