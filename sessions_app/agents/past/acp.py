"""Find the sessions of an ACP agent, by its own list (D67)."""

import os
import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

import psutil

from bridge_project.kernel.threads import disk
from sessions_app.agents.acp import recipes
from sessions_app.agents.past.asked import AskedStore
from sessions_app.agents.past.store import ANY_SESSION, PastSession

UNSEEN: Final = "The bridge does not see when a terminal opens it: end it here before."
UNSHOWN: Final = "Its terminal program may not show what was said here."
_INTERPRETER = re.compile(r"(?:node|nodejs|bun|deno|python[\d.]*)")
_SCRIPT_WORDS: Final = 2  # without a dash, among which the script is: an option may take the first


class AcpStore(AskedStore):
    """Ask an agent for its sessions.

    Nothing tells which session a program of it has open, so any may have any.
    """

    names_sessions = False

    def __init__(self, name: str, command: Callable[[], list[str]], recipe: recipes.Recipe) -> None:
        super().__init__()
        self._name, self._command, self._recipe = name, command, recipe
        self.note = f"{UNSEEN} {UNSHOWN}" if recipe.unshown else UNSEEN

    async def _ask(self, places: Sequence[str]) -> Sequence[PastSession]:
        # now, for the library takes half a second; who lists none does without it
        from sessions_app.agents.acp import sessions

        return await sessions.listed(self._name, self._command(), self._recipe, places)

    def _about(self, places: Sequence[str]) -> Sequence[str]:
        return places if self._recipe.directory_at_a_time else ()

    async def programs(self) -> Collection[tuple[str, int]]:
        return await disk.run("/", self._programs)

    def _programs(self) -> Collection[tuple[str, int]]:
        try:
            return [(ANY_SESSION, pid) for pid in psutil.pids() if self.is_program(pid)]
        except (psutil.Error, OSError):  # they cannot be seen
            return [(ANY_SESSION, 0)]

    def is_program(self, pid: int) -> bool:
        """Return whether this user runs it under the agent's name.

        That is its file's, its title's or its script's.
        """
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                others = process.uids().real != os.getuid()
                if others or process.status() == psutil.STATUS_ZOMBIE:
                    return False
                names = _names_of(process)
        except psutil.NoSuchProcess:
            return False
        return any(map(self._recipe.is_called, names))

    def resume_command(self, own_id: str) -> str:
        return self._recipe.resume.format(id=own_id)


def _names_of(process: psutil.Process) -> set[str]:
    """Return what a process may be called; what cannot be read of it says nothing."""
    file, words, directory = "", list[str](), ""
    try:
        file = process.exe()
        words = process.cmdline()
        directory = process.cwd()
    except psutil.AccessDenied:
        pass
    said = [process.name(), file, *words[:1]]
    if _INTERPRETER.fullmatch(os.path.basename(file)):
        scripts = [one for one in words[1:] if one and not one.startswith("-")][:_SCRIPT_WORDS]
        said += scripts
        said += [os.path.realpath(os.path.join(directory, one)) for one in scripts]
    return set().union(*map(recipes.names_of, said))
