"""The repository around a session's working directory: its state, its changes, a commit (D10).
Everything is done by git itself, held on a short lead.
"""
