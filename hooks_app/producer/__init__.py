"""Carry an agent's hook events to the bridge: command, spool, forwarder (D47)."""
