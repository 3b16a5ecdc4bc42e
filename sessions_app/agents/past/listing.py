"""List the sessions of an agent's own store that devices may see (D67)."""

from collections.abc import Iterator

from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import Jail, default_jail, shown
from bridge_project.protocol.client_messages import HistoryList
from bridge_project.protocol.types import parse_timestamp
from sessions_app.agents.past.store import PastSession, Store

Placed = tuple[PastSession, str]  # with its real directory


def find(store: Store, asked: HistoryList) -> tuple[list[Placed], bool]:
    """Return sessions, newest first, and whether there are more.

    Those whose directory is outside the roots, or gone, are as if they were not there. Those of one
    millisecond come together, since the next page begins before it.
    """
    taken: list[Placed] = []
    for one in _matching(store, asked):
        if len(taken) >= asked.limit and _millisecond(one) != _millisecond(taken[-1]):
            return taken, True
        taken.append(one)
    return taken, False


def _millisecond(placed: Placed) -> int:
    return int(placed[0].active_at * 1000)


def _matching(store: Store, asked: HistoryList) -> Iterator[Placed]:
    jail, real = default_jail(), dict[str, str]()
    before = parse_timestamp(asked.before).timestamp() if asked.before else None
    words = (asked.query or "").casefold().split()
    within = _resolved(jail, asked.directory) if asked.directory else ""
    if asked.directory and not within:
        return
    for one in sorted(store.sessions(), key=lambda one: -one.active_at):
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
