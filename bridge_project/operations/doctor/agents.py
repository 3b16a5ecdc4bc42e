"""Which agents can start here, as which version, and why one cannot; demo is really started,
another only when asked for (D41, D43).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, Final, TypeVar

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf
from bridge_project.operations.doctor.bridge import log_tail, run
from bridge_project.operations.doctor.findings import Finding, broken, ok, read_secret, warning
from bridge_project.operations.doctor.snapshot import Look, fetch
from bridge_project.operations.startup import make_command
from sessions_app.agents import listing as registry
from sessions_app.agents import registry as agent_registry
from sessions_app.agents.driver import AgentDied, CannotStart, Chunk, Driver, Start, TurnEnded
from sessions_app.agents.process import groups
from sessions_app.agents.registry import Kind

NAME: Final = "agents"
INFO: Final = "/api/v1/info"
PROMPT: Final = "doctor"  # the demo repeats it
DEMO_SECONDS: Final = 4.0  # it needs a tenth of one
ASK_SECONDS: Final = 3.0  # for the versions, and the bridge's own word, asked meanwhile
REAL_SECONDS: Final = limits.AGENT_START_SECONDS  # as long as the bridge itself waits for it

T = TypeVar("T")
Bridges = dict[str, dict[str, Any]]


class Mute(Exception):
    """The agent did not answer as it should have."""


def agents(seen: Look) -> list[Finding]:
    """One finding for each agent; the demo is talked to in a temporary directory."""
    agent_registry.load()
    kinds = agent_registry.kinds()
    until = time.monotonic() + ASK_SECONDS
    pool = ThreadPoolExecutor(len(kinds) + 1, thread_name_prefix="doctor")
    asked = {kind.name: pool.submit(kind.version) for kind in kinds}
    told = pool.submit(_bridges_word, seen)
    demo = [_tried(seen.conf, kind, DEMO_SECONDS, PROMPT) for kind in kinds if not kind.real]
    pool.shutdown(wait=False)
    versions = {name: _version(version, until) for name, version in asked.items()}
    bridges = _known(told, until, {})
    real = [kind for kind in kinds if kind.real]
    found = [_of(seen.conf, kind, versions[kind.name], bridges) for kind in real]
    unasked = [
        line
        for kind in real
        if kind.why_not() is None
        for line in _unasked(seen.conf, kind, _asks(kind, bridges))
    ]
    return [*demo, *found, *unasked, *_default(seen.conf)]


def _version(future: Future[str], until: float) -> str:
    try:
        return _known(future, until, "")
    except Exception as error:  # noqa: BLE001 - whatever an agent's installation has wrong with it is told, as of this agent only
        return f"version unknown: {error.__class__.__name__}: {error}"


def _known(future: Future[T], until: float, unknown: T) -> T:
    """What was found out until then."""
    try:
        return future.result(max(0.0, until - time.monotonic()))
    except FutureTimeoutError:
        return unknown


def _bridges_word(seen: Look) -> Bridges:
    """Agent → what the running bridge says of it, which may have another PATH than this terminal;
    nothing when it does not say.
    """
    if seen.health is None or seen.recorded is None:
        return {}
    try:
        body = fetch(
            seen.local_url, INFO, token=read_secret(seen.conf, "admin_token"), pin=seen.recorded.pin
        ).body
    except OSError:
        return {}  # the check of the bridge says it
    return {one["name"]: one for one in body.get("agents", [])}


def _of(conf: Conf, kind: Kind, version: str, bridges: Bridges) -> Finding:
    """A real agent, which is not started."""
    name = _named(kind, version)
    if (reason := kind.why_not()) is not None:
        return _missing(conf, kind, f"{kind.name} cannot start here: {reason}")
    if bridges and not bridges.get(kind.name, {}).get("can_start"):
        why = bridges.get(kind.name, {}).get("reason", "it does not know the agent.")
        text = f"{name} can be started from this terminal, but not by the bridge that runs: {why}"
        return warning(
            NAME,
            text,
            f"{run(conf)}   # from here, after the running one was stopped; a service needs the same PATH",
        )
    return ok(NAME, f"{name} is there. It was not started; {_trial(conf, kind)} does that.")


def _asks(kind: Kind, bridges: Bridges) -> bool | None:
    """Whether it asks before it acts; the running bridge knows it of one that it has started."""
    told: bool | None = bridges.get(kind.name, {}).get("asks")
    return kind.asks() if told is None else told


def _unasked(conf: Conf, kind: Kind, asks: bool | None) -> list[Finding]:
    """A line for an agent that may act without asking (D59)."""
    if asks is None:
        return [
            warning(
                NAME,
                f"{kind.name} may act without asking: nobody knows whether it asks.",
                f"{_trial(conf, kind)}   # finds out what its modes say",
            )
        ]
    if asks is False:
        if kind.name not in conf.bridge_acp_unasked:
            return [
                warning(
                    NAME,
                    f"{kind.name} does not ask before it acts, so the bridge starts no session of it.",
                )
            ]
        text = (
            f"{kind.name} does not ask before it acts: BRIDGE_ACP_UNASKED lets it run all the same."
        )
        return [warning(NAME, text, f"BRIDGE_ACP_UNASKED= {run(conf)}   # to do without it")]
    return []


def _missing(conf: Conf, kind: Kind, text: str) -> Finding:
    """It is broken when new sessions depend on it, and nothing to speak of when nobody asked for
    it.
    """
    if conf.bridge_default_agent == kind.name:
        return broken(
            NAME,
            f"{text} BRIDGE_DEFAULT_AGENT names it.",
            *_mend(conf, kind),
            f"BRIDGE_DEFAULT_AGENT= {run(conf)}   # to do without it",
        )
    if kind.name in conf.acp_agents:
        return warning(NAME, text, *_mend(conf, kind))
    return ok(NAME, text)


def _mend(conf: Conf, kind: Kind) -> tuple[str, ...]:
    if command := kind.mend():
        return (command,)
    if kind.name in conf.acp_agents:
        return (
            f"BRIDGE_ACP_AGENTS='{kind.name}=…' {run(conf)}   # with the path of its program, or after that was installed",
        )
    return ()


def _default(conf: Conf) -> list[Finding]:
    """A default that nobody knows; one that cannot start has been told of."""
    name = conf.bridge_default_agent
    if not name or name in {kind.name for kind in agent_registry.kinds()}:
        return []
    return [
        broken(
            NAME,
            f"BRIDGE_DEFAULT_AGENT: {registry.unavailable(name).message}",
            f"BRIDGE_DEFAULT_AGENT= {run(conf)}",
        )
    ]


def _named(kind: Kind, version: str) -> str:
    return f"{kind.name} ({'' if kind.real else 'scripted, '}{version or 'version unknown'})"


def _trial(conf: Conf, kind: Kind) -> str:
    return make_command(conf, f'doctor ARGS="--agent {kind.name}"')


# -- starting one ----------------------------------------------------------------------------------


def trial(conf: Conf, name: str) -> Finding:
    """Start an agent and close it again; only demo, which costs nothing, is prompted.

    To be called on the main thread, so that Ctrl-C closes the agent.
    """
    agent_registry.load()
    kind = next((kind for kind in agent_registry.kinds() if kind.name == name), None)
    if kind is None:
        known = ", ".join(kind.name for kind in agent_registry.kinds())
        return broken(
            NAME,
            f"There is no agent {name}; known are: {known}.",
            f"BRIDGE_ACP_AGENTS='name=command line' {run(conf)}",
        )
    if not kind.real:
        return _tried(conf, kind, DEMO_SECONDS, PROMPT)
    mark = f"doctor-{os.getpid()}"
    groups.reap(mark)  # from here on what is started carries this mark, and not the bridge's
    try:
        return _tried(conf, kind, REAL_SECONDS)
    finally:
        groups.reap(mark)  # whatever a driver that was too slow to close has left


def _tried(conf: Conf, kind: Kind, seconds: float, prompt: str = "") -> Finding:
    if (reason := kind.why_not()) is not None:
        return broken(NAME, f"{kind.name} was not started: {reason}", *_mend(conf, kind))
    again = (_trial(conf, kind), log_tail(conf))
    began = time.monotonic()
    driver = kind.make()
    try:
        with tempfile.TemporaryDirectory(prefix="bridge-doctor-") as directory:
            asyncio.run(_live(driver, Path(directory), seconds, prompt))
    except TimeoutError:
        return broken(
            NAME,
            f"{kind.name} did not {'start and answer' if prompt else 'start'} within {seconds:g} s.",
            *again,
        )
    except CannotStart as error:
        return broken(NAME, str(error), *_mend(conf, kind), again[0])
    except Mute as error:
        return broken(NAME, f"{kind.name} started, but {error}.", *again)
    done = (
        "started, answered a prompt and was closed"
        if prompt
        else "started and was closed, without a prompt, in an empty directory: it"
    )
    took = f"{time.monotonic() - began:.1f} s"
    text = f"{_named(kind, kind.version())} {done} {'in' if prompt else 'took'} {took}."
    if driver.asks is True:
        return ok(NAME, text)
    return warning(
        NAME,
        f"{text} {'It does not ask before it acts.' if driver.asks is False else 'It has no modes: nobody knows whether it asks before it acts.'}",
    )


async def _live(driver: Driver, directory: Path, seconds: float, prompt: str) -> None:
    """The life of a session without the bridge. Raises CannotStart, TimeoutError, Mute."""
    try:
        async with asyncio.timeout(seconds):
            await driver.start(Start("doctor", directory))
            if prompt:
                await driver.prompt(prompt)
                await _answered(driver, prompt)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.AGENT_CLOSE_SECONDS):
                await driver.close()


async def _answered(driver: Driver, prompt: str) -> None:
    said = ""
    async for event in driver.events():
        match event:
            case Chunk():
                said += event.content
            case TurnEnded() if event.error or prompt not in said:
                raise Mute(
                    f"its turn failed: {event.error}"
                    if event.error
                    else "its answer was another than expected"
                )
            case TurnEnded():
                return
            case AgentDied():
                raise Mute(f"is gone: {event.reason}")
    raise Mute("said nothing")
