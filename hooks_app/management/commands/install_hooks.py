"""`install_hooks`: our hooks into the agent's settings file, or out of it again (D43)."""

from __future__ import annotations

import difflib
import hashlib
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bridge_project.kernel.config import conf
from bridge_project.kernel.private_files import make_private_dir
from hooks_app.producer.install import SettingsError, install, installed, remove
from hooks_app.producer.shell_command import HOOK_EVENTS, write_hook_script


def default_settings() -> Path:
    """The agent's own settings file: ``settings.json`` in ``CLAUDE_CONFIG_DIR``, else in
    ``~/.claude``.
    """
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude").expanduser() / "settings.json"


class Command(BaseCommand):
    help = "Put the bridge's hooks into the agent's settings file, or take them out again with --remove."
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # Django's own --settings gives way; manage.py hands ours on as --settings-file, before
        # Django looks.
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.set_defaults(settings=None)
        parser.add_argument(
            "--settings",
            "--settings-file",
            dest="settings_file",
            type=Path,
            default=None,
            help="the agent's settings file (default: ~/.claude/settings.json)",
        )
        parser.add_argument(
            "--spool",
            type=Path,
            default=None,
            help="where the hooks write (default: `spool` in the data directory)",
        )
        parser.add_argument(
            "--yes",
            action="store_true",
            help="do it without asking; needed where there is no terminal",
        )
        parser.add_argument(
            "--remove",
            action="store_true",
            help="take the hooks out, and give back the file as it was",
        )

    def handle(
        self, *args: Any, settings_file: Path | None, spool: Path | None, **options: Any
    ) -> None:
        shown = (settings_file or default_settings()).expanduser()
        # of a linked settings file the target is written, and the link stays
        file = Path(os.path.realpath(shown))
        directory = (
            Path(os.path.abspath(spool.expanduser())) if spool else conf.bridge_data_dir / "spool"
        )
        backup = file.with_name(
            f"{file.name}.before-bridge-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]}"
        )
        before = _read(file, shown)
        if not options["remove"]:
            _make_spool(directory)
        try:
            after = (
                _removed(before, backup, str(directory))
                if options["remove"]
                else install(before if before is not None else "{}\n", str(directory))
            )
            fresh = before is not None and not installed(before, str(directory))
        except SettingsError as error:
            raise CommandError(f"{shown}: {error}. Nothing was changed.") from None
        if after == before:
            self.stdout.write(
                f"{shown}: {'no hooks of this bridge are in it' if options['remove'] else 'the hooks are in it already'}. Nothing to do."
            )
            return
        if not self._agreed(before, after, shown, options):
            self.stdout.write("Nothing was changed.")
            return
        if _read(file, shown) != before:
            raise CommandError(
                f"{shown} was changed meanwhile. Nothing was written; run this again."
            )
        try:
            self._apply(before, after, file, backup, fresh and not options["remove"])
        except OSError as error:
            raise CommandError(f"{shown} cannot be written: {error.strerror}.") from None
        self._report(options["remove"], after, shown, backup)

    def _agreed(
        self, before: str | None, after: str | None, shown: Path, options: dict[str, Any]
    ) -> bool:
        """Say what would be written, and ask; without a terminal only ``--yes`` is an answer."""
        what = (
            "takes the bridge's command out of"
            if options["remove"]
            else f"adds one command to {len(HOOK_EVENTS)} events of"
        )
        self.stdout.write(f"This {what} {shown}.\n")
        old, new = (before or "").splitlines(), (after or "").splitlines()
        for line in difflib.unified_diff(
            old, new, str(shown), str(shown) if after is not None else "(removed)", lineterm=""
        ):
            self.stdout.write(line)
        if options["yes"]:
            return True
        if not sys.stdin.isatty():
            self.stdout.write("\nThere is no terminal to ask at: run this again with --yes.")
            return False
        self.stdout.write("\nWrite this? [y/N] ", ending="")
        self.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def _apply(
        self, before: str | None, after: str | None, file: Path, backup: Path, back_up: bool
    ) -> None:
        if back_up and before is not None:
            _write(backup, before, like=file)
        if after is None:
            file.unlink()
        else:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(file, after, like=file)

    def _report(self, removed: bool, after: str | None, shown: Path, backup: Path) -> None:
        if removed:
            backup.unlink(missing_ok=True)
            self.stdout.write(
                f"{shown}: the hooks are out{'' if after is not None else ', and so is the file, which held nothing else'}."
            )
            return
        kept = f" The file as it was: {backup}." if backup.exists() else ""
        self.stdout.write(
            f"{shown}: the hooks are in. Agent sessions that start from now on report to the bridge.{kept}"
        )


def _removed(before: str | None, backup: Path, spool: str) -> str | None:
    """The file without our hooks: the very bytes from before when nothing else was changed since;
    None when the file was not there.
    """
    if before is None or not installed(before, spool):
        return before
    try:
        original = _decode(backup.read_bytes())
        if install(original, spool) == before:
            return original
    except (OSError, SettingsError):
        original = None
    without = remove(before, spool)
    return None if original is None and not without.lstrip("\ufeff").strip("{} \t\r\n") else without


def _make_spool(directory: Path) -> None:
    try:
        str(directory).encode()
    except UnicodeEncodeError:
        raise CommandError(
            f"{os.fsencode(directory)!r} is not UTF-8, so JSON cannot name it. Choose another directory."
        ) from None
    try:
        if directory.parent == conf.bridge_data_dir:
            make_private_dir(directory.parent, directory.name)
        else:
            make_private_dir(directory)
        write_hook_script(directory)
    except OSError as error:
        raise CommandError(f"{directory} cannot be made: {error.strerror}.") from None


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SettingsError("it is not JSON: not UTF-8") from None


def _read(file: Path, shown: Path) -> str | None:
    """The file's text; None when there is none."""
    try:
        return _decode(file.read_bytes())
    except FileNotFoundError:
        return None
    except SettingsError as error:
        raise CommandError(f"{shown}: {error}. Nothing was changed.") from None
    except OSError as error:
        raise CommandError(f"{shown} cannot be read: {error.strerror}.") from None


def _write(file: Path, text: str, like: Path) -> None:
    """Write so that a reader sees the old text or the new; mode and owner are those of ``like``,
    where it is there.
    """
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(text.encode())
            opened.flush()
            os.fsync(descriptor)
            if like.exists():
                status = like.stat()
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
                if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                    os.chown(draft, status.st_uid, status.st_gid)
        os.replace(draft, file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
