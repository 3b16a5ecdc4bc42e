"""Connect coding agents with the phones of their user: server, settings, commands."""

__version__ = "0.1.0"
PROTOCOL_VERSION = "1.0.0"
