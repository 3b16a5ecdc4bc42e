"""Read and commit in a session's repository, with git in a sandbox (D10)."""
