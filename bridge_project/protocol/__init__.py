"""The contract, once: every message and body of SPEC.md as DECISIONS extend it. Pure: no Django, no
I/O.
"""
