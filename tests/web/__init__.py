"""The web client: in a real browser against the real server, and its pure modules in Node."""
