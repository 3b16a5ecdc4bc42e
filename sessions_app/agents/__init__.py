"""The agents that the bridge runs itself: one driver for each kind, and the runtime that owns them
(D34 to D41).
"""
