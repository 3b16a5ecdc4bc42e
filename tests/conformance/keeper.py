"""An agent that lists its past sessions itself, and its program at the desk (D67)."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conformance.agent_tools import PROGRAM, quick_bridge
from tests.faults.quick import QuickBridge

Session = dict[str, Any]


class Keeper:
    """An agent with a program of its own, which lists what the test says that it has kept."""

    def __init__(self, directory: Path) -> None:
        self.name = f"keeper-{uuid.uuid4().hex}"  # no other program of this machine has it
        self.program = directory / self.name
        run = f"import runpy; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
        self.program.write_text(f"#!{sys.executable} -IS\n{run}\n")
        self.program.chmod(0o755)
        self.journal = directory / "journal"
        self.keep()

    def bridge(
        self, directory: Path, row: dict[str, Any] | None = None, /, **settings: Any
    ) -> AbstractContextManager[QuickBridge]:
        """A bridge that has it; ``row``: more of its recipe."""
        settings = {"BRIDGE_ACP_AGENTS": self._setting} | settings
        return quick_bridge(directory, first=self._recipe(**row or {}), **settings)

    def _recipe(self, **more: Any) -> str:
        about = {"modes": ("asks",), "log_in": self.name, "unshown": True}
        about |= {"programs": frozenset({self.name, "scripted"}), "resume": "keeper -s {id}"}
        row = f"recipes.Recipe(**{about | more!r})"
        code = f"from sessions_app.agents.acp import recipes\nrecipes.RECIPES += ({row},)\n"
        to_hosts = f"client._FORKER.replace('; main()', {f'; exec({code!r}); main()'!r})"
        return f"{code}from sessions_app.agents.host import client\nclient._FORKER = {to_hosts}\n"

    def processes(self) -> list[int]:
        """Those that execute its program."""
        found = psutil.process_iter(["cmdline"])
        return [one.pid for one in found if str(self.program) in (one.info["cmdline"] or ())]

    @property
    def _setting(self) -> str:
        return f"{self.name}={self.program} lists {self.journal}"

    def keep(self, *sessions: Session, **how: Any) -> None:
        Path(f"{self.journal}-list").write_text(json.dumps({"sessions": sessions, **how}))

    def say(self, own: str, *said: str) -> None:
        """What was said in a session before, which the agent tells when it loads it."""
        lines = ({"what": "prompt", "session": own, "text": text} for text in said)
        with self.journal.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def heard(self, what: str) -> list[dict[str, Any]]:
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line for line in map(json.loads, lines) if line["what"] == what]

    def sit_down(self) -> subprocess.Popen[bytes]:
        """Its program at the desk, which sits there until its input ends."""
        command = [str(self.program), "terminal", str(self.journal)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def kept(where: Path | str, title: str | None = "Fix it", age: int = 0, **more: Any) -> Session:
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age))
    about = {"sessionId": f"ses_{uuid.uuid4().hex}", "cwd": str(where), "title": title}
    return about | {"updatedAt": then} | more


def keeper_of_module() -> object:
    """A fixture of a module, `keeper`."""

    @pytest.fixture(scope="module")
    def keeper(tmp_path_factory: pytest.TempPathFactory) -> Keeper:
        return Keeper(tmp_path_factory.mktemp("keeper"))

    return keeper


def bridge_of_keeper(**settings: Any) -> object:
    """A fixture of a module, `bridge`: one that has the agent of fixture `keeper`."""

    @pytest.fixture(scope="module")
    def bridge(keeper: Keeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickBridge]:
        with keeper.bridge(tmp_path_factory.mktemp("bridge"), **settings) as bridge:
            yield bridge

    return bridge
