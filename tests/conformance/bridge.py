"""The bridge as a process: `manage.py serve` over TLS, with a data directory of its own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from tests import portable
from tests.conformance.https import Dial, Https, Response
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_session, prompt
from tests.servers import Running, free_port, wait_until

EVENT, BATCH = "/api/v1/hooks/event", "/api/v1/hooks/batch"
REPOSITORY = Path(__file__).resolve().parents[2]
MINT = """
import json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "bridge_project.settings"
import django
django.setup()
from django.core.management import call_command
for arguments in json.loads(sys.argv[1]):
    call_command("mint_pairing_qr", "--format", "json", *arguments)
"""
# at once: a process of its own for each device would cost a second each
MINTED_FIRST, MINTED_NEXT = 20, 160
NOT_OURS = ("BRIDGE_", "DATABASE_URL", "REDIS_URL", "DJANGO_")


@dataclass
class Pairing:
    v: int
    name: str
    url: str
    token: str
    pin: str
    fingerprint: str
    expires_at: str


def read_pairings(text: str) -> list[Pairing]:
    """The JSON objects that `mint_pairing_qr --format json` printed, one after the other."""
    decoder, pairings, rest = json.JSONDecoder(), [], text.strip()
    while rest:
        found, end = decoder.raw_decode(rest)
        pairings.append(Pairing(**found))
        rest = rest[end:].strip()
    return pairings


class Bridge:
    """`start` returns when /health answers. Posting helpers assert the success they promise."""

    def __init__(
        self,
        directory: Path,
        *,
        database_url: str | None = None,
        redis_url: str | None = None,
        **settings: str,
    ) -> None:
        self.directory = directory
        # with a space (issue: "in a directory with a space in its name")
        self.data = directory / "bridge data"
        self.root = directory / "allowed root"
        self.root.mkdir(parents=True, exist_ok=True)
        self.settings = {
            "BRIDGE_DATA_DIR": str(self.data),
            "BRIDGE_HOST": "127.0.0.1",
            "BRIDGE_PORT": str(free_port()),
            "BRIDGE_HOOK_TOKEN": secrets.token_urlsafe(32),
            "BRIDGE_ADMIN_TOKEN": secrets.token_urlsafe(32),
            "BRIDGE_ALLOWED_ROOTS": str(self.root),
            "BRIDGE_RATE_LIMITS": "off",
            "BRIDGE_AGENTS": "off",  # what happens to be on this machine
        }
        stores = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
        self.settings |= {name: url for name, url in stores.items() if url is not None} | settings
        self.hook_token = self.settings["BRIDGE_HOOK_TOKEN"]
        self.admin_token = self.settings["BRIDGE_ADMIN_TOKEN"]
        self.port = int(self.settings["BRIDGE_PORT"])
        self.process: Running | None = None
        self.pin: str | None = None
        # the command that runs what follows on the bridge's host, when that is not this one
        self.enter: list[str] = []
        self.dial: Dial | None = None  # how clients reach it there
        self.called: list[Phone] = []
        self.arguments: list[str] = []  # of `serve`
        self.minted: list[Pairing] = []
        self.next_stock = MINTED_FIRST
        self.minting = threading.Lock()

    # the process

    @property
    def running(self) -> Running:
        assert self.process is not None
        return self.process

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Meanwhile the process stands still, as when its machine sleeps."""
        self.running.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.running.send_signal(signal.SIGCONT)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Meanwhile another program keeps the SQLite database, and nothing can be written."""
        with closing(sqlite3.connect(self.data / "bridge.sqlite3", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
        if portable.ASKED:
            kept["DJANGO_SETTINGS_MODULE"] = "tests.portable_settings"
        return kept | self.settings | {"PYTHONUNBUFFERED": "1"}

    @property
    def surroundings(self) -> dict[str, Any]:
        return {"cwd": REPOSITORY, "env": self.environment, "stdin": subprocess.DEVNULL}

    @property
    def log(self) -> Path:
        return self.directory / "serve.log"

    def spawn(self) -> Bridge:
        with self.log.open("ab") as log:
            self.process = self.popen(["manage.py", "serve", *self.arguments], log)
        return self

    def popen(self, arguments: list[str], log: IO[bytes]) -> Running:
        """`python ARGUMENTS` with this bridge's settings, in the background."""
        command = [*self.enter, sys.executable, *arguments]
        return subprocess.Popen(command, stdout=log, stderr=log, **self.surroundings)

    def run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """`python ARGUMENTS` with this bridge's settings, to its end."""
        command = [*self.enter, sys.executable, *arguments]
        more: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 180}
        return subprocess.run(command, **more, **self.surroundings)

    def wait_ready(self) -> Bridge:
        wait_until(self._healthy, lambda: f"serve answers /health; its log: {self.tail()}")
        return self

    def start(self) -> Bridge:
        return self.spawn().wait_ready()

    def _healthy(self) -> bool:
        ended = self.running.poll()
        assert ended is None, f"serve ended with {ended}: {self.tail()}"
        try:
            answer = self.https(timeout=5).get("/api/v1/health", token=self.hook_token)
        except OSError:
            return False
        return answer.status in (200, 503)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def logged(self) -> list[dict[str, Any]]:
        """The lines of the log that it keeps itself."""
        text = (self.data / "logs" / "bridge.log").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def terminate(self) -> None:
        """SIGTERM, without waiting; phones that are still connected can see what they are told."""
        self.running.send_signal(signal.SIGTERM)

    def ended(self, seconds: float = 60) -> int:
        """The exit code, once the process has ended; AssertionError when it does not in time."""
        try:
            return self.running.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {seconds} s: {self.tail()}") from None

    def hang_up(self) -> None:
        for phone in self.called:
            phone.vanish()
        self.called.clear()

    def stop(self) -> int:
        """Nobody is connected any more, SIGTERM; the exit code."""
        self.hang_up()
        self.terminate()
        return self.ended()

    def kill(self) -> None:
        self.running.kill()
        self.running.wait(180)

    def hosts(self) -> list[psutil.Process]:
        """The processes in which its agents run (D79), whether or not it runs itself."""
        return [
            psutil.Process(pid) for pid in map(listener, self.data.glob("hosts/*.socket")) if pid
        ]

    def kill_all(self) -> None:
        """Kill it and its agents, as if their machine had ended."""
        hosts = self.hosts()
        self.kill()
        for host in hosts:
            host.kill()

    def restart(self, how: str) -> None:
        """`stop` is SIGTERM when the phones have just gone, `kill` SIGKILL while they are there, of
        the hosts of its agents too.
        """
        self.stop() if how == "stop" else self.kill_all()
        self.start()

    def memory(self) -> int:
        """Resident bytes of the server process now."""
        return psutil.Process(self.running.pid).memory_info().rss

    def manage(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = self.run(["manage.py", *arguments])
        assert not check or done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    # devices

    def mint(self, *arguments: str) -> Pairing:
        """`mint_pairing_qr` as a user runs it."""
        done = self.manage("mint_pairing_qr", "--format", "json", *arguments)
        return read_pairings(done.stdout)[0]

    def mint_many(self, *each: tuple[str, ...]) -> list[Pairing]:
        """The same command once for each tuple of arguments, in one process."""
        done = self.run(["-c", MINT, json.dumps(each)])
        assert done.returncode == 0, f"minting: {done.stdout}\n{done.stderr}"
        return read_pairings(done.stdout)

    def pairing(self) -> Pairing:
        """An unused token of a fresh device, from a stock that is minted many at once."""
        with self.minting:
            if not self.minted:
                names = [f"phone-{secrets.token_hex(4)}" for _ in range(self.next_stock)]
                self.minted = self.mint_many(*[("--name", name, "--ttl", "60m") for name in names])
                self.next_stock = MINTED_NEXT
            return self.minted.pop()

    def phone(self, pairing: Pairing | None = None, **more: Any) -> Phone:
        """A phone with that pairing or a fresh one, not connected yet."""
        pairing = pairing or self.pairing()
        phone = Phone(self.port, pairing.token, pairing.pin, **{"dial": self.dial} | more)
        self.called.append(phone)
        return phone

    @contextmanager
    def phones(self, count: int = 1) -> Iterator[list[Phone]]:
        """That many fresh phones, connected and ready, closed at the end."""
        phones = [self.phone() for _ in range(count)]
        try:
            for phone in phones:
                phone.ready()
            yield phones
        finally:
            for phone in phones:
                phone.close()

    # HTTP

    def https(self, **more: Any) -> Https:
        return Https(self.port, self.pin, **{"dial": self.dial} | more)

    def get(self, path: str, token: str | None = None, **more: Any) -> Response:
        return self.https().get(path, token=token, **more)

    def device_token(self) -> str:
        return self.pairing().token

    def post_hook(self, body: Any, **more: Any) -> Response:
        return self.https().post(EVENT, token=self.hook_token, json_body=body, **more)

    def post_batch(self, events: Any, **more: Any) -> Response:
        body = {"events": events}
        return self.https().post(BATCH, token=self.hook_token, json_body=body, **more)

    def health(self) -> dict[str, Any]:
        return dict(self.get("/api/v1/health", self.hook_token).json())

    def accept(self, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
        """Post events over one connection, each must be accepted; the answers."""
        answers = []
        with closing(self.https().open()) as connection:
            for body in bodies:
                answer = self.post_hook(body, connection=connection)
                assert answer.status == 200, answer
                answers.append(answer.json())
        return answers

    def session(self, session_id: str) -> dict[str, Any]:
        answer = self.get(f"/api/v1/sessions/{session_id}", self.admin_token)
        assert answer.status == 200, answer
        return dict(answer.json())

    def knows(self, session_id: str) -> bool:
        status = self.get(f"/api/v1/sessions/{session_id}", self.admin_token).status
        assert status in (200, 404), status
        return status == 200

    def watch(self, phone: Phone, *session_ids: str) -> None:
        """Make the sessions exist and the phone join them; it is at the present."""
        self.accept(*[prompt(session_id, "before") for session_id in session_ids])
        for session_id in session_ids:
            phone.join(session_id)
            phone.collect(
                lambda session_id=session_id: "before" in phone.numbers(session_id),  # type: ignore[misc]
                "what waited for the join",
            )
            phone.ack(*phone.events(session_id))
        phone.forget()

    def fence(self, *phones: Phone) -> None:
        """Wait until what was committed before this, and goes to these phones live, has gone."""
        session_id = new_session()
        self.accept(hook("SessionStart", session_id))
        for phone in phones:
            phone.expect("session_started", session_id=session_id)


def listener(path: Path) -> int:
    """The process that listens on a Unix socket; 0 for none."""
    held = os.open(path.parent, os.O_RDONLY)  # the system takes names of about 100 bytes
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            if sys.platform == "linux":
                connection.connect(f"/proc/self/fd/{held}/{path.name}")
                cred = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                return int(struct.unpack("3i", cred)[0])
            else:  # noqa: RET505 - each system's types are checked
                connection.connect(str(path))
                return connection.getsockopt(0, 2)  # LOCAL_PEERPID of SOL_LOCAL
    except OSError:
        return 0
    finally:
        os.close(held)


def query(database: Path, statement: str) -> list[Any]:
    """All rows that it gives; what it changes is committed."""
    with closing(sqlite3.connect(database)) as opened:
        found = opened.execute(statement).fetchall()
        opened.commit()
        return found
