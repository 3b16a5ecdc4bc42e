"""Find codex's sessions, by its app-server's list (D67)."""

from collections.abc import Collection, Sequence
from typing import Final

from sessions_app.agents.past.asked import AskedStore
from sessions_app.agents.past.store import PastSession

_NOTE: Final = "Codex refuses it while another program of codex has it open: end that here before."


class CodexStore(AskedStore):
    """Ask codex for its sessions.

    It keeps a session for the program that has it open, and refuses it to any other. So the bridge
    need not know the programs.
    """

    names_sessions = False
    note = _NOTE

    async def _ask(self, places: Sequence[str]) -> Sequence[PastSession]:
        from sessions_app.agents.codex import sessions

        return await sessions.listed()

    async def programs(self) -> Collection[tuple[str, int]]:
        return ()

    def is_program(self, pid: int) -> bool:
        return False

    def resume_command(self, own_id: str) -> str:
        return f"codex resume {own_id}"
