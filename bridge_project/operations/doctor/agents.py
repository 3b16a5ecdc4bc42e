"""Check which agents can start and whether they ask (D41, D43, D59)."""

import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from bridge_project.kernel import limits
from bridge_project.kernel.setting_types import OWN_AGENTS
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot
from sessions_app.agents import registry
from sessions_app.agents.driver import AgentKind, CannotStart, Driver, with_error_output
from sessions_app.agents.events import AgentDied, TurnEnded
from sessions_app.agents.found import ABSENT
from sessions_app.agents.host import sockets
from sessions_app.agents.process import groups

DEMO_SECONDS: Final = 4.0  # it needs a tenth of one
REAL_SECONDS: Final = limits.AGENT_START_SECONDS  # as long as the bridge itself waits for it


def agents(seen: Snapshot) -> list[Finding]:
    """Check every agent, and start only demo, in a temporary directory."""
    registry.load()
    checked = {
        kind.name: _check_real(seen, kind) if kind.real else _try(seen, kind)
        for kind in registry.KINDS.values()
    }
    found = [one for one in checked.values() if one is not None]
    missing = ", ".join(name for name, one in checked.items() if one is None)
    none = f"Not installed, or not where the bridge looks: {missing}."
    return [*found, ok(none)] if missing else found


def hosts(seen: Snapshot) -> Finding:
    """Report the processes in which agents run, which may outlive the bridge (D79)."""
    living, dead = [], []
    for path in sockets.found():
        try:
            living.append(sockets.process_at(path))
        except OSError as error:
            dead.append(f"{path.name}: {error.strerror or error}")
    pids = ", ".join(map(str, living))
    text = f"Agents of sessions that run: {len(living)} (processes {pids})." if living else ""
    if living and not seen.holder:
        ends = f"They wait for a bridge, and end {limits.HOST_ALONE_SECONDS:g} s after it has gone."
        return warning(f"{text} {ends}", seen.start())
    if dead:
        text = f"{text} Of {len(dead)} nothing is left but the socket ({'; '.join(dead)})."
    return ok(text.strip() or "No agent runs.")


def _check_real(seen: Snapshot, kind: AgentKind) -> Finding | None:
    """Check a real agent without starting it.

    None if it is not installed, and nobody has named it.
    """
    start, name, conf = _start_command(seen, kind), kind.name, seen.conf
    if (reason := kind.problem()) is not None:
        text = f"{name} cannot start here: {reason}"
        if conf.bridge_default_agent == name:
            other = seen.without("BRIDGE_DEFAULT_AGENT")
            without = f"{other}; {seen.start()}   # to do without it"
            return broken(f"{text} BRIDGE_DEFAULT_AGENT names it.", *_remedies(seen, kind), without)
        if name in conf.bridge_acp_agents:
            return warning(text, *_remedies(seen, kind))
        return None if reason.endswith(ABSENT) else ok(f"{name} is not set up here: {reason}")
    # The bridge that runs may have another PATH than this terminal.
    bridges = {one["name"]: one for one in seen.info.get("agents", [])}
    report = bridges.get(name, {})
    if bridges and not report.get("can_start"):
        why = report.get("reason", "it does not know the agent.")
        text = f"{name} can be started from this terminal, but not by the bridge that runs: {why}"
        when = "# from here, after it was stopped; a service needs the same PATH"
        return warning(text, f"{seen.start()}   {when}")
    asks = kind.asks() if report.get("asks") is None else report["asks"]
    if asks is None:
        text = f"{name} may act without asking: nobody knows whether it asks."
        return warning(text, f"{start}   # finds out what its modes say")
    if not asks and name in {*conf.bridge_acp_unasked} - {*OWN_AGENTS}:
        text = f"{name} does not ask before it acts: BRIDGE_ACP_UNASKED lets it run."
        asked = seen.without("BRIDGE_ACP_UNASKED")
        return warning(text, f"{asked}; {seen.start()}   # to do without it")
    if not asks:
        text = f"{name} does not ask before it acts, so the bridge starts no session of it."
        return warning(text)
    version = report.get("version") or kind.version() or "version unknown"
    text = f"{name} ({version}) is there: {kind.path()}."
    if trouble := report.get("reason") or kind.trouble():
        return warning(f"{text} {trouble}", start)
    return ok(f"{text} It was not started; {start} does that.")


def _remedies(seen: Snapshot, kind: AgentKind) -> list[str]:
    if command := kind.mend():
        return [command]
    setting = f"{seen.start(BRIDGE_ACP_AGENTS=f'{kind.name}=…')}   # its program's path"
    return [setting] if kind.name in seen.conf.bridge_acp_agents else []


def _start_command(seen: Snapshot, kind: AgentKind) -> str:
    return seen.make("doctor", f"--agent {kind.name}")


def trial(seen: Snapshot, name: str) -> Finding:
    """Start an agent and close it, on the main thread, where Ctrl-C closes it too."""
    registry.load()
    if (kind := registry.KINDS.get(name)) is None:
        text = f"There is no agent {name}; known are: {', '.join(registry.KINDS)}."
        return broken(text, seen.start(BRIDGE_ACP_AGENTS="name=command line"))
    mark = f"doctor-{os.getpid()}"
    groups.reap(mark, ())  # from here on what is started carries this mark, and not the bridge's
    try:
        return _try(seen, kind)
    finally:
        groups.reap(mark, ())  # whatever a driver that was too slow to close has left


def _try(seen: Snapshot, kind: AgentKind) -> Finding:
    """Start an agent and close it again; prompt only demo, which costs nothing."""
    seconds, prompt = (REAL_SECONDS, "") if kind.real else (DEMO_SECONDS, "doctor")
    again, began = _start_command(seen, kind), time.monotonic()
    if (reason := kind.problem()) is not None:
        remedies = _remedies(seen, kind) or [f"{again}   # once it is installed"]
        return broken(f"{kind.name} was not started: {reason}", *remedies)
    driver = kind.make()
    try:
        with tempfile.TemporaryDirectory(prefix="bridge-doctor-") as directory:
            asyncio.run(_run(driver, Path(directory), seconds, prompt))
    except TimeoutError:
        why = f"{kind.name} did not start within {seconds:g} s."
        return broken(with_error_output(why, driver.error_output), again, seen.log_tail)
    except CannotStart as error:
        return broken(
            with_error_output(str(error), driver.error_output), *_remedies(seen, kind), again
        )
    done = "answered a prompt and was closed" if prompt else "was closed, without a prompt"
    name = f"{kind.name} ({kind.version() or 'version unknown'})"
    text = f"{name} started, {done}, in {time.monotonic() - began:.1f} s."
    if driver.asks is None:
        return warning(f"{text} It is unknown: nobody knows whether it asks before it acts.")
    return ok(text) if driver.asks else warning(f"{text} It does not ask before it acts.")


async def _run(driver: Driver, directory: Path, seconds: float, prompt: str) -> None:
    """Run a session without the bridge. Raises CannotStart, TimeoutError."""
    try:
        async with asyncio.timeout(seconds):
            await driver.start(directory)
            if prompt:
                await driver.prompt(prompt)
                async for event in driver.events:
                    if isinstance(event, TurnEnded) and not event.error:
                        break
                    if isinstance(event, TurnEnded | AgentDied):
                        raise CannotStart(f"It started, but its turn failed: {event}")
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.AGENT_CLOSE_SECONDS):
                await driver.close()
