#!/usr/bin/env python
"""Run the bridge's commands in a clone; `agent-bridge` does where it is installed."""

import sys

try:
    import django  # noqa: F401
    import pydantic  # noqa: F401
except ImportError as error:
    sys.exit(f"{error}. Use .venv/bin/python; `make run` makes it, with what the bridge needs.")

from bridge_project.operations.command_line import main

if __name__ == "__main__":
    raise SystemExit(main())
