"""Install our hooks into the settings of agents, or remove them (D43)."""

import difflib
import hashlib
import os
import shlex
import sys
from argparse import ArgumentTypeError, BooleanOptionalAction
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bridge_project.kernel.config import conf
from bridge_project.kernel.own_commands import make_command
from bridge_project.kernel.private_files import make_private_dir, write_private_file
from bridge_project.kernel.questions import agrees
from hooks_app.producer.agents import AGENTS, CLAUDE, HookedAgent
from hooks_app.producer.install import (
    ASKS_NOBODY,
    SettingsError,
    answering,
    asks_somebody,
    install,
    installed,
    is_empty,
    remove,
)
from hooks_app.producer.shell_command import ANSWERS, write_hook_scripts
from sessions_app.agents.found import Program

ANSWER = "Answer from a phone what {} asks in its terminal, {}?"
BESIDE = "beside its own dialog"
AWAY = "while you are away, for {} seconds before its own dialog"


def found() -> Iterator[HookedAgent]:
    """Yield the agents that are here: by program (D75), or directory of settings."""
    for agent in AGENTS.values():
        home = agent.settings().parent
        if agent.form == "copilot" or agent.file.startswith("hooks/"):
            home = home.parent
        if home.is_dir() or Program(agent.program, agent.product).path() is not None:
            yield agent


class Command(BaseCommand):
    help = (
        "Put the bridge's hooks into the settings of agents, or take them out again with --remove."
    )
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # Django's own --settings gives way; manage.py hands ours on as --settings-file, before
        # Django looks.
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        parser.set_defaults(settings=None)
        which = "which agents (default: all that are found, or that have our hooks)"
        add("agents", nargs="*", type=_agent, metavar="AGENT", help=which)
        settings = "the settings file of one agent (default: claude-code's, at the usual place)"
        add("--settings", "--settings-file", dest="settings_file", type=Path, help=settings)
        yes = "do it without asking; needed where there is no terminal"
        add("--yes", action="store_true", help=yes)
        answer = (
            "let paired devices answer what an agent asks in its terminal: the hook of a"
            " permission request waits (--no-answer: it only reports; default: ask where there is a"
            " terminal, else leave it as it is)"
        )
        add("--answer", action=BooleanOptionalAction, default=None, help=answer)
        out = "take the hooks out, and give back the file as it was"
        add("--remove", action="store_true", help=out)

    def handle(self, *args: Any, **options: Any) -> None:
        given, wrong = options["settings_file"], []
        names = options["agents"] or ([CLAUDE] if given else [])
        if given and len(names) > 1:
            raise CommandError("A settings file is one agent's. Nothing was changed.")
        if options["remove"]:
            chosen = [AGENTS[name] for name in names] or list(AGENTS.values())
        else:
            chosen = [AGENTS[name] for name in names] or list(found())
            if not chosen:
                self.stdout.write("No agent was found here. For Claude Code, which may come:")
                chosen = [AGENTS[CLAUDE]]
        how = {name: options[name] for name in ("remove", "yes", "answer")}
        self._again = _words(given, options)
        for agent in chosen:
            shown = (given or agent.settings()).expanduser()
            try:
                if report := self._change(agent, shown, **how, named=bool(names)):
                    self.stdout.write(report)
            except SettingsError as error:
                wrong.append(f"{shown}: {error}. Nothing was changed.")
            except OSError as error:
                wrong.append(f"{error.filename or shown}: {error.strerror}.")
        if wrong:
            raise CommandError("\n".join(wrong))

    def _change(
        self,
        agent: HookedAgent,
        shown: Path,
        *,
        remove: bool,
        yes: bool,
        answer: bool | None,
        named: bool,
    ) -> str:
        """Change the file after a question, and return what was done.

        Raises SettingsError, OSError, and CommandError when nobody can be asked.
        """
        # of a linked settings file the target is written, and the link stays
        file, spool = Path(os.path.realpath(shown)), conf.bridge_data_dir / "spool"
        digest = hashlib.sha256(os.fsencode(spool)).hexdigest()[:8]
        backup = file.with_name(f"{file.name}.before-bridge-{digest}")
        before = _read(file)
        if remove:
            after = _without(agent, before, backup, str(spool))
            if after == before and not named and agent.name != CLAUDE:
                return ""
        else:
            text = before if before is not None else "" if agent.form == "toml" else "{}\n"
            may_ask = agent.answers and answer is None and not yes and sys.stdin.isatty()
            if may_ask and not answering(text, str(spool), agent=agent):
                when = AWAY.format(agent.waits) if agent.waits else BESIDE
                answer = agrees(ANSWER.format(agent.product, when))
            after = install(text, str(spool), answers=answer, agent=agent)
        if after != before and not self._agreed(agent, before, after, shown, remove, yes=yes):
            return "Nothing was changed."  # as the person wanted it
        if not remove:
            make_private_dir(spool.parent, spool.name, ANSWERS)
            write_hook_scripts(spool)
        if after == before:
            return f"{shown}: nothing to do."
        if _read(file) != before:
            raise SettingsError("it was changed meanwhile; run this again")
        if before is not None and not installed(before, str(spool), agent=agent):
            write_private_file(backup, before.encode(), like=file)
        if after is None:
            file.unlink()
            with suppress(OSError):  # an empty directory was there for the file only
                file.parent.rmdir()
        else:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(file, after.encode(), like=file)
        if remove:
            backup.unlink(missing_ok=True)
            return f"{shown}: the hooks are out{', and the file is gone' if after is None else ''}."
        kept = f" The file as it was: {backup}." if backup.exists() else ""
        return f"{shown}: the hooks are in. {_then(agent, after or '', spool, shown)}{kept}"

    def _agreed(
        self,
        agent: HookedAgent,
        before: str | None,
        after: str | None,
        shown: Path,
        removing: bool,
        *,
        yes: bool,
    ) -> bool:
        """Show what would be written, and ask, unless ``yes`` is given."""
        if yes:
            return True
        old, new = (before or "").splitlines(), (after or "").splitlines()
        for line in difflib.unified_diff(old, new, str(shown), str(shown), lineterm=""):
            self.stdout.write(line)
        events, spool = len(agent.events), str(conf.bridge_data_dir / "spool")
        adds = f"adds one command, the same, to {events} events of"
        if not removing and answering(after or "", spool, agent=agent):
            adds = f"adds one command, the same, to {events - 1} events, and to"
            adds += f" {agent.answers} one that waits for an answer, in"
        what = "takes the bridge's commands out of" if removing else adds
        self.stdout.write(f"\nThis {what} {shown}.")
        if not sys.stdin.isatty():
            again = f"run this again with --yes ({make_command(conf, 'hooks', self._again)})"
            raise CommandError(f"There is no terminal to ask at: {again}. Nothing was changed.")
        return agrees("Write this?")


def _agent(name: str) -> str:
    """Check a name. Its ``choices`` would have to have the list of none, too."""
    if name in AGENTS:
        return name
    raise ArgumentTypeError(f"{name!r} is none of {', '.join(AGENTS)}")


def _then(agent: HookedAgent, text: str, spool: Path, shown: Path) -> str:
    """Say what the hooks do from now on, and what is still to be done."""
    said = ["Agent sessions that start from now on report to the bridge."]
    if answering(text, str(spool), agent=agent):
        when = AWAY.format(agent.waits) if agent.waits else BESIDE
        said.append(f"What they ask can be answered from a paired device too, {when}.")
        if agent.name == CLAUDE and not asks_somebody(text):
            said.append(ASKS_NOBODY.format(shown))
    return " ".join(filter(None, [*said, agent.then]))


def _without(agent: HookedAgent, before: str | None, backup: Path, spool: str) -> str | None:
    """Return the file without our hooks; None if it did not exist before them.

    When nothing else was changed since, it is exactly the text from before.
    """
    if before is None or not installed(before, spool, agent=agent):
        return before
    try:
        original = _read(backup)
        how: dict[str, Any] = {"answers": answering(before, spool, agent=agent), "agent": agent}
        if original is not None and install(original, spool, **how) == before:
            return original
    except (OSError, SettingsError):
        original = None
    without = remove(before, spool, agent=agent)
    return None if original is None and is_empty(without, agent) else without


def _read(file: Path) -> str | None:
    """Return the file's text, or None. Raises SettingsError, OSError."""
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SettingsError("it is not text in UTF-8") from None


def _words(given: Path | None, options: dict[str, Any]) -> str:
    """Return the words of the command that asks nothing, and is the same otherwise."""
    answers = {True: ["--answer"], False: ["--no-answer"], None: []}[options["answer"]]
    where = ["--settings", shlex.quote(str(given))] if given else []
    removes = ["--remove"] if options["remove"] else []
    return " ".join([*options["agents"], *where, *removes, *answers, "--yes"])
