"""Connect coding agents with the phones of their user: server, settings, commands.

docs/architecture.md has the way through the five packages. A number such as D12 that a docstring
cites is a decision in docs/decisions.md, SPEC is the specification that they refine.
"""

__version__ = "0.2.0"
PROTOCOL_VERSION = "1.0.0"
