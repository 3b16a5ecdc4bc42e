"""List the sessions of an agent's own store that devices may see (D67)."""

from collections.abc import Iterator, Sequence

from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, default_jail, shown
from bridge_project.kernel.threads import disk
from bridge_project.protocol.client_messages import HistoryList
from bridge_project.protocol.types import parse_timestamp
from sessions_app.agents.past.store import PastSession, Store

Placed = tuple[PastSession, str]  # with its real directory


async def find(
    store: Store, asked: HistoryList, places: Sequence[str]
) -> tuple[list[Placed], bool]:
    """Return sessions, newest first, and whether there are more.

    Those whose directory is outside the roots, or gone, are as if they were not there. ``places``:
    where to look when no directory is asked for. Raises AGENT_UNAVAILABLE.
    """
    within = ""
    if asked.directory:
        within = await disk.run(asked.directory, _resolved, default_jail(), asked.directory)
        if not within:
            return [], False
    sessions = await store.sessions([within] if within else places)
    return await disk.run(within or "/", _choose, sessions, asked, within)


def _choose(
    sessions: Sequence[PastSession], asked: HistoryList, within: str
) -> tuple[list[Placed], bool]:
    """Return a page; those of one millisecond come together.

    The next page begins before it.
    """
    taken: list[Placed] = []
    for one in _matching(sessions, asked, within):
        if len(taken) >= asked.limit and _millisecond(one) != _millisecond(taken[-1]):
            return taken, True
        taken.append(one)
    return taken, False


def _millisecond(placed: Placed) -> int:
    return int(placed[0].active_at * 1000)


def _matching(sessions: Sequence[PastSession], asked: HistoryList, within: str) -> Iterator[Placed]:
    jail, real = default_jail(), dict[str, str]()
    before = parse_timestamp(asked.before).timestamp() if asked.before else None
    words = (asked.query or "").casefold().split()
    for one in sorted(sessions, key=lambda one: -one.active_at):
        text = f"{one.title} {one.directory}".casefold()
        late = before is not None and one.active_at >= before
        if late or not all(word in text for word in words):
            continue
        if one.directory not in real:
            real[one.directory] = _resolved(jail, one.directory)
        where = real[one.directory]
        if where and f"{where}/".startswith(f"{within.rstrip('/')}/"):
            yield one, where


def _resolved(jail: Jail, directory: str) -> str:
    """Return a directory's real path, "" for one that is not there or not inside."""
    try:
        with jail.open_dir(directory) as opened:
            return opened.path if shown(opened.path) == opened.path else ""
    except BridgeError:
        return ""
