"""`doctor` against a real bridge: a healthy one, then one fault at a time, each named with the
command that mends it (D43).
"""

import json
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel.config import Conf
from bridge_project.network import certificates, server_address
from bridge_project.operations.doctor import bridge as parts
from bridge_project.operations.doctor import machine
from bridge_project.operations.doctor.findings import Level
from bridge_project.operations.doctor.snapshot import Snapshot, take
from hooks_app.producer.forwarder import Forwarder
from hooks_app.producer.https_sender import HttpsSender, HttpsTransport
from hooks_app.producer.install import install
from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge
from tests.hooks.conftest import put, waiting
from tests.run.findings import doctor, only
from tests.servers import free_port

LONGEST_SECONDS = 60.0  # about 15, says D43's issue, on a machine that has nothing else to do


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """A bridge that runs for all tests here, behind a trusted proxy, with its hooks in an agent's
    settings file.
    """
    directory = tmp_path_factory.mktemp("doctor")
    agent = directory / "agent"
    behind = {"BRIDGE_PLAIN_PORT": str(free_port()), "BRIDGE_TRUSTED_PROXIES": "127.0.0.1"}
    agent.mkdir()
    own = QuickBridge(directory, BRIDGE_MAX_WEBSOCKETS="1", CLAUDE_CONFIG_DIR=str(agent), **behind)
    (agent / "settings.json").write_text(install("{}\n", str(own.data / "spool")))
    with own:
        yield own


def conf_of(bridge: Bridge, **more: Any) -> Conf:
    given = {name.lower(): value for name, value in bridge.settings.items()}
    known = {name: value for name, value in given.items() if name in Conf.model_fields}
    return Conf(**known | more)


def run_doctor(bridge: Bridge, *, expected: int, **environment: str) -> dict[str, dict[str, Any]]:
    """The whole command; check → what it says, the first where there are several. The time and the
    silence about tokens hold always.
    """
    began = time.monotonic()
    done = doctor(bridge, **environment)
    assert time.monotonic() - began < LONGEST_SECONDS
    assert done.returncode == expected, done.stdout
    given = environment.get("BRIDGE_HOOK_TOKEN", bridge.hook_token)
    for secret in (given, bridge.hook_token, bridge.admin_token, "bridge_device_"):
        assert secret not in done.stdout
    told = json.loads(done.stdout)
    levels = {one["level"] for one in told["checks"]}
    assert told["status"] == next(one for one in ("broken", "warning", "ok") if one in levels)
    return {one["check"]: one for one in reversed(told["checks"])}


def says(one: dict[str, Any], level: str, *words: str, mend: str = "") -> None:
    """This is what a check found, and the first command that it gives has this."""
    assert one["level"] == level, one
    assert [word for word in words if word not in one["text"]] == [], one
    assert mend in "".join(one["mend"][:1]), one


# -- the whole command -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def healthy(bridge: Bridge) -> subprocess.CompletedProcess[str]:
    """Its run while nothing is broken, a process as a user starts it."""
    done = Bridge.run(bridge, ["manage.py", "doctor"])
    assert done.returncode == 0, done
    return done


def test_healthy(bridge: Bridge, healthy: subprocess.CompletedProcess[str]) -> None:
    said = healthy.stdout
    lines = said.splitlines()
    marks = {line[2:15].strip(): line[0] for line in lines if line[:1] in "✓!✗" and line}
    good = {"bridge", "tokens", "certificate", "clock", "database", "disk", "files"}
    good |= {"spool", "hooks", "agents", "event"}
    assert {name: marks.get(name) for name in good} == dict.fromkeys(good, "✓"), said
    # this one listens on 127.0.0.1
    assert marks["address"] == "!" and "no phone can reach it" in said
    address = next(number for number, line in enumerate(lines) if line.startswith("! address"))
    assert "BRIDGE_HOST=auto" in lines[address + 1]
    assert marks["proxy"] == "!" and "pairing codes lead past the proxy" in said
    assert "whole way" in said and lines[-1] == "0 broken, 2 to look at."
    assert bridge.hook_token not in said and bridge.admin_token not in said


def test_it_leaves_nothing_behind(
    bridge: Bridge, healthy: subprocess.CompletedProcess[str]
) -> None:
    assert "whole way" in healthy.stdout
    assert "doctor" not in bridge.manage("list_devices").stdout
    (last,) = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    assert last["title"] == "doctor" and last["status"] == "closed"
    with closing(sqlite3.connect(bridge.data / "bridge.sqlite3")) as database:
        rows = [row[0] for row in database.execute("SELECT frame FROM sessions_app_logrow")]
        done = database.execute("SELECT action FROM devices_app_auditentry ORDER BY id").fetchall()
    assert rows and not [row for row in rows if "New device" in row], "nobody is alarmed"
    assert done[:2] == [("pairing",), ("revoke",)], "and what was done is on record"
    assert "whole way" in run_doctor(bridge, expected=0)["event"]["text"]
    (next_,) = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    assert next_["id"] != last["id"], "the list does not grow"
    assert waiting(bridge.data / "spool") == []
    # neither error nor Error: a device that goes while its socket closes hurts nobody
    assert "rror" not in bridge.tail()


def test_another_token_than_the_bridge_has(bridge: Bridge) -> None:
    other = "another-hook-token-of-32-characters-or-more"
    told = run_doctor(bridge, expected=1, BRIDGE_HOOK_TOKEN=other)
    says(told["tokens"], "broken", "hook token", mend="BRIDGE_HOOK_TOKEN")
    assert "make run" in told["tokens"]["mend"][0]
    assert told["event"]["level"] == "ok"  # the forwarder has the bridge's own


def test_all_sockets_are_taken(bridge: Bridge) -> None:
    with bridge.phones(1):
        told = run_doctor(bridge, expected=0)
    says(told["event"], "warning", "no device could be tried", mend="BRIDGE_MAX_WEBSOCKETS=2")


def test_a_forwarder_of_another_machine_that_is_behind(bridge: Bridge, tmp_path: Path) -> None:
    """It says so with what it sends; the file of its oldest event is five minutes old (D47)."""
    spool, token = tmp_path / "spool", tmp_path / "token"
    spool.mkdir()
    put(spool, "1", time.time() - 300)
    token.write_text(bridge.hook_token)
    url = f"https://127.0.0.1:{bridge.port}"
    transport = HttpsTransport(url, token, bridge.pairing().pin)
    assert Forwarder(spool, HttpsSender(transport)).run_once() == 1
    told = run_doctor(bridge, expected=0)
    says(told["forwarders"], "warning", "127.0.0.1 is 30")
    info = bridge.get("/api/v1/info", bridge.hook_token).json()
    assert "forwarders" not in info  # whose addresses those are is the owner's business


def test_a_locked_database(bridge: Bridge) -> None:
    with closing(sqlite3.connect(bridge.data / "bridge.sqlite3", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        told = run_doctor(bridge, expected=1)
        holder.execute("ROLLBACK")
    says(told["database"], "broken", "locked", mend="fuser")
    assert "event" not in told


def test_a_bridge_that_hangs(bridge: Bridge) -> None:
    assert bridge.process is not None
    bridge.process.send_signal(signal.SIGSTOP)
    try:
        told = run_doctor(bridge, expected=1)
    finally:
        bridge.process.send_signal(signal.SIGCONT)
    pid = bridge.process.pid
    says(told["bridge"], "broken", f"Process {pid} holds", mend=f"kill {pid}")


# -- one part at a time, beside the running bridge -------------------------------------------------


@pytest.fixture
def copied(bridge: Bridge, tmp_path: Path) -> Conf:
    """The running bridge, seen with another data directory: it keeps its own files right."""
    data = tmp_path / "data"
    shutil.copytree(bridge.data / "tls", data / "tls")
    shutil.copyfile(bridge.data / "server.json", data / "server.json")
    return conf_of(bridge, bridge_data_dir=data)


def test_certificate_replaced(copied: Conf, tmp_path: Path) -> None:
    other = certificates.load_or_renew(Conf(bridge_data_dir=tmp_path, bridge_host="127.0.0.1"))
    directory = copied.bridge_data_dir / "tls"
    shutil.copyfile(other.chain, directory / "server.crt")
    half = ("is not the key of",)
    only(parts.certificate(take(copied)), Level.BROKEN, *half, mend=("make run",))
    shutil.copyfile(other.key, directory / "server.key")
    whole = ("another key than the one that devices were paired with",)
    only(parts.certificate(take(copied)), Level.BROKEN, *whole, mend=("make run", "make qr"))


def test_something_else_answers(copied: Conf) -> None:
    recorded = server_address.recorded(copied)
    assert recorded is not None
    server_address.record(copied, replace(recorded, pin="ab" * 32))
    seen = take(copied)
    assert seen.health is None and not seen.statuses
    only(parts.running(seen), Level.BROKEN, "no token was sent")


def test_the_plain_port_and_its_proxy(bridge: Bridge) -> None:
    seen = take(conf_of(bridge))
    nobody = replace(seen, conf=conf_of(bridge, bridge_trusted_proxies=""))
    mend: tuple[str, ...] = ("BRIDGE_TRUSTED_PROXIES=127.0.0.1",)
    only(parts.proxy(nobody), Level.BROKEN, "no proxy is trusted", mend=mend)
    port, mend = seen.conf.bridge_plain_port, ("proxy_set_header X-Forwarded-Proto",)
    # what the public address shows when the proxy there does not vouch for https
    silent = parts.reach(seen, f"http://127.0.0.1:{port}", "")
    only(silent, Level.BROKEN, "does not send", mend=mend)


def test_hooks(bridge: Bridge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen, spool, file = (
        Snapshot(conf_of(bridge)),
        str(bridge.data / "spool"),
        tmp_path / "settings.json",
    )
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    whole = json.loads(install("{}", spool))
    del whole["hooks"]["Stop"]
    only(machine.hooks(seen), Level.WARNING, "No agent reports", mend=("make hooks",))
    for text, words in (
        (install("{}", "/elsewhere/spool"), "another data directory"),
        (json.dumps(whole), "not all there"),
    ):
        file.write_text(text)
        only(machine.hooks(seen), Level.WARNING, words, mend=("make hooks",))
    file.write_text(install('{"disableAllHooks": true}', spool))
    only(machine.hooks(seen), Level.BROKEN, "disableAllHooks")
    file.write_text("{not JSON")
    only(machine.hooks(seen), Level.BROKEN, mend=(str(file),))


# -- the end: the bridge is stopped ----------------------------------------------------------------


def test_stopped(bridge: Bridge) -> None:
    bridge.stop()
    told = run_doctor(bridge, expected=1)
    says(told["bridge"], "broken", "does not run", "nothing listens there", mend="make run")
    says(told["event"], "warning", "No event was sent")
    assert {told[name]["level"] for name in ("database", "certificate", "hooks")} == {"ok"}


def test_no_data_directory(bridge: Bridge, tmp_path: Path) -> None:
    told = run_doctor(bridge, expected=1, BRIDGE_DATA_DIR=str(tmp_path / "new"))
    says(told["bridge"], "broken", "never started", mend="make run")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700 and told["files"]["level"] == "ok"
