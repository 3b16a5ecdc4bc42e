"""The agents that the bridge runs itself: a driver for each kind, and their supervisor (D34 to D41)."""
