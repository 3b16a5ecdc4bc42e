"""Run agents: a driver for each kind, and the supervisor of all (D34 to D41).

The supervisor reserves a session and begins a Launch (starting); its SessionRunner passes the
driver's events and the inbox's commands on, through a SessionLog, which stores by a SessionWriter.
"""
