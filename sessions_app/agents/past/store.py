"""Define what the bridge asks of an agent's own store of sessions (D67)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PastSession:
    """Describe a session in an agent's store; ``directory``: where it was begun.

    ``active_at``: of its last word, in seconds since 1970.
    """

    own_id: str
    title: str
    directory: str
    active_at: float


class Store(ABC):
    """Read an agent's store; the methods touch files, and raise nothing."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Return the directory of the store, which need not be there."""

    @abstractmethod
    def sessions(self) -> Iterable[PastSession]:
        """Return all sessions that can be read, in any order."""

    @abstractmethod
    def find(self, own_id: str) -> PastSession | None:
        """Return a session that can be read; None for another, or for what is no id."""

    @abstractmethod
    def programs(self) -> Collection[tuple[str, int]]:
        """Return (session, process id) of the programs that run a session now.

        The process id is 0 where the program is in another namespace.
        """

    @abstractmethod
    def is_program(self, pid: int) -> bool:
        """Return whether a process is the agent's own program."""

    @abstractmethod
    def resume_command(self, own_id: str) -> str:
        """Return what a person types to continue a session in a terminal."""
