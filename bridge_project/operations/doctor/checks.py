"""Run all checks at once, each with a deadline; report one that hangs (D43)."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, Final

from bridge_project.kernel.config import Conf
from bridge_project.operations.doctor import agents, bridge, browser, machine, round_trip, storage
from bridge_project.operations.doctor.findings import Finding, Level, broken
from bridge_project.operations.doctor.snapshot import Snapshot, take

Found = Finding | list[Finding] | None
Check = Callable[[Snapshot], Found]

ALL_SECONDS: Final = 14.0  # all together; Python's own start comes on top
SNAPSHOT_SECONDS: Final = 7.0
CHECK_SECONDS: Final = 5.0

# Those that only read files: no request, no process, no event.
QUICK: Final[dict[str, Check]] = {
    "certificate": bridge.certificate,
    "clock": bridge.clock,
    "disk": machine.disk,
    "files": machine.files,
    "settings": machine.settings,
    "file limit": machine.file_limit,
    "spool": machine.spool,
    "hooks": machine.hooks,
    "forwarders": bridge.forwarders,
}
# In the order in which they are reported.
CHECKS: Final[dict[str, Check]] = {
    "bridge": bridge.running,
    "tokens": bridge.tokens,
    "address": bridge.address,
    "browser": browser.address,
    "proxy": bridge.proxy,
    "database": storage.database,
    "redis": storage.redis_server,
    **QUICK,
    "agents": agents.agents,
}


def examine(conf: Conf, agent: str = "") -> list[Finding]:
    """Run all checks and return the findings, after at most ALL_SECONDS.

    With `agent`, start this one too, which takes a time of its own. It is started on the thread
    that calls, which must be the main one. A check that hangs keeps its thread.
    """
    began = time.monotonic()
    pool = ThreadPoolExecutor(len(CHECKS) + 2, thread_name_prefix="doctor")
    try:
        seen = pool.submit(take, conf).result(SNAPSHOT_SECONDS)
    except TimeoutError:
        seen = Snapshot(conf, trouble="no answer in time")
    running = [(name, pool.submit(check, seen)) for name, check in CHECKS.items()]
    ends = min(time.monotonic() + CHECK_SECONDS, began + ALL_SECONDS)
    found = []
    for name, future in running:
        found += _findings(seen, name, _within(future, ends))
    # Last, so that nothing of it is found in the spool.
    usable = not any(one.check == "database" and one.level is Level.BROKEN for one in found)
    event = pool.submit(round_trip.event, seen, database_works=usable)
    found += _findings(seen, "event", _within(event, began + ALL_SECONDS))
    if agent:
        found.append(agents.trial(seen, agent).report_as("agents"))
    pool.shutdown(wait=False)
    return found


def glance(seen: Snapshot) -> list[Finding]:
    """Run the checks of QUICK, one after the other."""
    each = (_findings(seen, name, partial(check, seen)) for name, check in QUICK.items())
    return list(chain.from_iterable(each))


def _within(future: Future[Any], ends: float) -> Callable[[], Found]:
    return lambda: future.result(max(0.1, ends - time.monotonic()))


def _findings(seen: Snapshot, name: str, check: Callable[[], Found]) -> list[Finding]:
    """Return what a check found, or why it could not."""
    try:
        found = check()
    except TimeoutError:
        again = f"{seen.run}   # after the running one was stopped"
        found = broken("This could not be found out in time.", seen.log_tail, again)
    except Exception as error:  # noqa: BLE001 - what a check ran into is what it found
        text = f"This could not be found out: {type(error).__name__}: {error}"
        found = broken(text, seen.log_tail)
    listed = found if isinstance(found, list) else [found] if found else []
    return [one.report_as(name) for one in listed]
