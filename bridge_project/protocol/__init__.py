"""Define every message and body of SPEC.md and DECISIONS.

Pure: no Django, no I/O.
"""
