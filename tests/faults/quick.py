"""A bridge whose processes start in a fraction of a second: forked from one that has everything
imported (nursery.py), and as real as any.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, ClassVar

import psycopg

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.servers import Running


class QuickProcess:
    """What `subprocess.Popen` is to a child that another process has forked. `pid` leads a session
    of its own.
    """

    def __init__(self, told: int, what: str) -> None:
        self.what = what
        self.returncode: int | None = None
        self._told = told
        self._said = b""
        self._lock = threading.Lock()
        self.pid = int(self._line(120))

    def _line(self, seconds: float) -> str:
        """The next line that the template writes. Raises TimeoutExpired, or EOFError when it has
        died.
        """
        deadline = time.monotonic() + seconds
        while b"\n" not in self._said:
            if not select.select([self._told], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise subprocess.TimeoutExpired(self.what, seconds)
            data = os.read(self._told, 64)
            if not data:
                raise EOFError(f"the process that forks {self.what} has died")
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self._line(3600 if timeout is None else timeout))
                os.close(self._told)
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Nursery:
    """One for each process of tests, started when first asked and ended with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._templates: dict[str, socket.socket] = {}
        self._owner = os.getpid()

    def spawn(
        self,
        arguments: list[str],
        environment: dict[str, str],
        out: IO[bytes],
        err: IO[bytes],
        code: str = "",
    ) -> QuickProcess:
        """`python ARGUMENTS` in the repository's directory."""
        told, tells = os.pipe()
        request = json.dumps(
            {"arguments": arguments, "directory": str(REPOSITORY), "code": code}
        ).encode()
        try:
            with self._lock:
                socket.send_fds(
                    self._template(environment), [request], [out.fileno(), err.fileno(), tells]
                )
        finally:
            os.close(tells)
        return QuickProcess(told, " ".join(arguments[:2]))

    def prepare(self, environment: dict[str, str]) -> None:
        """Have a template made for this environment, without waiting for it."""
        with self._lock:
            self._template(environment)

    def _template(self, environment: dict[str, str]) -> socket.socket:
        key = json.dumps(environment, sort_keys=True)
        if key in self._templates:
            self._templates[key] = self._templates.pop(key)  # the newest is last
            return self._templates[key]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(
                self._started(),
                [json.dumps({"environment": environment}).encode()],
                [theirs.fileno()],
            )
        self._templates[key] = ours
        return ours

    def forget(self, environment: dict[str, str]) -> None:
        """End the template of this environment, and with it whatever of its children still runs."""
        with self._lock:
            template = self._templates.pop(json.dumps(environment, sort_keys=True), None)
        if template is not None:
            template.close()

    def _started(self) -> socket.socket:
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command = [sys.executable, "-m", "tests.faults.nursery", str(theirs.fileno())]
                self._root = subprocess.Popen(
                    command,
                    cwd=REPOSITORY,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            atexit.register(self.close)
        return self._control

    def close(self) -> None:
        if os.getpid() != self._owner:
            return
        for template in self._templates.values():
            template.close()
        self._templates.clear()
        if self._control is not None and self._root is not None:
            self._control.close()
            self._root.wait(180)
            self._control = self._root = None


nursery = Nursery()


class QuickBridge(Bridge):
    """A Bridge like any other, but for how its processes come to be, and that its first one finds a
    database with all its tables.

    The first start of an environment takes longer than those after it.
    """

    # Databases with tables that no bridge has used:
    unused_file: ClassVar[bytes | None] = None  # what an SQLite file holds
    unused_at: ClassVar[dict[str, str]] = {}  # a server's URL → the database's name
    known: ClassVar[set[str]] = set()  # URLs of databases that have their tables

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(directory, **settings)
        nursery.prepare(self.environment)

    def spawn(self) -> Bridge:
        url = self.settings.get("DATABASE_URL", "")
        if url.startswith("postgresql:") and url not in self.known:
            self._make_tables_at(url)
        elif not url and not self._file.exists():
            self._make_tables()
        return super().spawn()

    @property
    def _file(self) -> Path:
        return self.data / "bridge.sqlite3"

    def _make_tables(self) -> None:
        if self.unused_file is not None:
            self.data.mkdir(mode=0o700, exist_ok=True)
            self._file.touch(0o600)
            self._file.write_bytes(self.unused_file)
        elif not self.enter:
            self.data.mkdir(mode=0o700, exist_ok=True)
            self._file.touch(0o600)
            self.manage("migrate", "--verbosity", "0")
            assert not self._file.with_name(f"{self._file.name}-wal").exists(), (
                "all of it is in the file"
            )
            QuickBridge.unused_file = self._file.read_bytes()

    def _make_tables_at(self, url: str) -> None:
        """Nothing, where the database is one that something else has used, or cannot be reached
        from here.
        """
        server, _, name = url.rpartition("/")
        self.known.add(url)
        try:
            with psycopg.connect(url, connect_timeout=2) as connection:
                used = connection.execute(
                    "SELECT 1 FROM pg_tables WHERE schemaname = 'public' LIMIT 1"
                ).fetchone()
        except psycopg.OperationalError:
            return
        if used is not None or self.enter:
            return
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            if server in self.unused_at:
                connection.execute(f'DROP DATABASE "{name}"'.encode())
                connection.execute(
                    f'CREATE DATABASE "{name}" TEMPLATE "{self.unused_at[server]}"'.encode()
                )
            else:
                self.manage("migrate", "--verbosity", "0")
                self.unused_at[server] = f"{name}_unused"
                connection.execute(f'CREATE DATABASE "{name}_unused" TEMPLATE "{name}"'.encode())

    def popen(self, arguments: list[str], log: IO[bytes]) -> Running:
        if self.enter:
            return super().popen(arguments, log)  # it runs elsewhere, where nothing can be forked
        return nursery.spawn(arguments, self.environment, log, log)

    def run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        if self.enter:
            return super().run(arguments)
        code, words = (
            ("", arguments) if arguments[0] != "-c" else (arguments[1], ["-c", *arguments[2:]])
        )
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = nursery.spawn(words, self.environment, out, err, code)
            try:
                returncode = process.wait(180)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(
                arguments, returncode, out.read().decode(), err.read().decode()
            )


class ImpatientBridge(QuickBridge):
    """It serves as any other, but with a shorter limit of a minute."""

    limit: str  # its name in limits.py
    seconds: int

    def popen(self, arguments: list[str], log: IO[bytes]) -> Running:
        assert arguments == ["manage.py", "serve"]
        code = IMPATIENT.format(limit=self.limit, seconds=self.seconds)
        return nursery.spawn(["-c"], self.environment, log, log, code)


IMPATIENT = """
import runpy, sys
from bridge_project.kernel import limits
assert limits.{limit} == 60
limits.{limit} = {seconds}
sys.argv = ["manage.py", "serve"]
runpy.run_path("manage.py", run_name="__main__")
"""
