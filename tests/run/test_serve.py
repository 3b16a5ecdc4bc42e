"""`serve` and `watch` as processes: what is said, what is refused, how they stop (D42, D43,
D45).
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.samples import hook, prompt
from tests.faults.quick import QuickBridge, nursery
from tests.servers import Running, stop_process, wait_until

OWN_TOKENS = {"BRIDGE_HOOK_TOKEN": "", "BRIDGE_ADMIN_TOKEN": ""}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """A bridge that makes its own tokens, as a newcomer has started it: a process of its own, the
    first with this data.
    """
    made = Bridge(tmp_path_factory.mktemp("fresh"), **OWN_TOKENS)
    yield started(made)
    assert made.process is not None
    stop_process(made.process)


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """One whose processes start quickly, for what takes many."""
    made = QuickBridge(tmp_path_factory.mktemp("again"), **OWN_TOKENS)
    yield made
    if made.process is not None:
        stop_process(made.process)
    nursery.forget(made.environment)


@pytest.fixture
def bridge(again: Bridge) -> Bridge:
    """It runs, nobody has watched it yet, and its log begins with this start."""
    for identity in again.data.glob("watch*.json"):
        identity.unlink()
    if again.process is None or again.process.poll() is not None:
        started(again)
    return again


def started(bridge: Bridge) -> Bridge:
    bridge.log.unlink(missing_ok=True)
    bridge.spawn()
    wait_until(lambda: "To stop: Ctrl-C" in bridge.tail(), f"the banner; so far: {bridge.tail()}")
    bridge.hook_token = (bridge.data / "secrets" / "hook_token").read_text().strip()
    return bridge


def watch(bridge: Bridge, log: Path, *arguments: str) -> Running:
    with log.open("ab") as file:
        return bridge.popen(["manage.py", "watch", *arguments], file)


def test_a_fresh_start_says_what_a_newcomer_needs_and_no_secret(fresh: Bridge) -> None:
    bridge, said = fresh, fresh.log.read_text()
    for words in (
        f"https://127.0.0.1:{bridge.port}",
        f"wss://127.0.0.1:{bridge.port}/api/v1/ws",
        "this machine only",
        str(bridge.data / "secrets" / "hook_token"),
        str(bridge.data / "secrets" / "admin_token"),
        "make hooks",
    ):
        assert words in said, said
    secrets = [path.read_text().strip() for path in (bridge.data / "secrets").iterdir()]
    assert len(secrets) >= 2
    assert not [secret for secret in secrets if secret in said]
    assert "bridge_device_" not in said, "without a terminal there is no pairing code"
    assert "warn" not in said.lower(), said


def test_the_data_directory_is_private(fresh: Bridge) -> None:
    assert fresh.data.stat().st_mode & 0o777 == 0o700
    loose = [
        path
        for path in fresh.data.glob("**/*")
        if "secret" in str(path) or path.suffix in (".json", ".key", ".lock")
    ]
    assert loose
    assert not [path for path in loose if path.is_file() and path.stat().st_mode & 0o077]


def test_the_address_is_recorded_for_the_commands(fresh: Bridge) -> None:
    recorded = json.loads((fresh.data / "server.json").read_text())
    assert (
        recorded["ws_url"] == recorded["local_ws_url"] == f"wss://127.0.0.1:{fresh.port}/api/v1/ws"
    )
    assert len(recorded["pin"]) == len(recorded["fingerprint"]) == 64


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_in_order(bridge: Bridge, how: signal.Signals) -> None:
    assert bridge.process is not None
    bridge.process.send_signal(how)
    assert bridge.process.wait(180) == 0
    assert "Traceback" not in bridge.log.read_text()
    started(bridge)


def test_a_killed_one_leaves_no_lock(bridge: Bridge) -> None:
    bridge.kill()
    started(bridge)


def test_misconfigured_is_said_plainly(tmp_path: Path) -> None:
    with QuickBridge(tmp_path, BRIDGE_PUBLIC_URL="http://bridge.example") as bridge:
        said = "misconfigured: BRIDGE_PUBLIC_URL is not an https address"
        wait_until(lambda: said in bridge.log.read_text(), f"so far: {bridge.tail()}")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("BRIDGE_DATA_DIR", "/proc/nowhere"),
        ("BRIDGE_PORT: must be a number from 1 to 65535", "0"),
        ("BRIDGE_QUEUE_MAX: must be a whole number of 1 or more", "1.5"),
        ("DATABASE_URL", "postgres://user:sesame-sesame@127.0.0.1:1/none"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_names_the_setting(
    tmp_path: Path, setting: str, value: str
) -> None:
    done = Bridge(tmp_path, **OWN_TOKENS | {setting.partition(":")[0]: value}).manage(
        "serve", check=False
    )
    assert done.returncode == 1
    said = (done.stdout + done.stderr).strip()
    assert setting in said
    assert len(said.splitlines()) == 1, said
    assert "sesame" not in said


def test_in_a_terminal_it_shows_a_pairing_code(tmp_path: Path) -> None:
    """And Ctrl-C there stops it: a process as a user has it."""
    bridge = Bridge(tmp_path, **OWN_TOKENS)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(REPOSITORY)
        os.execve(sys.executable, [sys.executable, "manage.py", "serve"], bridge.environment)
    shown = b""
    try:
        while b"To stop: Ctrl-C" not in shown:
            shown += os.read(terminal, 65536)
        os.write(terminal, b"\x03")
    finally:
        if b"To stop" not in shown:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    text = shown.decode()
    assert os.waitstatus_to_exitcode(status) == 0
    assert "▀" in text
    assert f"https://127.0.0.1:{bridge.port}/pair#v=1&token=bridge_device_" in text
    assert "make qr" in text


def test_watch_sees_events_also_those_that_it_missed(bridge: Bridge, tmp_path: Path) -> None:
    log = tmp_path / "watch.log"
    watching = watch(bridge, log)
    try:
        wait_until(lambda: log.exists() and "connected to" in log.read_text(), "watch connects")
        bridge.accept(hook("SessionStart", "one"), prompt("one", "live"))
        wait_until(lambda: "live" in log.read_text(), f"the event in watch: {log.read_text()}")

        watching.send_signal(signal.SIGINT)
        assert watching.wait(180) == 0
        bridge.accept(prompt("one", "missed"))
        bridge.stop()  # and the log is kept over a restart
        watching = watch(bridge, log)
        wait_until(lambda: "nothing listens there" in log.read_text(), "watch waits for the bridge")
        started(bridge)
        wait_until(lambda: "missed" in log.read_text(), f"the missed event: {log.read_text()}")
    finally:
        stop_process(watching, signal.SIGINT)
    said = log.read_text()
    assert said.count("prompt   prompt live\n") == said.count("prompt   prompt missed\n") == 1, said
    assert "Traceback" not in said
    assert (bridge.data / "watch.json").stat().st_mode & 0o777 == 0o600


def test_a_second_watch_takes_over_and_a_revoked_one_stays_out(
    bridge: Bridge, tmp_path: Path
) -> None:
    """Both are one device, which has one connection (D23)."""
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    both: list[Running] = []
    try:
        for log in logs:
            both.append(watch(bridge, log))
            wait_until(
                lambda log=log: log.exists() and "connected to" in log.read_text(),  # type: ignore[misc]
                f"{log.name} connects",
            )
        assert both[0].wait(180) == 1
        assert "Another connection of this device took over." in logs[0].read_text()
        known = json.loads((bridge.data / "watch.json").read_text())["device"]
        [device] = [
            device
            for device in json.loads(bridge.manage("list_devices", "--json").stdout)
            if device["id"] == known
        ]
        assert device["name"].startswith("watch on ")
        bridge.manage("revoke_device", str(known))
        assert both[1].wait(180) == 1
    finally:
        for one in both:
            stop_process(one, signal.SIGINT)
    done = bridge.manage("watch", check=False)
    assert done.returncode == 1
    assert "was revoked" in done.stderr


def test_raw_is_json_alone_and_a_closed_pipe_ends_it(fresh: Bridge) -> None:
    """A process as a user starts it."""
    command = [sys.executable, "manage.py", "watch", "--raw"]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=fresh.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert [json.loads(process.stdout.readline())["type"] for _ in range(2)] == [
            "connection_ack",
            "health_status",
        ]
        process.stdout.close()
        fresh.accept(hook("SessionStart", "one"))
        assert process.wait(180) == 0
        assert b"Traceback" not in process.stderr.read()
    finally:
        stop_process(process)
        process.stderr.close()
