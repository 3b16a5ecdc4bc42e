"""Ask an agent's program for its sessions, and keep the answer for a moment (D67)."""

import asyncio
import os
import re
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from bridge_project.kernel import limits
from bridge_project.kernel.text import printable
from sessions_app.agents.past.store import PastSession, Store

_TITLE_CHARS: Final = 120
_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,128}")
_Kept = tuple[float, Sequence[PastSession]]  # when it was listed
_NEVER: Final[_Kept] = (float("-inf"), ())


class AskedStore(Store):
    """Keep what an agent has listed for LIST_KEPT_SECONDS."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], _Kept] = {}  # by the directories that were asked about
        self._asking = asyncio.Lock()

    @abstractmethod
    async def _ask(self, places: Sequence[str]) -> Sequence[PastSession]:
        """Return the sessions that the agent lists. Raises AGENT_UNAVAILABLE."""

    def _about(self, places: Sequence[str]) -> Sequence[str]:
        """Return the directories that it has to be asked about; none: it lists all."""
        return ()

    async def sessions(self, places: Sequence[str]) -> Sequence[PastSession]:
        return await self._list(places, limits.ACP_LIST_KEPT_SECONDS)

    async def find(self, own_id: str, place: str) -> PastSession | None:
        asked_at = time.monotonic()
        kept = [one for _, sessions in self._fresh().values() for one in sessions]
        if not any(one.own_id == own_id for one in kept):
            places = [place] if os.path.isabs(place) else []
            listed_at, _ = self._fresh().get(tuple(self._about(places)), _NEVER)
            await asyncio.sleep(listed_at + limits.ACP_LIST_AGAIN_SECONDS - asked_at)
            kept = [*await self._list(places, time.monotonic() - asked_at)]
        return next((one for one in kept if one.own_id == own_id), None)

    def _fresh(self) -> dict[tuple[str, ...], _Kept]:
        oldest = time.monotonic() - limits.ACP_LIST_KEPT_SECONDS
        return {asked: kept for asked, kept in self._kept.items() if kept[0] > oldest}

    async def _list(self, places: Sequence[str], seconds: float) -> Sequence[PastSession]:
        """Return the agent's list, as it was not longer ago than that."""
        asked = tuple(self._about(places))
        async with self._asking:
            self._kept = self._fresh()
            listed_at, found = self._kept.get(asked, _NEVER)
            if time.monotonic() - listed_at > seconds:
                found = await self._ask(asked)
                self._kept[asked] = (time.monotonic(), found)
        return found


def past_session(own_id: Any, title: Any, directory: Any, active_at: float) -> PastSession | None:
    """Return a session of a list; None for one that cannot be continued."""
    if not isinstance(own_id, str) or not _ID.fullmatch(own_id):
        return None
    if not isinstance(directory, str) or not directory.startswith("/") or "\0" in directory:
        return None
    title = title[:_TITLE_CHARS] if isinstance(title, str) else ""
    name = printable(title, keep="\N{ZERO WIDTH JOINER}") or own_id
    return PastSession(own_id, name, directory, active_at)
