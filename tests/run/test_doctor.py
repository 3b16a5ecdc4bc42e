"""`doctor` against a real bridge: a healthy one, then one fault at a time, each named with the command that mends it (D43)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from bridge_project import address, limits, tls
from bridge_project.address import Address
from bridge_project.conf import Conf
from bridge_project.doctor import bridge as parts
from bridge_project.doctor import checks, machine, probe, storage
from bridge_project.doctor.findings import Finding, Level, as_json, as_lines, broken, cleaned, ok, warning, worst
from bridge_project.doctor.look import Look, Reached, look
from bridge_project.watch.client import Target
from hooks_app.install import install
from hooks_app.producer import Spool
from tests.conformance.bridge import Bridge
from tests.servers import free_port

LONGEST_SECONDS = 16.0  # about 15, says D43's issue
SENT = '{"hook_event_name": "SessionStart", "session_id": "%s"}'


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """A bridge that runs for all tests here, behind a trusted proxy, with its hooks in an agent's settings file."""
    directory = tmp_path_factory.mktemp("doctor")
    agent = directory / "agent"
    own = Bridge(directory, BRIDGE_PLAIN_PORT=str(free_port()), BRIDGE_TRUSTED_PROXIES="127.0.0.1", BRIDGE_MAX_WEBSOCKETS="1", CLAUDE_CONFIG_DIR=str(agent))
    agent.mkdir()
    (agent / "settings.json").write_text(install("{}\n", str(own.data / "spool")))
    own.start()
    yield own
    if own.process is not None and own.process.poll() is None:
        own.stop()


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
    """The command as a user runs it; check → what it says, the first where there are several. The time and the silence about tokens hold always."""
    before = dict(bridge.settings)
    bridge.settings |= environment
    began = time.monotonic()
    try:
        done = bridge.manage("doctor", "--json", check=False)
    finally:
        bridge.settings = before
    assert time.monotonic() - began < LONGEST_SECONDS
    assert done.stderr == ""
    assert done.returncode == expected, done.stdout
    for secret in (bridge.hook_token, bridge.admin_token, environment.get("BRIDGE_HOOK_TOKEN", "bridge_hook_"), "bridge_device_"):
        assert secret not in done.stdout
    told = json.loads(done.stdout)
    assert told["status"] == ("broken" if expected else worst_of(told["checks"]))
    return {one["check"]: one for one in reversed(told["checks"])}


def worst_of(told: list[dict[str, Any]]) -> str:
    return "warning" if any(one["level"] == "warning" for one in told) else "ok"


def only(found: list[Finding], level: Level) -> Finding:
    assert len(found) == 1 and found[0].level is level, found
    return found[0]


def mended_by(found: Finding, command: str) -> bool:
    return any(command in line for line in found.mend)


@pytest.fixture
def quiet(tmp_path: Path) -> Conf:
    """The settings of a bridge that was started once in this directory and does not run now."""
    data = tmp_path / "quiet data"
    data.mkdir(mode=0o700)
    conf = Conf(bridge_data_dir=data, bridge_host="127.0.0.1", bridge_port=free_port(), bridge_hook_token="", bridge_admin_token="")
    certificates = tls.ensure(conf)
    for name in ("hook_token", "admin_token"):
        conf.secret(name)
    (data / "spool").mkdir(mode=0o700)
    url = f"https://127.0.0.1:{conf.bridge_port}"
    address.record(conf, Address(url, f"wss://127.0.0.1:{conf.bridge_port}/api/v1/ws", certificates.pin, certificates.fingerprint))
    return conf


# -- the whole command -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def healthy(bridge: Bridge) -> subprocess.CompletedProcess[str]:
    """Its run with exit code 0 while nothing is broken."""
    return bridge.manage("doctor")


def test_healthy(bridge: Bridge, healthy: subprocess.CompletedProcess[str]) -> None:
    done = healthy
    lines = done.stdout.splitlines()
    marks = {line[2:15].strip(): line[0] for line in lines if line[:1] in "✓!✗" and line}
    good = ("bridge", "tokens", "certificate", "clock", "database", "disk", "files", "file limit", "spool", "hooks", "event")
    assert {name: marks.get(name) for name in good} == dict.fromkeys(good, "✓"), done.stdout
    assert marks["address"] == "!" and "no phone can reach it" in done.stdout  # this one listens on 127.0.0.1
    assert "BRIDGE_HOST=auto" in lines[next(i for i, line in enumerate(lines) if line.startswith("! address")) + 1]
    assert marks["proxy"] == "!" and "pairing codes lead past the proxy" in done.stdout
    assert "whole way" in done.stdout and lines[-1] == "0 broken, 2 to look at."
    assert bridge.hook_token not in done.stdout and bridge.admin_token not in done.stdout


def test_it_leaves_nothing_behind(bridge: Bridge, healthy: subprocess.CompletedProcess[str]) -> None:
    assert "whole way" in healthy.stdout
    assert "doctor" not in bridge.manage("list_devices").stdout
    sessions = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    assert sessions and all(one["title"] == "doctor" and one["status"] == "closed" and one["id"].startswith("doctor-") for one in sessions)
    assert [path.name for path in (bridge.data / "spool").iterdir() if path.name not in ("id", "lock", "rejected")] == []
    assert "rror" not in bridge.tail()  # neither error nor Error: a device that goes while its socket closes hurts nobody


def test_another_token_than_the_bridge_has(bridge: Bridge) -> None:
    told = run_doctor(bridge, expected=1, BRIDGE_HOOK_TOKEN="another-hook-token-of-32-characters-or-more")
    assert told["tokens"]["level"] == "broken" and "hook token" in told["tokens"]["text"]
    assert "BRIDGE_HOOK_TOKEN" in told["tokens"]["mend"][0] and "make run" in told["tokens"]["mend"][0]
    assert told["event"]["level"] == "ok"  # the forwarder has the bridge's own


def test_all_sockets_are_taken(bridge: Bridge) -> None:
    pairing = bridge.mint("--name", "phone")
    phone = bridge.phone(pairing)
    phone.ready()
    try:
        told = run_doctor(bridge, expected=0)
    finally:
        phone.close()
    assert told["event"]["level"] == "warning" and "no device could be tried" in told["event"]["text"]
    assert "BRIDGE_MAX_WEBSOCKETS=2" in told["event"]["mend"][0]


def test_a_locked_database(bridge: Bridge) -> None:
    with closing(sqlite3.connect(bridge.data / "bridge.sqlite3", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        told = run_doctor(bridge, expected=1)
        holder.execute("ROLLBACK")
    assert told["database"]["level"] == "broken" and "locked" in told["database"]["text"] and "fuser" in told["database"]["mend"][0]
    assert told["event"]["level"] == "broken" and "no device could be paired" in told["event"]["text"]


def test_a_bridge_that_hangs(bridge: Bridge) -> None:
    assert bridge.process is not None
    bridge.process.send_signal(signal.SIGSTOP)
    try:
        told = run_doctor(bridge, expected=1)
    finally:
        bridge.process.send_signal(signal.SIGCONT)
    assert f"Process {bridge.process.pid} holds" in told["bridge"]["text"] and told["bridge"]["mend"][0] == f"kill {bridge.process.pid}"


# -- one part at a time, beside the running bridge ---------------------------------------------------------------------------


@contextmanager
def kept(*files: Path) -> Iterator[None]:
    """Whatever happens to these files, they are as before in the end."""
    before = {file: file.read_bytes() for file in files}
    try:
        yield
    finally:
        for file, data in before.items():
            file.write_bytes(data)


def test_certificate_replaced(bridge: Bridge, tmp_path: Path) -> None:
    other = tls.ensure(Conf(bridge_data_dir=tmp_path / "other", bridge_host="127.0.0.1"))
    directory = bridge.data / "tls"
    with kept(directory / "server.crt", directory / "server.key"):
        shutil.copyfile(other.chain, directory / "server.crt")
        half = only(parts.certificate(look(conf_of(bridge))), Level.BROKEN)
        shutil.copyfile(other.key, directory / "server.key")
        whole = only(parts.certificate(look(conf_of(bridge))), Level.BROKEN)
    assert "is not the key of" in half.text and mended_by(half, "make run")
    assert "another key than the one that devices were paired with" in whole.text
    assert mended_by(whole, "make run") and mended_by(whole, "make qr")


def test_something_else_answers(bridge: Bridge) -> None:
    conf = conf_of(bridge)
    recorded = address.recorded(conf)
    assert recorded is not None
    with kept(address.path(conf)):
        address.record(conf, replace(recorded, pin="ab" * 32))
        seen = look(conf)
    assert seen.health is None and not seen.statuses
    assert "no token was sent" in only(parts.running(seen), Level.BROKEN).text


def test_the_plain_port_and_its_proxy(bridge: Bridge) -> None:
    seen = look(conf_of(bridge))
    nobody = only(parts.proxy(replace(seen, conf=conf_of(bridge, bridge_trusted_proxies=""))), Level.BROKEN)
    assert "no proxy is trusted" in nobody.text and mended_by(nobody, "BRIDGE_TRUSTED_PROXIES=127.0.0.1")
    closed = only(parts.proxy(replace(seen, conf=conf_of(bridge, bridge_plain_port=free_port()))), Level.BROKEN)
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
        conf = conf_of(bridge, bridge_public_url=f"https://127.0.0.1:{server.server_address[1]}")
        found = only(parts.proxy(look(conf)), Level.BROKEN)
        server.shutdown()
    assert "X-Forwarded-Proto" in found.text and mended_by(found, "proxy_set_header X-Forwarded-Proto $scheme;")


def test_hooks(bridge: Bridge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = Look(conf_of(bridge))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    file = tmp_path / "settings.json"
    absent = only(machine.hooks(seen), Level.WARNING)
    file.write_text(install("{}", "/elsewhere/spool"))
    other = only(machine.hooks(seen), Level.WARNING)
    whole = json.loads(install("{}", str(bridge.data / "spool")))
    del whole["hooks"]["Stop"]
    file.write_text(json.dumps(whole))
    partly = only(machine.hooks(seen), Level.WARNING)
    assert "No agent reports" in absent.text and "another data directory" in other.text and "not all there" in partly.text
    assert all(mended_by(one, "make hooks") for one in (absent, other, partly))
    file.write_text(install('{"disableAllHooks": true}', str(bridge.data / "spool")))
    assert "disableAllHooks" in only(machine.hooks(seen), Level.BROKEN).text
    file.write_text("{not JSON")
    assert mended_by(only(machine.hooks(seen), Level.BROKEN), str(file))


# -- one part at a time, without a bridge ------------------------------------------------------------------------------------


def test_modes(quiet: Conf) -> None:
    only(machine.files(look(quiet)), Level.OK)
    quiet.bridge_data_dir.chmod(0o755)
    found = only(machine.files(look(quiet)), Level.BROKEN)
    assert "mode 0755" in found.text
    subprocess.run(["/bin/sh", "-c", *found.mend], check=True)  # the command that it gives is the one that mends it
    quiet.secret_path("hook_token").chmod(0o644)
    found = only(machine.files(look(quiet)), Level.BROKEN)
    subprocess.run(["/bin/sh", "-c", *found.mend], check=True)
    only(machine.files(look(quiet)), Level.OK)
    quiet.secret_path("admin_token").unlink()
    assert mended_by(only(machine.files(look(quiet)), Level.BROKEN), "make run")


def test_disk(quiet: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage(quiet.bridge_data_dir).free
    monkeypatch.setattr(limits, "DISK_FREE_MIN_BYTES", free // 5)
    assert "Only" in only(machine.disk(look(quiet)), Level.WARNING).text
    monkeypatch.setattr(limits, "DISK_FREE_MIN_BYTES", free * 2)
    assert mended_by(only(machine.disk(look(quiet)), Level.BROKEN), "df -h")


def test_spool(quiet: Conf) -> None:
    place = quiet.bridge_data_dir / "spool"
    only(machine.spool(look(quiet)), Level.OK)
    (place / "full").touch()
    assert mended_by(only(machine.spool(look(quiet)), Level.BROKEN), "make run")
    (place / "full").unlink()
    spool = Spool(place)
    spool.make()
    (place / "4711").write_text("{")
    spool.set_aside(spool.files()[0], "not JSON")
    refused = only(machine.spool(look(quiet)), Level.WARNING)
    assert "1 events were refused for good and set aside: not JSON." in refused.text and mended_by(refused, "rejected")
    shutil.rmtree(place / "rejected")
    (place / "4712").write_text("{}")
    os.utime(place / "4712", (time.time() - 7200, time.time() - 7200))
    waiting = only(machine.spool(look(quiet)), Level.WARNING)
    assert "1 events wait, the oldest for 2 hours" in waiting.text and mended_by(waiting, "make run")
    shutil.rmtree(place)
    only(machine.spool(look(quiet)), Level.BROKEN)


def test_redis_nowhere(quiet: Conf) -> None:
    conf = quiet.model_copy(update={"redis_url": f"redis://:sesame-open@127.0.0.1:{free_port()}/0"})
    found = only(cleaned(conf, storage.redis_server(look(conf))), Level.BROKEN)
    assert mended_by(found, "systemctl start redis-server") and mended_by(found, "unset REDIS_URL")
    assert "sesame" not in as_json([found])


def test_database(quiet: Conf) -> None:
    path = quiet.bridge_data_dir / "bridge.sqlite3"
    assert "missing" in only(storage.database(look(quiet)), Level.BROKEN).text
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE django_migrations (app TEXT, name TEXT)")
        made.execute("INSERT INTO django_migrations VALUES ('sessions_app', '9999_from_the_future')")
        made.commit()
        assert "newer version" in only(storage.database(look(quiet)), Level.BROKEN).text
        made.execute("DELETE FROM django_migrations")
        made.commit()
    behind = only(storage.database(look(quiet)), Level.BROKEN)
    assert "still to be made" in behind.text and mended_by(behind, "make run")
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 8000)
    damaged = only(storage.database(look(quiet)), Level.BROKEN)
    assert "damaged" in damaged.text and mended_by(damaged, f"mv '{path}' ") and mended_by(damaged, "manage.py restore ")


def test_postgresql_nowhere(quiet: Conf) -> None:
    conf = quiet.model_copy(update={"database_url": f"postgres://me:sesame-open@127.0.0.1:{free_port()}/bridge"})
    found = only(cleaned(conf, storage.database(look(conf))), Level.BROKEN)
    assert mended_by(found, "pg_isready -h 127.0.0.1 -p ") and "sesame" not in as_json([found])


def at(moment: datetime) -> type[datetime]:
    """A clock that stands."""

    class Then(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return moment

    return Then


def test_certificate_dates(quiet: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = tls.ensure(quiet).not_after
    only(parts.certificate(look(quiet)), Level.OK)
    for now, level, said in (
        (ends - timedelta(days=5), Level.WARNING, "ends in 5 days"),
        (ends + timedelta(days=1), Level.BROKEN, "ended on"),
        (ends - timedelta(days=1000), Level.BROKEN, "is the clock right?"),
    ):
        monkeypatch.setattr(parts, "datetime", at(now))
        assert said in only(parts.certificate(look(quiet)), level).text


def test_the_bridges_clock_is_another(quiet: Conf) -> None:
    seen = replace(look(quiet), health=Reached(200, {}, b"", -400.0))
    found = only(parts.clock(seen), Level.BROKEN)
    assert "400 s behind" in found.text and mended_by(found, "timedatectl")
    only(parts.clock(replace(seen, health=Reached(200, {}, b"", 30.0))), Level.WARNING)
    only(parts.clock(replace(seen, health=Reached(200, {}, b"", -1.0))), Level.OK)


def test_clock(quiet: Conf) -> None:
    only(parts.clock(look(quiet)), Level.OK)
    later = (datetime.now(UTC) + timedelta(hours=1)).timestamp()
    os.utime(address.path(quiet), (later, later))
    assert mended_by(only(parts.clock(look(quiet)), Level.BROKEN), "timedatectl")


def test_address_modes(quiet: Conf) -> None:
    seen = look(quiet)

    def reached_at(url: str) -> Look:
        assert seen.recorded is not None
        return replace(seen, recorded=replace(seen.recorded, base_url=url))

    only(parts.reach(reached_at("https://192.168.1.5:8443")), Level.OK)
    assert mended_by(only(parts.reach(reached_at("https://127.0.0.1:8443")), Level.WARNING), "BRIDGE_HOST=auto")
    assert mended_by(only(parts.reach(reached_at("http://bridge.example")), Level.BROKEN), "BRIDGE_PUBLIC_URL=https://")


def test_file_limit(quiet: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_limit_of", lambda process: 200)
    assert mended_by(only(machine.file_limit(look(quiet)), Level.BROKEN), "ulimit -n")


@pytest.mark.parametrize("broken_part", ["rejected", "waiting", "full", "no spool"])
def test_where_an_event_hangs(quiet: Conf, broken_part: str) -> None:
    way = probe._Way(quiet, Target("wss://nowhere", "t"))
    spool = Spool(way.spool)
    spool.make()
    if broken_part in ("rejected", "waiting"):
        (way.spool / "4711").write_text(SENT % way.session)
    if broken_part == "rejected":
        spool.set_aside(spool.files()[0], "HOOK_INVALID_PAYLOAD")
    if broken_part == "full":
        (way.spool / "full").touch()
    if broken_part == "no spool":
        shutil.rmtree(way.spool)
    said = {"rejected": "refused the event: HOOK_INVALID_PAYLOAD", "waiting": "still waits", "full": "the spool is full", "no spool": "is not there"}
    assert said[broken_part] in str(way._where()) and way._where().mend


def test_a_check_that_fails_or_hangs_is_a_finding(quiet: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    def fails(seen: Look) -> list[Finding]:
        raise RuntimeError("no such thing")

    def hangs(seen: Look) -> list[Finding]:
        never.wait()
        return []

    monkeypatch.setattr(checks, "CHECKS", (("one", fails), ("two", hangs)))
    monkeypatch.setattr(checks, "EVENT", ("three", lambda seen: [ok("three", "fine")]))
    monkeypatch.setattr(checks, "CHECK_SECONDS", 0.2)
    found = {one.check: one for one in checks.examine(quiet)}
    never.set()
    assert "RuntimeError: no such thing" in found["one"].text and "in time" in found["two"].text
    assert [one.level for one in found.values()] == [Level.BROKEN, Level.BROKEN, Level.OK]


def test_lines() -> None:
    found = [ok("a", "fine"), warning("bb", "hm", "do this"), broken("c", "bad", "first", "then")]
    assert as_lines(found) == ["✓ a   fine", "! bb  hm", "        do this", "✗ c   bad", "        first", "        then", "", "1 broken, 1 to look at."]
    assert as_lines(found[:1])[-1] == "Everything works." and worst(found[:2]) is Level.WARNING


# -- the end: the bridge is stopped -------------------------------------------------------------------------------------------


def test_stopped(bridge: Bridge) -> None:
    bridge.stop()
    told = run_doctor(bridge, expected=1)
    assert "does not run" in told["bridge"]["text"] and "nothing listens there" in told["bridge"]["text"]
    assert told["bridge"]["mend"][0].endswith("make run")
    assert told["event"]["level"] == "warning" and "No event was sent" in told["event"]["text"]
    assert told["database"]["level"] == told["certificate"]["level"] == told["hooks"]["level"] == "ok"


def test_no_data_directory(bridge: Bridge, tmp_path: Path) -> None:
    told = run_doctor(bridge, expected=1, BRIDGE_DATA_DIR=str(tmp_path / "new"))
    assert "never started" in told["bridge"]["text"] and told["bridge"]["mend"][0].endswith("make run")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700 and told["files"]["level"] == "ok"
