"""`serve` and `watch` as processes: what is said and refused, how they stop (D42, D43, D45)."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import REPOSITORY, Bridge, query
from tests.conformance.samples import hook
from tests.faults.quick import QuickBridge
from tests.run.terminal import Program
from tests.run.test_operations import refused
from tests.run.test_watch import watch
from tests.servers import free_port, stop_process, wait_until

pytestmark = pytest.mark.slow

OWN_TOKENS = {"BRIDGE_HOOK_TOKEN": "", "BRIDGE_ADMIN_TOKEN": ""}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """As a newcomer starts it: a process of its own, which makes its own tokens."""
    made = Bridge(tmp_path_factory.mktemp("fresh"), **OWN_TOKENS)
    made.spawn()
    wait_until(lambda: "To stop: Ctrl-C" in made.tail(), lambda: f"the banner in: {made.tail()}")
    made.hook_token = (made.data / "secrets" / "hook_token").read_text().strip()
    yield made
    made.stop()


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

    assert bridge.data.stat().st_mode & 0o777 == 0o700
    private = [one for one in bridge.data.rglob("*") if one.suffix in (".json", ".key", ".lock")]
    for path in (*private, *(bridge.data / "secrets").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path


def test_misconfigured_is_said_plainly(tmp_path: Path) -> None:
    with QuickBridge(tmp_path, BRIDGE_PUBLIC_URL="http://bridge.example") as bridge:
        said = "misconfigured: BRIDGE_PUBLIC_URL is not an https address"
        wait_until(lambda: said in bridge.log.read_text(), f"so far: {bridge.tail()}")


BAD = [
    ("BRIDGE_DATA_DIR", "/proc/nowhere", ""),
    ("BRIDGE_DATA_DIR", "~nosuchuser/x", ": must not begin with ~"),
    ("BRIDGE_PORT", "0", ": Input should be greater than or equal to 1"),
    ("BRIDGE_HOOK_TOKEN", "short-sesame", ""),
    ("BRIDGE_HOOK_TOKEN", "sesame\N{KELVIN SIGN}" * 9, ": must be printable ASCII"),
    ("BRIDGE_PUBLIC_URL", "https://[::1", ": "),
    ("BRIDGE_PUBLIC_URL", "https://sesame@bridge.example", ": must have no user name"),
    ("BRIDGE_QUEUE_TTL_SECONDS", "1000000001", ": Input should be less than or equal to"),
    ("BRIDGE_ALLOWED_ORIGINS", "https://a.example,https://[bad]", ": "),
    ("BRIDGE_TRUSTED_PROXIES", "not-an-address", ""),
    ("BRIDGE_TLS_CERT", "/no/such/file.pem", ""),
    ("BRIDGE_TUNNEL_DOMAINS", "https://tunnel.example", ": must hold domains"),
    ("BRIDGE_PUSH_HOSTS", "https://push.example/x", ": must hold names of hosts"),
    ("DATABASE_URL", "postgres://user:sesame[sesame@127.0.0.1/none", ": must be a URL"),
    ("REDIS_URL", "redis://:sesame@127.0.0.1:65536", ": must be a URL"),
    ("DATABASE_URL", "postgres://user:sesame-sesame@127.0.0.1:1/none", ""),
]


@pytest.mark.spec("settings", "severity.fatal")
@pytest.mark.parametrize(("setting", "value", "why"), BAD)
def test_what_cannot_be_used_is_one_line_that_names_the_setting(
    tmp_path: Path, setting: str, value: str, why: str
) -> None:
    done = QuickBridge(tmp_path, **OWN_TOKENS | {setting: value}).manage("serve", check=False)
    refused(done, setting + why)
    assert "sesame" not in done.stdout + done.stderr


def test_data_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    """A token that can be guessed, is empty, or is no text; a file that is no database."""
    bridge = QuickBridge(tmp_path, **OWN_TOKENS)
    token = bridge.data / "secrets" / "hook_token"
    token.parent.mkdir(parents=True)
    (bridge.data / "bridge.sqlite3").write_bytes(b"no database" * 1000)
    for content in (b"short-secret", b"\xff" * 40, b""):
        token.write_bytes(content)
        done = bridge.manage("serve", check=False)
        refused(done, f"BRIDGE_HOOK_TOKEN: {token} has under 32 characters")
        assert "short-secret" not in done.stdout + done.stderr
    token.unlink()
    for command in ("serve", "list_devices"):
        refused(bridge.manage(command, check=False), "file is not a database")
    (bridge.data / ".env").write_bytes(b"BRIDGE_QUEUE_MAX=\xff")
    refused(bridge.manage("serve", check=False), str(bridge.data / ".env"))


def test_a_port_that_is_taken_leaves_the_last_address(tmp_path: Path) -> None:
    """What starts it again has its port and its words, also after a restore."""
    bridge = QuickBridge(tmp_path, **OWN_TOKENS)
    bridge.arguments, first = [str(bridge.root)], bridge.settings["BRIDGE_PORT"]
    kept = bridge.data / "server.json"

    def start_at_a_taken_port() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            bridge.settings["BRIDGE_PORT"] = str(other.getsockname()[1])
            done = bridge.manage("serve", check=False)
            assert done.returncode == 1 and "is in use by another program" in done.stderr, done

    start_at_a_taken_port()
    assert not kept.exists()
    bridge.settings["BRIDGE_PORT"] = first
    said_at_the_start(bridge)
    before = kept.read_bytes()
    start_at_a_taken_port()
    assert kept.read_bytes() == before

    del bridge.settings["BRIDGE_PORT"], bridge.settings["BRIDGE_HOST"]
    words = rf"BRIDGE_HOST=127.0.0.1 BRIDGE_PORT={first} .*make run ARGS=.*"
    again = re.compile(words + re.escape(str(bridge.root)))
    assert again.search(bridge.manage("mint_pairing_qr", "--format", "url").stderr)
    bridge.manage("backup")
    (file,) = (bridge.data / "backups").glob("*.tar.gz")
    shutil.rmtree(bridge.data / "tls")
    kept.unlink()  # as on a new machine
    assert again.search(bridge.manage("restore", str(file)).stdout)
    assert again.search(bridge.manage("mint_pairing_qr", "--format", "url").stderr)

    bridge.settings |= {"BRIDGE_HOST": "127.0.0.1", "BRIDGE_PORT": str(free_port())}
    assert f"look for it at port {first}; to keep it" in said_at_the_start(bridge)


def said_at_the_start(bridge: Bridge) -> str:
    """What a start says until it can be used; it is stopped then."""
    seen = len(bridge.log.read_text()) if bridge.log.exists() else 0
    bridge.spawn()
    wait_until(lambda: "To stop: Ctrl-C" in bridge.log.read_text()[seen:], bridge.tail)
    assert bridge.stop() == 0
    return bridge.log.read_text()[seen:]


def test_in_a_terminal_it_shows_a_pairing_code(tmp_path: Path) -> None:
    """And SIGINT, which Ctrl-C is there, stops it."""
    bridge = QuickBridge(tmp_path, **OWN_TOKENS)
    with Program(bridge.environment, "serve", terminal=True) as program:
        link = f"https://127.0.0.1:{bridge.port}/pair#v=1&token=bridge_device_"
        program.until("▀", link, "make qr", "To stop: Ctrl-C")
        program.process.send_signal(signal.SIGINT)
        assert program.ended() == 0


def test_raw_is_json_alone_and_a_closed_pipe_ends_it(fresh: Bridge) -> None:
    """A process as a user starts it."""
    command = [sys.executable, "manage.py", "watch", "--raw"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=REPOSITORY, env=fresh.environment, **pipes)
    assert process.stdout is not None and process.stderr is not None
    try:
        types = [json.loads(process.stdout.readline())["type"] for _ in range(2)]
        assert types == ["connection_ack", "health_status"]
        process.stdout.close()
        fresh.accept(hook("SessionStart", "one"))
        assert process.wait(180) == 0
        assert b"Traceback" not in process.stderr.read()
    finally:
        stop_process(process)
        process.stderr.close()


def test_a_second_watch_takes_over_and_a_revoked_one_stays_out(tmp_path: Path) -> None:
    """Both are one device, which has one connection (D23)."""
    with QuickBridge(tmp_path) as bridge, watch(bridge) as first:
        first.until("connected to")
        with watch(bridge) as second:
            second.until("connected to")
            first.until("a second `watch`, took over.")
            assert first.ended() == 1
            known = json.loads((bridge.data / "watch.json").read_text())["device"]
            row = rf"(?m)^{known} +watch on .* connected .* now "
            assert re.search(row, bridge.manage("list_devices").stdout)
            file = bridge.data / "bridge.sqlite3"
            query(
                file,
                f"UPDATE devices_app_device SET last_seen_at = '2020-01-01' WHERE id = {known}",
            )
            bridge.manage("revoke_device", str(known))
            second.until("To pair it again, remove ")
            assert second.ended() == 1
        # until its end it was seen, however long ago it had come
        last = f"SELECT last_seen_at > '2021' FROM devices_app_device WHERE id = {known}"
        wait_until(lambda: query(file, last) == [(1,)])
        done = bridge.manage("watch", check=False)
        assert done.returncode == 1 and "was revoked" in done.stderr
