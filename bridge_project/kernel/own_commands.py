"""Write commands for the user to type, with a data directory if it is another."""

import shlex
from typing import Final

from bridge_project.kernel.config import Conf
from bridge_project.kernel.place import IN_CLONE, PROGRAM, default_data_dir, short

_PROGRAM: Final = ".venv/bin/python manage.py" if IN_CLONE else PROGRAM


def make_command(conf: Conf, verb: str, arguments: str = "") -> str:
    """Return a command of every day: `make VERB` in a clone, else `agent-bridge VERB`."""
    return _own_data(conf) + short(verb, arguments)


def manage(conf: Conf, command: str) -> str:
    """Return a management command by its name."""
    return f"{_own_data(conf)}{_PROGRAM} {command}"


def _own_data(conf: Conf) -> str:
    if conf.bridge_data_dir == default_data_dir():
        return ""
    return f"BRIDGE_DATA_DIR={shlex.quote(str(conf.bridge_data_dir))} "
