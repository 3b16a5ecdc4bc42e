"""Run codex through its own server, ``codex app-server``."""
