"""`upgrade` and `uninstall` of a bridge that a terminal runs, or a manager of the tests."""

import json
import os
import plistlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.conformance.agents import begin
from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import QuickBridge
from tests.run.terminal import Program
from tests.servers import Running, wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

JOB = plistlib.loads((REPOSITORY / "docs/deploy/agent-bridge.plist").read_bytes())


class Machine(QuickBridge):
    """A bridge of a user with an agent's settings file and, once asked for, a service.

    ``manager``: systemctl or launchctl, as it is called; the tests have programs of these names.
    """

    def __init__(self, directory: Path, manager: str = "") -> None:
        self.home, self.bin, self.manager = directory / "home", directory / "bin", manager
        user, job = ".config/systemd/user/bridge.service", "Library/LaunchAgents/agent-bridge.plist"
        self.unit = self.home / (job if manager == "launchctl" else user)
        super().__init__(directory)
        for made in (self.home / ".claude", self.bin):
            made.mkdir(parents=True)
        self.agent_settings = self.home / ".claude/settings.json"
        self.agent_settings.write_text('{"model": "opus"}\n')

    @property
    def environment(self) -> dict[str, str]:
        mine = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config")}
        mine |= {"PATH": f"{self.bin}:{os.environ['PATH']}", "CLONE": str(REPOSITORY)}
        without = {k: v for k, v in super().environment.items() if k != "CLAUDE_CONFIG_DIR"}
        return without | mine

    @property
    def unit_text(self) -> str:
        """The file of docs/deploy, for this checkout and this data directory."""
        if self.manager == "launchctl":
            command = [sys.executable, "manage.py", "serve", "--keep-agents"]
            start = {"ProgramArguments": command, "WorkingDirectory": str(REPOSITORY)}
            own = {"EnvironmentVariables": {"BRIDGE_DATA_DIR": str(self.data)}}
            return plistlib.dumps(JOB | start | own).decode()
        text = (REPOSITORY / "docs/deploy/bridge.service").read_text()
        python = f'ExecStart="{sys.executable}"'
        text = text.replace("ExecStart=%h/bridge/.venv/bin/python", python)
        setting = f'[Service]\nEnvironment="BRIDGE_DATA_DIR={self.data}"\n'
        return text.replace("%h/bridge", str(REPOSITORY)).replace("[Service]\n", setting)

    def start_service(self) -> None:
        self.unit.parent.mkdir(parents=True)
        self.unit.write_text(self.unit_text)
        program = Path(__file__).with_name(self.manager)
        words = shlex.join([sys.executable, str(program)])  # which may have spaces
        called = self.bin / self.manager
        called.write_text(f'#!/bin/sh\nPLACE={shlex.quote(str(self.bin))} exec {words} "$@"\n')
        called.chmod(0o755)
        user = ["--user", "start", self.unit.name]
        job = ["bootstrap", f"gui/{os.getuid()}", str(self.unit)]
        start = job if self.manager == "launchctl" else user
        subprocess.run([str(called), *start], env=self.environment, check=True, timeout=30)
        wait_until(self.answers, "the service answers")

    @property
    def service_process(self) -> psutil.Process | None:
        file = self.bin / "pid"
        return psutil.Process(int(file.read_text())) if file.exists() else None

    def popen(self, arguments: list[str], log: IO[bytes]) -> Running:
        """As a user starts it: `upgrade` and `uninstall` look at what they stop."""
        return Bridge.popen(self, arguments, log)

    def close(self) -> None:
        if (process := self.service_process) is not None:
            process.kill()
        self.__exit__()

    def answers(self) -> bool:
        try:
            return self.get("/api/v1/health", self.hook_token).status == 200
        except OSError:
            return False


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with closing(Machine(tmp_path)) as made:
        yield made


@pytest.fixture(scope="module", params=["systemctl", "launchctl"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """One that runs as a service, and has the agent's hooks; the last test uninstalls it."""
    with closing(Machine(tmp_path_factory.mktemp("served"), request.param)) as made:
        made.start_service()
        made.manage("install_hooks", "--yes")
        assert "hooks" in json.loads(made.agent_settings.read_text())
        yield made


def test_upgrade_restarts_the_service(served: Machine) -> None:
    session_id, before = new_session(), served.service_process
    served.accept(prompt(session_id, 1))
    said = served.manage("upgrade").stdout
    name = {"systemctl": "bridge.service", "launchctl": "agent-bridge"}[served.manager]
    assert f"{name} runs again" in said and "make run" not in said
    after = served.service_process
    assert before is not None and after is not None and before.pid != after.pid
    assert served.answers() and served.knows(session_id)


def test_a_service_that_may_not_be_stopped_runs_on(served: Machine) -> None:
    (served.bin / "denied").touch()
    for command in (("upgrade",), ("uninstall", "--data", "--yes")):
        done = served.manage(*command, check=False)
        assert done.returncode == 1
        assert "Access denied" in done.stderr
        stop = {
            "systemctl": "systemctl --user stop bridge.service",
            "launchctl": f"launchctl bootout gui/{os.getuid()}/agent-bridge",
        }[served.manager]
        assert f"Run `{stop}`, then this again" in done.stderr
        assert served.answers() and served.unit.exists()
    (served.bin / "denied").unlink()


def test_uninstall_takes_out_hooks_and_service_and_keeps_the_data(served: Machine) -> None:
    process = served.service_process
    with served.phones(1) as (phone,):
        begin(served, phone)
    said = served.manage("uninstall").stdout
    (host,) = served.hosts()
    host.kill()
    assert "The running bridge is stopped." in said
    assert f"that run: 1 (processes {host.pid}). They wait for a bridge, and end" in said
    assert served.agent_settings.read_text() == '{"model": "opus"}\n', "as it was before"
    assert not served.unit.exists()
    asked = (served.bin / "asked").read_text()
    if served.manager == "systemctl":
        assert "disable --now bridge.service" in asked and "daemon-reload" in asked
    assert process is not None
    process.wait(30)
    assert f"The data is kept: {served.data}" in said and "rm -rf" in said
    left = [*(served.data / "spool").glob("*.sh")]
    assert left == [], "one left elsewhere writes nothing"
    assert (served.data / "bridge.sqlite3").exists()
    assert "phone" in served.manage("mint_pairing_qr", "--name", "phone", "--format", "json").stdout


def test_uninstall_never_removes_data_unasked(machine: Machine) -> None:
    """And when asked, all of it but what is not the bridge's."""
    mine, database = machine.data / "mine.txt", machine.data / "bridge.sqlite3"
    for words in ([], ["--data"], ["--data", "--yes"]):
        if words == ["--data"]:  # nobody can be asked, and what was done can be undone so far
            refused = machine.manage("uninstall", *words, check=False)
            assert refused.returncode == 1 and "Nothing was done." in refused.stderr
            continue
        machine.start()
        mine.write_text("not the bridge's")
        (machine.data / "before-restore-20260101T000000Z-abc").mkdir(exist_ok=True)
        said = machine.manage("uninstall", *words).stdout
        assert machine.ended() == 0
        assert database.exists() is (not words)
        assert ("make uninstall ARGS=--data" in said) is (not words)
    assert f"{machine.data} is removed, but for what is not the bridge's" in said
    assert list(machine.data.iterdir()) == [mine]


def test_an_answer_that_is_not_given_removes_nothing(machine: Machine) -> None:
    """Ctrl-D at the question."""
    machine.start()
    with Program(machine.environment, "uninstall", "--data", terminal=True) as program:
        program.until("devices and backups too? [y/N]")
        program.end_of_input()
        assert program.ended() == 1 and "Nothing was done." in program.shown
        assert "Traceback" not in program.shown
    assert machine.answers()


def test_a_data_directory_that_holds_more_is_refused(machine: Machine) -> None:
    machine.settings["BRIDGE_DATA_DIR"] = str(machine.home)
    done = machine.manage("uninstall", "--data", check=False)
    assert done.returncode == 1 and "holds more than the bridge's data" in done.stderr
    assert machine.agent_settings.exists()
