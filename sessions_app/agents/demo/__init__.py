"""The scripted agent demo, which shows everything that a session can do (D41)."""
