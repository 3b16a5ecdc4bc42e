"""Hold what all apps share, and assemble them into one server."""

__version__ = "0.1.0"
PROTOCOL_VERSION = "1.0.0"
