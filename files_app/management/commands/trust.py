"""Trust a repository's own programs, list or end trust (D63)."""

import getpass
import os
from typing import Any

from django.core.management.base import CommandError, CommandParser

from bridge_project.kernel.errors import BridgeError, Ignoring
from bridge_project.kernel.path_jail import Jail, shown
from bridge_project.kernel.text import terminal_safe
from devices_app import audit
from devices_app.management.base import DatabaseCommand
from devices_app.models import AuditEntry
from files_app.git import programs, push
from files_app.git.repository import repository_of
from files_app.git.trust import store
from files_app.models import TrustedRepository
from sessions_app.working_directory import Repository


class Command(DatabaseCommand):
    help = (
        "Trust the hooks, filters and other programs that a repository brings, exactly as they are"
        " now: only then they run when a device commits or pushes. Without a directory: list what"
        " is trusted."
    )
    table = TrustedRepository._meta.db_table

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("directory", nargs="?", help="a directory in the repository")
        parser.add_argument("--remove", action="store_true", help="end the trust")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["directory"] is None:
            if options["remove"]:
                raise CommandError("Name the repository whose trust is to end.")
            rows = TrustedRepository.objects.all()
            for row in rows:
                self.stdout.write(terminal_safe(f"{row.path}  {', '.join(row.programs)}"))
            if not rows:
                self.stdout.write("No repository is trusted.")
            return
        directory = os.path.realpath(options["directory"])
        if options["remove"]:
            rows = TrustedRepository.objects.filter(path=shown(directory))
            if not rows:
                raise CommandError(f"{terminal_safe(shown(directory))} is not trusted.")
            rows.delete()
            self._record("untrust", shown(directory))
            self.stdout.write("Its programs run no more.")
            return
        try:
            place = repository_of(directory, Jail(["/"]))
            found = [programs.find(place, use, *self._more(place, use)) for use in programs.USES]
        except BridgeError as error:
            raise CommandError(terminal_safe(error.message)) from None
        found = [one for one in found if one.programs]
        if not found:
            self.stdout.write("The repository brings no programs, so there is nothing to trust.")
            return
        for use in found:
            store(place, use)
            self._record("trust", shown(place.top), digest=use.digest)
        every = [one for use in found for one in use.programs]
        told = (f"{one.kind}  {one.name}  {one.command or ''}  {one.path or ''}" for one in every)
        for line in dict.fromkeys(told):
            self.stdout.write(terminal_safe(line))
        self.stdout.write("These run from now on, and whatever they call.")

    def _more(self, place: Repository, use: str) -> tuple[str, ...]:
        """Return what trust for this use covers besides: a push's addresses."""
        with Ignoring("GIT_ERROR"):
            return push.target(place, set_upstream=True).urls if use == "push" else ()
        return ()

    def _record(self, action: str, subject: str, **details: Any) -> None:
        actor, who = AuditEntry.Actor.TERMINAL, getpass.getuser()
        audit.record(action, actor=actor, who=who, subject=subject, **details)
