"""The kernel of the bridge at the bottom, its composition at the top."""

__version__ = "0.1.0"
PROTOCOL_VERSION = "1.0.0"
