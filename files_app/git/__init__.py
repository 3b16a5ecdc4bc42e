"""Read and commit in the repository around a session's directory (D10)."""
