"""Install our hooks into the agent's settings file, or remove them (D43)."""

import difflib
import hashlib
import os
import sys
from argparse import BooleanOptionalAction
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bridge_project.kernel.config import conf
from bridge_project.kernel.own_commands import make_command
from bridge_project.kernel.private_files import make_private_dir, write_private_file
from hooks_app.producer.install import SettingsError, answering, install, installed, remove
from hooks_app.producer.shell_command import ANSWERS, HOOK_MATCHERS, write_hook_scripts

ANSWER = "Answer from a phone what the agent asks in its terminal, beside its own dialog?"


def default_settings() -> Path:
    """Return the agent's settings file: in ``CLAUDE_CONFIG_DIR``, else ``~/.claude``."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude").expanduser() / "settings.json"


class Command(BaseCommand):
    help = (
        "Put the bridge's hooks into the agent's settings file, or take them out again"
        " with --remove."
    )
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # Django's own --settings gives way; manage.py hands ours on as --settings-file, before
        # Django looks.
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        parser.set_defaults(settings=None)
        settings = "the settings file (default: settings.json in CLAUDE_CONFIG_DIR or ~/.claude)"
        add("--settings", "--settings-file", dest="settings_file", type=Path, help=settings)
        yes = "do it without asking; needed where there is no terminal"
        add("--yes", action="store_true", help=yes)
        answer = (
            "let paired devices answer what an agent asks in its terminal: the hook of a"
            " permission request waits beside the dialog (--no-answer: it only reports;"
            " default: ask where there is a terminal, else leave it as it is)"
        )
        add("--answer", action=BooleanOptionalAction, default=None, help=answer)
        out = "take the hooks out, and give back the file as it was"
        add("--remove", action="store_true", help=out)

    def handle(self, *args: Any, **options: Any) -> None:
        shown = (options["settings_file"] or default_settings()).expanduser()
        try:
            how = {"removing": options["remove"], "yes": options["yes"]}
            report = self._change(shown, answers=options["answer"], **how)
        except SettingsError as error:
            raise CommandError(f"{shown}: {error}. Nothing was changed.") from None
        except OSError as error:
            raise CommandError(f"{error.filename or shown}: {error.strerror}.") from None
        self.stdout.write(report)

    def _change(self, shown: Path, *, removing: bool, yes: bool, answers: bool | None) -> str:
        """Change the file after a question, and return what was done.

        Raises SettingsError, OSError, and CommandError when nobody can be asked.
        """
        # of a linked settings file the target is written, and the link stays
        file, spool = Path(os.path.realpath(shown)), conf.bridge_data_dir / "spool"
        digest = hashlib.sha256(os.fsencode(spool)).hexdigest()[:8]
        backup = file.with_name(f"{file.name}.before-bridge-{digest}")
        before = _read(file)
        if removing:
            after = _without(before, backup, str(spool))
        else:
            text = "{}\n" if before is None else before
            may_ask = answers is None and not yes and sys.stdin.isatty()
            if may_ask and not answering(text, str(spool)):
                answers = self._agrees(ANSWER)
            after = install(text, str(spool), answers=answers)
        if after != before and not self._agreed(before, after, shown, removing=removing, yes=yes):
            return "Nothing was changed."  # as the person wanted it
        if not removing:
            make_private_dir(spool.parent, spool.name, ANSWERS)
            write_hook_scripts(spool)
        if after == before:
            return f"{shown}: nothing to do."
        if _read(file) != before:
            raise SettingsError("it was changed meanwhile; run this again")
        if before is not None and not installed(before, str(spool)):
            write_private_file(backup, before.encode(), like=file)
        if after is None:
            file.unlink()
        else:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(file, after.encode(), like=file)
        if removing:
            backup.unlink(missing_ok=True)
            return f"{shown}: the hooks are out{', and the file is gone' if after is None else ''}."
        kept = f" The file as it was: {backup}." if backup.exists() else ""
        starts = "Agent sessions that start from now on report to the bridge."
        if answering(after or "", str(spool)):
            starts += " What they ask can be answered from a paired device too."
        return f"{shown}: the hooks are in. {starts}{kept}"

    def _agreed(
        self, before: str | None, after: str | None, shown: Path, *, removing: bool, yes: bool
    ) -> bool:
        """Show what would be written, and ask; without a terminal ``yes`` decides."""
        adds = f"adds one command to {len(HOOK_MATCHERS)} events of"
        what = "takes the bridge's command out of" if removing else adds
        self.stdout.write(f"This {what} {shown}.\n")
        old, new = (before or "").splitlines(), (after or "").splitlines()
        for line in difflib.unified_diff(old, new, str(shown), str(shown), lineterm=""):
            self.stdout.write(line)
        if yes:
            return True
        if not sys.stdin.isatty():
            words = "--remove --yes" if removing else "--yes"
            again = f"run this again with --yes ({make_command(conf, 'hooks', words)})"
            raise CommandError(f"There is no terminal to ask at: {again}. Nothing was changed.")
        return self._agrees("\nWrite this?")

    def _agrees(self, question: str) -> bool:
        self.stdout.write(f"{question} [y/N] ", ending="")
        self.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def _without(before: str | None, backup: Path, spool: str) -> str | None:
    """Return the file without our hooks; None if it did not exist before them.

    When nothing else was changed since, it is exactly the text from before.
    """
    if before is None or not installed(before, spool):
        return before
    try:
        original = _read(backup)
        answers = answering(before, spool)
        if original is not None and install(original, spool, answers=answers) == before:
            return original
    except (OSError, SettingsError):
        original = None
    without = remove(before, spool)
    empty = not without.lstrip("\ufeff").strip("{} \t\r\n")
    return None if original is None and empty else without


def _read(file: Path) -> str | None:
    """Return the file's text, or None. Raises SettingsError, OSError."""
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SettingsError("it is not JSON: not UTF-8") from None
