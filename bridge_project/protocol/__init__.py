"""Define every WebSocket message and HTTP body of the specification.

Pure: no Django, no I/O.
"""
