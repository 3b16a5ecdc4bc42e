"""Define what the bridge asks of an agent's own store of sessions (D67)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

ANY_SESSION: Final = ""  # of a program that may run whichever session


@dataclass(frozen=True, slots=True)
class PastSession:
    """Describe a session in an agent's store; ``directory``: where it was begun.

    ``active_at``: of its last word, in seconds since 1970; 0 when the agent does not say.
    """

    own_id: str
    title: str
    directory: str
    active_at: float


class Store(ABC):
    """Find an agent's sessions, and the programs that run them.

    ``names_sessions``: it is known which session each program runs; else any may run any.
    ``note``: what a person is told before a session is continued here, or "".
    """

    names_sessions = True
    note = ""

    @abstractmethod
    async def sessions(self, places: Sequence[str]) -> Sequence[PastSession]:
        """Return all sessions that can be read, in any order.

        ``places``: where to look, for an agent that lists one directory at a time. Raises
        AGENT_UNAVAILABLE with the reason, when the agent does not say.
        """

    @abstractmethod
    async def find(self, own_id: str, place: str) -> PastSession | None:
        """Return a session that can be read; None for another, or for what is no id.

        ``place``: where it may have been begun. Raises as ``sessions``.
        """

    @abstractmethod
    async def programs(self) -> Collection[tuple[str, int]]:
        """Return (session, process id) of the programs that run a session now.

        ANY_SESSION stands for one that nobody knows. The process id is 0 where the program is in
        another namespace, or cannot be seen.
        """

    async def joinable(self) -> Collection[str]:
        """Return the sessions of the desk's that can be joined there now (D80)."""
        return ()

    @abstractmethod
    def is_program(self, pid: int) -> bool:
        """Return whether a process is the agent's own program."""

    @abstractmethod
    def resume_command(self, own_id: str) -> str:
        """Return what a person types to continue a session in a terminal."""
