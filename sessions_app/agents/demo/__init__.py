"""Run the scripted agent demo, which shows all that a session can do (D41)."""
