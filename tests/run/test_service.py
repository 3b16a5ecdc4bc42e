"""`upgrade` and `uninstall` of a bridge that a `systemctl` of the tests or a terminal runs."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import QuickBridge
from tests.servers import Running, wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

SYSTEMCTL = Path(__file__).with_name("systemctl").read_text()


class Machine(QuickBridge):
    """A bridge of a user with an agent's settings file and, once asked for, a systemd unit."""

    def __init__(self, directory: Path) -> None:
        self.home, self.bin = directory / "home", directory / "bin"
        self.unit = self.home / ".config/systemd/user/bridge.service"
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

    def install_unit(self) -> None:
        text = (REPOSITORY / "docs/deploy/bridge.service").read_text()
        python = f'ExecStart="{sys.executable}"'
        text = text.replace("ExecStart=%h/bridge/.venv/bin/python", python)
        own = f'[Service]\nEnvironment="BRIDGE_DATA_DIR={self.data}"\n'
        text = text.replace("%h/bridge", str(REPOSITORY)).replace("[Service]\n", own)
        self.unit.parent.mkdir(parents=True)
        self.unit.write_text(text)
        systemctl = self.bin / "systemctl"
        program = systemctl.with_suffix(".py")
        program.write_text(SYSTEMCTL)
        words = shlex.join([sys.executable, str(program)])  # which may have spaces
        systemctl.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        systemctl.chmod(0o755)

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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One that runs as a service, and has the agent's hooks; the last test uninstalls it."""
    with closing(Machine(tmp_path_factory.mktemp("served"))) as made:
        made.install_unit()
        start = [str(made.bin / "systemctl"), "--user", "start", "bridge.service"]
        subprocess.run(start, env=made.environment, check=True, timeout=30)
        wait_until(made.answers, "the service answers")
        made.manage("install_hooks", "--yes")
        assert "hooks" in json.loads(made.agent_settings.read_text())
        yield made


def test_upgrade_restarts_the_service(served: Machine) -> None:
    session_id, before = new_session(), served.service_process
    served.accept(prompt(session_id, 1))
    said = served.manage("upgrade").stdout
    assert "bridge.service runs again" in said and "make run" not in said
    after = served.service_process
    assert before is not None and after is not None and before.pid != after.pid
    assert served.answers() and served.knows(session_id)


def test_a_service_that_may_not_be_stopped_runs_on(served: Machine) -> None:
    (served.bin / "denied").touch()
    for command in (("upgrade",), ("uninstall", "--data")):
        done = served.manage(*command, check=False)
        assert done.returncode == 1
        assert "Access denied" in done.stderr
        assert "Run `systemctl --user stop bridge.service`, then this again" in done.stderr
        assert served.answers() and served.unit.exists()
    (served.bin / "denied").unlink()


def test_uninstall_takes_out_hooks_and_service_and_keeps_the_data(served: Machine) -> None:
    process = served.service_process
    said = served.manage("uninstall").stdout
    assert served.agent_settings.read_text() == '{"model": "opus"}\n', "as it was before"
    assert not served.unit.exists()
    asked = (served.bin / "asked").read_text()
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
    for words in ([], ["--data"]):
        machine.start()
        mine.write_text("not the bridge's")
        (machine.data / "before-restore-20260101T000000Z-abc").mkdir(exist_ok=True)
        said = machine.manage("uninstall", *words).stdout
        assert machine.ended() == 0
        assert database.exists() is (not words)
        assert ("make uninstall ARGS=--data" in said) is (not words)
    assert f"{machine.data} is removed, but for what is not the bridge's" in said
    assert list(machine.data.iterdir()) == [mine]


def test_a_data_directory_that_holds_more_is_refused(machine: Machine) -> None:
    machine.settings["BRIDGE_DATA_DIR"] = str(machine.home)
    done = machine.manage("uninstall", "--data", check=False)
    assert done.returncode == 1 and "holds more than the bridge's data" in done.stderr
    assert machine.agent_settings.exists()
