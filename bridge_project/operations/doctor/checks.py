"""Run all checks at once, each with a deadline; report one that hangs (D43)."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from bridge_project.kernel.config import Conf
from bridge_project.operations.doctor import agents, bridge, browser, machine, notify, round_trip
from bridge_project.operations.doctor.findings import Finding, broken
from bridge_project.operations.doctor.snapshot import Snapshot, take

Found = Finding | list[Finding] | None
Check = Callable[[Snapshot], Found]

ALL_CHECKS_SECONDS: Final = 5.0  # they run at once
EVENT_CHECK_SECONDS: Final = 8.0

# Those that only read files: no request, no process, no event.
QUICK: Final[dict[str, Check]] = {
    "certificate": bridge.certificate,
    "clock": bridge.clock,
    "disk": machine.disk,
    "files": machine.files,
    "settings": machine.settings,
    "spool": machine.spool,
    "hooks": machine.hooks,
    "forwarders": bridge.forwarders,
    "hosts": agents.hosts,
}
# In the order in which they are reported.
CHECKS: Final[dict[str, Check]] = {
    "bridge": bridge.running,
    "tokens": bridge.tokens,
    "address": bridge.address,
    "browser": browser.address,
    "proxy": bridge.proxy,
    "database": machine.database,
    "redis": machine.redis_server,
    "system": machine.system,
    **QUICK,
    "agents": agents.agents,
}


def examine(conf: Conf, agent: str = "", *, send: bool = False) -> list[Finding]:
    """Run all checks. Call this on the main thread.

    ``agent``: start this one too; ``send``: a test to each address of BRIDGE_NOTIFY_URLS too.
    """
    pool = ThreadPoolExecutor(len(CHECKS) + 1, thread_name_prefix="doctor")
    seen = take(conf)

    def run(checks: dict[str, Check], seconds: float) -> list[Finding]:
        ends = time.monotonic() + seconds
        running = [(name, pool.submit(check, seen)) for name, check in checks.items()]
        found = []
        for name, future in running:
            left = max(0.1, ends - time.monotonic())
            found += _findings(seen, name, partial(future.result, left))
        return found

    found = run(CHECKS, ALL_CHECKS_SECONDS)
    if all(one.check != "database" or one.level != "broken" for one in found):
        # Last, so that nothing of it is found in the spool.
        found += run({"event": round_trip.event, "notify": notify.configured}, EVENT_CHECK_SECONDS)
    if agent:
        found.append(agents.trial(seen, agent).report_as("agents"))
    if send:
        found += [one.report_as("notify") for one in notify.trial(seen)]
    pool.shutdown(wait=False)
    return found


def glance(seen: Snapshot) -> list[Finding]:
    """Run the quick checks one after the other."""
    found = []
    for name, check in QUICK.items():
        found += _findings(seen, name, partial(check, seen))
    return found


def _findings(seen: Snapshot, name: str, check: Callable[[], Found]) -> list[Finding]:
    """Return what a check found, or why it could not."""
    try:
        found = check()
    except TimeoutError:
        found = broken("This check took too long.", seen.log_tail)
    except Exception as error:  # noqa: BLE001 - a check's exception is its finding
        text = f"This check failed: {type(error).__name__}: {error}"
        found = broken(text, seen.log_tail)
    listed = found if isinstance(found, list) else [found] if found else []
    return [one.report_as(name) for one in listed]
