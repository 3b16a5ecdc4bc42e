"""Show devices the files and git repository of a session, and commit for them."""
