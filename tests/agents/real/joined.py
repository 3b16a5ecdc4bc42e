"""Codex at the desk: what it is set to, and the server that its terminal leaves running."""

from __future__ import annotations

import re
from dataclasses import replace

import psutil

from tests.agents.real.models import Handler, Json, Reply
from tests.agents.real.place import SECONDS, Place
from tests.agents.real.table import REAL, Real

# as it is run at the desk: the only policy that asks a person there
CODEX = ("codex", "-a", "on-request", "-s", "read-only")
OUTSIDE = re.compile(r"outside: (.*)")


class Escalating(Handler):
    """Also obeys `outside: COMMAND`, which is to run outside the sandbox, and so asks."""

    def _responses(self, body: Json) -> None:
        content = body["input"][-1].get("content") or [{}]
        found = OUTSIDE.fullmatch(str(content[-1].get("text", "")))
        if not found:
            super()._responses(body)
            return
        given = {"cmd": found[1], "sandbox_permissions": "require_escalated", "justification": "x"}
        self.stream(self._response_events(Reply(["I ", "will. "], "exec_command", given)))


def person_asked(**environment: str) -> Real:
    """Codex with a model whose tools are plain, and the person as the reviewer."""
    agent = REAL["codex"]
    written = agent.written.replace("gpt-5.5", "gpt-5.3-codex").replace("auto_review", "user")
    return replace(agent, written=written, environment=agent.environment | environment)


def of_the_desk(place: Place) -> list[psutil.Process]:
    """The desk's server of codex, and what updates it."""
    home = str(place.home.resolve())
    found = []
    for one in psutil.process_iter(["cmdline"]):
        line = " ".join(one.info["cmdline"] or ())
        if "app-server" in line and (home in line or str(place.home) in line):
            found.append(one)
    return found


def end_desk(place: Place) -> None:
    for process in of_the_desk(place):
        process.kill()
    psutil.wait_procs(of_the_desk(place), timeout=SECONDS)
