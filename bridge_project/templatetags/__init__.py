"""Give templates the names of the bridge's commands."""
