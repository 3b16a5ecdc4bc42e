"""Run a command of `agent-bridge` or manage.py (D78).

A wrong setting is answered in one line."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, Final

from django.core.management import ManagementUtility
from django.core.management.base import BaseCommand, OutputWrapper

from bridge_project import __version__
from bridge_project.kernel import place

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_DJANGOS: Final = {
    *("--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--skip-checks"),
    *("--no-color", "--force-color"),
}
HELP: Final = """\
Bridge between the coding agents on this machine and the devices that you paired with it.

  agent-bridge run [DIR …]    start the bridge; agents may use these directories, or this one
  agent-bridge qr             pair a phone: a new QR code, good for ten minutes
  agent-bridge hooks          connect the coding agent on this machine
  agent-bridge watch          a device in the terminal: see what arrives
  agent-bridge doctor         what works, what does not, and the command that fixes it
  agent-bridge admin          make a user of the admin site
  agent-bridge away           say that you are away, or (--back) at the machine
  agent-bridge trust [DIR]    let a repository's own programs run, or list those that may
  agent-bridge uninstall      take out the hooks and services; the data is kept

`agent-bridge COMMAND --help` says more. Also: backup, list_devices, new_ca, prune, restore,
revoke_device, upgrade; docs/operations.md has when."""


def main() -> int:
    """Run `sys.argv`; return the exit status."""
    if sys.argv[1:] in (["--version"], ["version"]):  # else the second is Django's
        print(__version__)
        return 0
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bridge_project.settings")
    try:
        from bridge_project.kernel.config import ConfError, conf
    except ValueError as error:
        # ConfError cannot be imported when the settings, read at import, are wrong
        print(f"Settings: {error}", file=sys.stderr)
        return 1
    from django.db import OperationalError

    from bridge_project.kernel.data_files import NotInPlace
    from bridge_project.kernel.own_commands import make_command

    try:
        _Commands(_arguments(sys.argv)).execute()
    except ConfError as error:
        print(f"Settings: {error}", file=sys.stderr)
        return 1
    except OperationalError as error:
        if isinstance(error.__cause__, NotInPlace):
            print(f"{error}. `{make_command(conf, 'run')}` makes the first one.", file=sys.stderr)
        else:
            print(f"The database cannot be used: {error}".strip().splitlines()[0], file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # at a question, whose answer nothing was done without
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        print(f"{error.filename or 'A file'} cannot be written: {error.strerror}.", file=sys.stderr)
        return 1
    return 0


class _Errors(OutputWrapper):
    """Write what went wrong without the name that it has in the code."""

    def write(  # type: ignore[override]
        self, msg: str = "", style_func: Any = None, ending: str | None = None
    ) -> None:
        super().write(msg.removeprefix("CommandError: "), style_func, ending)


class _Commands(ManagementUtility):
    """Find a management command also by the word that a user types for it.

    Its help shows its own options; Django's are obeyed all the same.
    """

    def fetch_command(self, subcommand: str) -> BaseCommand:
        command = super().fetch_command(place.VERBS.get(subcommand, subcommand))
        command.suppressed_base_arguments = _DJANGOS
        command.stderr = _Errors(sys.stderr)
        command.stderr.style_func = command.style.ERROR
        return command

    def main_help_text(self, commands_only: bool = False) -> str:
        if commands_only or self.prog_name == "manage.py":
            return super().main_help_text(commands_only)
        return HELP


def _arguments(given: list[str]) -> list[str]:
    """Rename `hooks --settings`, which Django would take for its own (D43)."""
    if given[1:2] not in (["hooks"], ["install_hooks"]):
        return given
    return [
        "--settings-file" + word[len("--settings") :]
        if word.split("=")[0] == "--settings"
        else word
        for word in given
    ]
