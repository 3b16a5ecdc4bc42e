"""Check which agents can start and whether they ask (D41, D43, D59).

Only `demo` is really started.
"""

import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bridge_project.kernel import limits
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot
from sessions_app.agents import registry
from sessions_app.agents.driver import AgentKind, CannotStart, Driver, Start, with_last_words
from sessions_app.agents.events import AgentDied, Chunk, TurnEnded
from sessions_app.agents.process import groups

PROMPT: Final = "doctor"  # the demo repeats it
DEMO_SECONDS: Final = 4.0  # it needs a tenth of one
REAL_SECONDS: Final = limits.AGENT_START_SECONDS  # as long as the bridge itself waits for it


class WrongAnswer(Exception):
    """Report an agent that did not answer as it should have."""


def agents(seen: Snapshot) -> list[Finding]:
    """Check every agent, and talk to the demo in a temporary directory."""
    registry.load()
    kinds, found = registry.KINDS, []
    for kind in sorted(kinds.values(), key=lambda one: one.real):
        found += _look_at(seen, kind) if kind.real else [_try(seen, kind)]
    name = seen.conf.bridge_default_agent
    if name and name not in kinds:
        text = f"BRIDGE_DEFAULT_AGENT: there is no agent {name}; known are: {', '.join(kinds)}."
        found.append(broken(text, f"BRIDGE_DEFAULT_AGENT= {seen.run}"))
    return found


def _look_at(seen: Snapshot, kind: AgentKind) -> list[Finding]:
    """Check a real agent without starting it."""
    if (reason := kind.why_not()) is not None:
        return [_missing(seen, kind, f"{kind.name} cannot start here: {reason}")]
    # The bridge that runs may have another PATH than this terminal.
    bridges = {one["name"]: one for one in seen.info.get("agents", [])}
    report: dict[str, Any] = bridges.get(kind.name, {})
    name = f"{kind.name} ({report.get('version') or 'version unknown'})"
    start = _start_command(seen, kind)
    found = [ok(f"{name} is there. It was not started; {start} does that.")]
    if bridges and not report.get("can_start"):
        why = report.get("reason", "it does not know the agent.")
        text = f"{name} can be started from this terminal, but not by the bridge that runs: {why}"
        again = f"{seen.run}   # from here, after it was stopped; a service needs the same PATH"
        found = [warning(text, again)]
    asks = kind.asks() if report.get("asks") is None else report["asks"]
    if asks is None:
        text = f"{kind.name} may act without asking: nobody knows whether it asks."
        found.append(warning(text, f"{start}   # finds out what its modes say"))
    elif not asks and kind.name in seen.conf.bridge_acp_unasked:
        text = f"{kind.name} does not ask before it acts: BRIDGE_ACP_UNASKED lets it run."
        found.append(warning(text, f"BRIDGE_ACP_UNASKED= {seen.run}   # to do without it"))
    elif not asks:
        text = f"{kind.name} does not ask before it acts, so the bridge starts no session of it."
        found.append(warning(text))
    return found


def _missing(seen: Snapshot, kind: AgentKind, text: str) -> Finding:
    """Report a missing agent: a fault when the settings count on it."""
    if seen.conf.bridge_default_agent == kind.name:
        without = f"BRIDGE_DEFAULT_AGENT= {seen.run}   # to do without it"
        text = f"{text} BRIDGE_DEFAULT_AGENT names it."
        return broken(text, *_remedies(seen, kind), without)
    return (
        warning(text, *_remedies(seen, kind))
        if kind.name in seen.conf.bridge_acp_agents
        else ok(text)
    )


def _remedies(seen: Snapshot, kind: AgentKind) -> list[str]:
    if command := kind.mend():
        return [command]
    setting = f"BRIDGE_ACP_AGENTS='{kind.name}=…' {seen.run}   # with the path of its program"
    return [setting] if kind.name in seen.conf.bridge_acp_agents else []


def _start_command(seen: Snapshot, kind: AgentKind) -> str:
    return seen.make(f'doctor ARGS="--agent {kind.name}"')


def trial(seen: Snapshot, name: str) -> Finding:
    """Start an agent and close it again; prompt only demo, which costs nothing.

    To be called on the main thread, so that Ctrl-C closes the agent.
    """
    registry.load()
    kinds = registry.KINDS
    if name not in kinds:
        text = f"There is no agent {name}; known are: {', '.join(kinds)}."
        return broken(text, f"BRIDGE_ACP_AGENTS='name=command line' {seen.run}")
    mark = f"doctor-{os.getpid()}"
    groups.reap(mark)  # from here on what is started carries this mark, and not the bridge's
    try:
        return _try(seen, kinds[name])
    finally:
        groups.reap(mark)  # whatever a driver that was too slow to close has left


def _try(seen: Snapshot, kind: AgentKind) -> Finding:
    if (reason := kind.why_not()) is not None:
        return broken(f"{kind.name} was not started: {reason}", *_remedies(seen, kind))
    seconds, prompt = (REAL_SECONDS, "") if kind.real else (DEMO_SECONDS, PROMPT)
    again, began = _start_command(seen, kind), time.monotonic()
    driver = kind.make()
    try:
        with tempfile.TemporaryDirectory(prefix="bridge-doctor-") as directory:
            asyncio.run(_run(driver, Path(directory), seconds, prompt))
    except TimeoutError:
        what = "start and answer" if prompt else "start"
        why = with_last_words(f"{kind.name} did not {what} within {seconds:g} s.", driver)
        return broken(why, again, seen.log_tail)
    except CannotStart as error:
        return broken(with_last_words(str(error), driver), *_remedies(seen, kind), again)
    except WrongAnswer as error:
        return broken(f"{kind.name} started, but {error}.", again, seen.log_tail)
    done = "answered a prompt and was closed" if prompt else "was closed, without a prompt"
    name = f"{kind.name} ({'' if kind.real else 'scripted, '}{kind.version() or 'version unknown'})"
    text = f"{name} started, {done}, in {time.monotonic() - began:.1f} s."
    if driver.asks is None:
        return warning(f"{text} It has no modes: nobody knows whether it asks before it acts.")
    return ok(text) if driver.asks else warning(f"{text} It does not ask before it acts.")


async def _run(driver: Driver, directory: Path, seconds: float, prompt: str) -> None:
    """Run a session without the bridge. Raises CannotStart, TimeoutError, WrongAnswer."""
    said = ""
    try:
        async with asyncio.timeout(seconds):
            await driver.start(Start("doctor", directory))
            if not prompt:
                return
            await driver.prompt(prompt)
            async for event in driver.events:
                match event:
                    case Chunk():
                        said += event.content
                    case TurnEnded(error="") if prompt in said:
                        return
                    case TurnEnded():
                        raise WrongAnswer(f"its turn failed: {event.error or f'it said {said!r}'}")
                    case AgentDied():
                        raise WrongAnswer(f"is gone: {event.reason}")
            raise WrongAnswer("said nothing")
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.AGENT_CLOSE_SECONDS):
                await driver.close()
