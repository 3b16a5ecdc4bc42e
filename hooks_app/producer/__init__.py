"""Send the agent's hook events: command, spool, forwarder, installer (D47)."""
