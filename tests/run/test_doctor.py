"""`doctor` against a real bridge: a healthy one, then one fault at a time, each named with the
command that mends it (D43).
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from bridge_project.kernel.config import Conf
from bridge_project.network import certificates, server_address
from bridge_project.operations.doctor import bridge as parts
from bridge_project.operations.doctor import machine
from bridge_project.operations.doctor.findings import Level
from bridge_project.operations.doctor.snapshot import Snapshot, take
from hooks_app.producer.forwarder import Forwarder
from hooks_app.producer.https import HttpsTransport
from hooks_app.producer.https_sender import HttpsSender
from hooks_app.producer.install import install
from hooks_app.producer.spool import RESERVED
from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge, nursery
from tests.hooks.conftest import put
from tests.run.findings import mended_by, only
from tests.servers import free_port

LONGEST_SECONDS = 60.0  # about 15, says D43's issue, on a machine that has nothing else to do


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """A bridge that runs for all tests here, behind a trusted proxy, with its hooks in an agent's
    settings file.
    """
    directory = tmp_path_factory.mktemp("doctor")
    agent = directory / "agent"
    own = QuickBridge(
        directory,
        BRIDGE_PLAIN_PORT=str(free_port()),
        BRIDGE_TRUSTED_PROXIES="127.0.0.1",
        BRIDGE_MAX_WEBSOCKETS="1",
        CLAUDE_CONFIG_DIR=str(agent),
    )
    agent.mkdir()
    (agent / "settings.json").write_text(install("{}\n", str(own.data / "spool")))
    own.start()
    yield own
    if own.process is not None and own.process.poll() is None:
        own.stop()
    nursery.forget(own.environment)


def conf_of(bridge: Bridge, **more: Any) -> Conf:
    given: dict[str, Any] = {
        "bridge_data_dir": bridge.data,
        "bridge_host": "127.0.0.1",
        "bridge_port": bridge.port,
        "bridge_hook_token": bridge.hook_token,
        "bridge_admin_token": bridge.admin_token,
        "bridge_plain_port": int(bridge.settings["BRIDGE_PLAIN_PORT"]),
        "bridge_trusted_proxies": "127.0.0.1",
    }
    return Conf(**given | more)


def run_doctor(bridge: Bridge, *, expected: int, **environment: str) -> dict[str, dict[str, Any]]:
    """The whole command; check → what it says, the first where there are several. The time and the
    silence about tokens hold always.
    """
    before = dict(bridge.settings)
    bridge.settings |= environment
    began = time.monotonic()
    try:
        done = bridge.manage("doctor", "--json", check=False)
    finally:
        if environment:
            nursery.forget(bridge.environment)
        bridge.settings = before
    assert time.monotonic() - began < LONGEST_SECONDS
    assert done.stderr == ""
    assert done.returncode == expected, done.stdout
    for secret in (
        bridge.hook_token,
        bridge.admin_token,
        environment.get("BRIDGE_HOOK_TOKEN", "bridge_hook_"),
        "bridge_device_",
    ):
        assert secret not in done.stdout
    told = json.loads(done.stdout)
    assert told["status"] == ("broken" if expected else worst_of(told["checks"]))
    return {one["check"]: one for one in reversed(told["checks"])}


def worst_of(told: list[dict[str, Any]]) -> str:
    return "warning" if any(one["level"] == "warning" for one in told) else "ok"


# -- the whole command -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def healthy(bridge: Bridge) -> subprocess.CompletedProcess[str]:
    """Its run while nothing is broken, a process as a user starts it."""
    done = Bridge.run(bridge, ["manage.py", "doctor"])
    assert done.returncode == 0, done
    return done


def test_healthy(bridge: Bridge, healthy: subprocess.CompletedProcess[str]) -> None:
    done = healthy
    lines = done.stdout.splitlines()
    marks = {line[2:15].strip(): line[0] for line in lines if line[:1] in "✓!✗" and line}
    good = (
        "bridge",
        "tokens",
        "certificate",
        "clock",
        "database",
        "disk",
        "files",
        "file limit",
        "spool",
        "hooks",
        "agents",
        "event",
    )
    assert {name: marks.get(name) for name in good} == dict.fromkeys(good, "✓"), done.stdout
    # this one listens on 127.0.0.1
    assert marks["address"] == "!" and "no phone can reach it" in done.stdout
    assert (
        "BRIDGE_HOST=auto"
        in lines[next(i for i, line in enumerate(lines) if line.startswith("! address")) + 1]
    )
    assert marks["proxy"] == "!" and "pairing codes lead past the proxy" in done.stdout
    assert "whole way" in done.stdout and lines[-1] == "0 broken, 2 to look at."
    assert bridge.hook_token not in done.stdout and bridge.admin_token not in done.stdout


def test_it_leaves_nothing_behind(
    bridge: Bridge, healthy: subprocess.CompletedProcess[str]
) -> None:
    assert "whole way" in healthy.stdout
    assert "doctor" not in bridge.manage("list_devices").stdout
    sessions = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    (last,) = sessions
    assert last["title"] == "doctor" and last["status"] == "closed"
    with closing(sqlite3.connect(bridge.data / "bridge.sqlite3")) as database:
        rows = [row[0] for row in database.execute("SELECT frame FROM sessions_app_logrow")]
        done = database.execute("SELECT action FROM devices_app_auditentry ORDER BY id").fetchall()
    assert rows and not [row for row in rows if "New device" in row], "nobody is alarmed"
    assert done[:2] == [("pairing",), ("revoke",)], "and what was done is on record"
    assert "whole way" in run_doctor(bridge, expected=0)["event"]["text"]
    (next_,) = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    assert next_["id"] != last["id"], "the list does not grow"
    assert [
        path.name for path in (bridge.data / "spool").iterdir() if path.name not in RESERVED
    ] == []
    # neither error nor Error: a device that goes while its socket closes hurts nobody
    assert "rror" not in bridge.tail()


def test_another_token_than_the_bridge_has(bridge: Bridge) -> None:
    told = run_doctor(
        bridge, expected=1, BRIDGE_HOOK_TOKEN="another-hook-token-of-32-characters-or-more"
    )
    assert told["tokens"]["level"] == "broken" and "hook token" in told["tokens"]["text"]
    assert (
        "BRIDGE_HOOK_TOKEN" in told["tokens"]["mend"][0] and "make run" in told["tokens"]["mend"][0]
    )
    assert told["event"]["level"] == "ok"  # the forwarder has the bridge's own


def test_all_sockets_are_taken(bridge: Bridge) -> None:
    pairing = bridge.mint("--name", "phone")
    phone = bridge.phone(pairing)
    phone.ready()
    try:
        told = run_doctor(bridge, expected=0)
    finally:
        phone.close()
    assert (
        told["event"]["level"] == "warning" and "no device could be tried" in told["event"]["text"]
    )
    assert "BRIDGE_MAX_WEBSOCKETS=2" in told["event"]["mend"][0]


def test_a_forwarder_of_another_machine_that_is_behind(bridge: Bridge, tmp_path: Path) -> None:
    """It says so with what it sends; the file of its oldest event is five minutes old (D47)."""
    put(tmp_path, "1", time.time() - 300)
    url = f"https://127.0.0.1:{bridge.port}"
    transport = HttpsTransport(url, lambda: bridge.hook_token, bridge.pairing().pin)
    assert Forwarder(tmp_path, HttpsSender(transport)).run_once() == 1
    told = run_doctor(bridge, expected=0)["forwarders"]
    assert told["level"] == "warning" and "127.0.0.1 is 30" in told["text"]
    info = bridge.get("/api/v1/info", bridge.hook_token).json()
    assert "forwarders" not in info  # whose addresses those are is the owner's business


def test_a_locked_database(bridge: Bridge) -> None:
    with closing(sqlite3.connect(bridge.data / "bridge.sqlite3", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        told = run_doctor(bridge, expected=1)
        holder.execute("ROLLBACK")
    assert (
        told["database"]["level"] == "broken"
        and "locked" in told["database"]["text"]
        and "fuser" in told["database"]["mend"][0]
    )
    assert (
        told["event"]["level"] == "broken" and "no device could be paired" in told["event"]["text"]
    )


def test_a_bridge_that_hangs(bridge: Bridge) -> None:
    assert bridge.process is not None
    bridge.process.send_signal(signal.SIGSTOP)
    try:
        told = run_doctor(bridge, expected=1)
    finally:
        bridge.process.send_signal(signal.SIGCONT)
    assert (
        f"Process {bridge.process.pid} holds" in told["bridge"]["text"]
        and told["bridge"]["mend"][0] == f"kill {bridge.process.pid}"
    )


# -- one part at a time, beside the running bridge -------------------------------------------------


@pytest.fixture
def copied(bridge: Bridge, tmp_path: Path) -> Conf:
    """The running bridge, seen with another data directory: it keeps its own files right."""
    data = tmp_path / "data"
    shutil.copytree(bridge.data / "tls", data / "tls")
    shutil.copyfile(bridge.data / "server.json", data / "server.json")
    return conf_of(bridge, bridge_data_dir=data)


def test_certificate_replaced(copied: Conf, tmp_path: Path) -> None:
    other = certificates.load_or_renew(
        Conf(bridge_data_dir=tmp_path / "other", bridge_host="127.0.0.1")
    )
    directory = copied.bridge_data_dir / "tls"
    shutil.copyfile(other.chain, directory / "server.crt")
    half = only(parts.certificate(take(copied)), Level.BROKEN)
    shutil.copyfile(other.key, directory / "server.key")
    whole = only(parts.certificate(take(copied)), Level.BROKEN)
    assert "is not the key of" in half.text and mended_by(half, "make run")
    assert "another key than the one that devices were paired with" in whole.text
    assert mended_by(whole, "make run") and mended_by(whole, "make qr")


def test_something_else_answers(copied: Conf) -> None:
    recorded = server_address.recorded(copied)
    assert recorded is not None
    server_address.record(copied, replace(recorded, pin="ab" * 32))
    seen = take(copied)
    assert seen.health is None and not seen.statuses
    assert "no token was sent" in only(parts.running(seen), Level.BROKEN).text


def test_the_plain_port_and_its_proxy(bridge: Bridge) -> None:
    seen = take(conf_of(bridge))
    nobody = only(
        parts.proxy(replace(seen, conf=conf_of(bridge, bridge_trusted_proxies=""))), Level.BROKEN
    )
    assert "no proxy is trusted" in nobody.text and mended_by(
        nobody, "BRIDGE_TRUSTED_PROXIES=127.0.0.1"
    )
    closed = only(
        parts.proxy(replace(seen, conf=conf_of(bridge, bridge_plain_port=free_port()))),
        Level.BROKEN,
    )
    assert "nothing listens there" in closed.text and mended_by(closed, "BRIDGE_PLAIN_PORT=")


def test_a_proxy_that_does_not_say_https(bridge: Bridge) -> None:
    """It hands on the bridge's own refusal."""

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"code": "INSECURE_TRANSPORT"}).encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        seen = take(conf_of(bridge))
        assert seen.recorded is not None
        url = f"https://127.0.0.1:{server.server_address[1]}"
        conf = conf_of(bridge, bridge_public_url=url)
        there = replace(seen, conf=conf, recorded=replace(seen.recorded, base_url=url))
        found = only(parts.address(there), Level.BROKEN)
        server.shutdown()
    assert "X-Forwarded-Proto" in found.text and mended_by(
        found, "proxy_set_header X-Forwarded-Proto $scheme;"
    )


def test_hooks(bridge: Bridge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = Snapshot(conf_of(bridge))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    file = tmp_path / "settings.json"
    absent = only(machine.hooks(seen), Level.WARNING)
    file.write_text(install("{}", "/elsewhere/spool"))
    other = only(machine.hooks(seen), Level.WARNING)
    whole = json.loads(install("{}", str(bridge.data / "spool")))
    del whole["hooks"]["Stop"]
    file.write_text(json.dumps(whole))
    partly = only(machine.hooks(seen), Level.WARNING)
    assert (
        "No agent reports" in absent.text
        and "another data directory" in other.text
        and "not all there" in partly.text
    )
    assert all(mended_by(one, "make hooks") for one in (absent, other, partly))
    file.write_text(install('{"disableAllHooks": true}', str(bridge.data / "spool")))
    assert "disableAllHooks" in only(machine.hooks(seen), Level.BROKEN).text
    file.write_text("{not JSON")
    assert mended_by(only(machine.hooks(seen), Level.BROKEN), str(file))


# -- the end: the bridge is stopped ----------------------------------------------------------------


def test_stopped(bridge: Bridge) -> None:
    bridge.stop()
    told = run_doctor(bridge, expected=1)
    assert (
        "does not run" in told["bridge"]["text"]
        and "nothing listens there" in told["bridge"]["text"]
    )
    assert told["bridge"]["mend"][0].endswith("make run")
    assert told["event"]["level"] == "warning" and "No event was sent" in told["event"]["text"]
    assert (
        told["database"]["level"] == told["certificate"]["level"] == told["hooks"]["level"] == "ok"
    )


def test_no_data_directory(bridge: Bridge, tmp_path: Path) -> None:
    told = run_doctor(bridge, expected=1, BRIDGE_DATA_DIR=str(tmp_path / "new"))
    assert "never started" in told["bridge"]["text"] and told["bridge"]["mend"][0].endswith(
        "make run"
    )
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700 and told["files"]["level"] == "ok"
