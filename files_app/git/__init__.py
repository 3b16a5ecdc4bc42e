"""Read and commit in the repository around a session's directory (D10).

Git itself does the work, in a sandbox.
"""
