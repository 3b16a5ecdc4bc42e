"""The agent's side of the hooks: the command, the spool, the forwarder, the installer (D47)."""
