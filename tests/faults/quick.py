"""A bridge whose processes are forked in a fraction of a second, and as real as any."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import psycopg
import pytest

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.faults.nursery import ALONE
from tests.servers import Running


class QuickProcess:
    """What `subprocess.Popen` is, to a child that another process has forked."""

    def __init__(self, told: int, what: str) -> None:
        self.what = what
        self.returncode: int | None = None
        self._told = told
        self._lock = threading.Lock()
        self.pid = self._number(120)

    def _number(self, seconds: float) -> int:
        """The next number told. Raises TimeoutExpired, or EOFError when the template has died."""
        told = select.poll()
        told.register(self._told, select.POLLIN)
        if not told.poll(seconds * 1000):
            raise subprocess.TimeoutExpired(self.what, seconds)
        data = os.read(self._told, 4)
        if not data:
            raise EOFError(f"the process that forks {self.what} has died")
        return int.from_bytes(data, "little", signed=True)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        with self._lock:
            if self.returncode is None:
                self.returncode = self._number(3600 if timeout is None else timeout)
                os.close(self._told)
            return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it is buried, and its exit code on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


OURS = {"DJANGO_SETTINGS_MODULE": "bridge_project.settings", "TESTS_SHORT": ""}
# by pidfd and SOCK_SEQPACKET; elsewhere each process starts by itself
CAN_FORK = sys.platform == "linux"
KEPT = 2  # roots that are kept though nothing of theirs runs: each holds ninety megabytes


class Root:
    """A process that has imported the project with a module of settings, and forks (nursery.py)."""

    def __init__(self, enter: Sequence[str], imported: dict[str, str]) -> None:
        self._children: dict[str, list[QuickProcess]] = {}  # by environment
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.faults.nursery", str(theirs.fileno())]
            self._process = subprocess.Popen(
                [*enter, *command, json.dumps(imported)],
                cwd=REPOSITORY,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def fork(
        self, arguments: list[str], environment: dict[str, str], code: str, files: list[int]
    ) -> QuickProcess:
        """``files``: for output and errors."""
        told, tells = os.pipe()
        request: dict[str, Any] = {"arguments": arguments, "directory": str(REPOSITORY)}
        request |= {"code": code, "environment": environment}
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], [*files, tells])
        finally:
            os.close(tells)
        process = QuickProcess(told, " ".join(arguments[:2]))
        self._children.setdefault(json.dumps(environment), []).append(process)
        return process

    def end_all(self, environment: dict[str, str]) -> None:
        for process in self._children.pop(json.dumps(environment), ()):
            process.kill()
            process.wait(60)

    def is_used(self) -> bool:
        return any(one.poll() is None for each in self._children.values() for one in each)

    def close(self) -> None:
        self._control.close()
        self._process.wait(180)


class Nursery:
    """Forks processes of a host; started when first asked, ended with the process of tests."""

    def __init__(self, enter: Sequence[str] = ()) -> None:
        """``enter``: the command that runs what follows on another host, or as another user."""
        self.enter = enter
        self._lock = threading.Lock()
        self._roots: dict[str, Root] = {}  # by what they have imported
        self._owner = os.getpid()
        atexit.register(self.close)

    def spawn(
        self,
        arguments: list[str],
        environment: dict[str, str],
        out: IO[bytes],
        err: IO[bytes],
        code: str = "",
    ) -> Running:
        """`python ARGUMENTS` in the repository's directory."""
        environment = OURS | environment
        if not CAN_FORK:
            return subprocess.Popen(
                [sys.executable, "-c", ALONE, code, *arguments],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        with self._lock:
            files = [out.fileno(), err.fileno()]
            return self._root(environment).fork(arguments, environment, code, files)

    def _root(self, environment: dict[str, str]) -> Root:
        imported = {name: environment[name] for name in OURS}
        root = self._roots.pop(key := str(imported), None)
        if root is None:
            unused = [one for one, other in self._roots.items() if not other.is_used()]
            for one in unused[: 1 - KEPT]:
                self._roots.pop(one).close()
            root = Root(self.enter, imported)
        self._roots[key] = root  # the newest is last
        return root

    def end_all(self, environment: dict[str, str]) -> None:
        """End what still runs of what was started with this environment."""
        with self._lock:
            for root in self._roots.values():
                root.end_all(OURS | environment)

    def close(self) -> None:
        if os.getpid() == self._owner:
            while self._roots:
                self._roots.popitem()[1].close()


nursery = Nursery()


UNALLOWED = """
    SELECT tool, params, result FROM sessions_app_toolcall AS call
    JOIN sessions_app_session AS session ON session.id = call.session_id
    WHERE source = 'agent_sdk' AND result IS NOT NULL AND NOT shared  -- the desk decides too
      AND (decision IN ('rejected', 'pending')
           OR (asks AND decision IS NULL AND (tool = 'Bash' OR risk_level <> 'low')))
"""


class QuickBridge(Bridge):
    """A Bridge whose processes are forked, on a database that has its tables; they run `first`."""

    first = ""

    # by an agent that lies, as `_unallowed` gives them
    played_unallowed: tuple[str, ...] = ()

    # what an SQLite file with tables holds that no bridge has used
    unused_file: ClassVar[bytes | None] = None
    known: ClassVar[set[str]] = set()  # URLs of databases that have their tables

    def __init__(self, directory: Path, *, first: str = "", **settings: Any) -> None:
        super().__init__(directory, **settings)
        self.first += first
        self.seen = self.data  # where the tests see the data directory
        self.nursery = nursery

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """It is over, however it was left, and can be made anew."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
        self.nursery.end_all(self.environment)
        if (self.seen / "bridge.sqlite3").exists():
            assert [one for one in self._unallowed() if one not in self.played_unallowed] == []

    def _unallowed(self) -> list[str]:
        """The calls that an agent of this bridge executed without a person's word or a rule.

        What only reads may go unasked. Where nobody knows whether an agent asks, only those that
        were refused, or wait.
        """
        file = f"file:{self.seen / 'bridge.sqlite3'}?mode=ro"
        try:
            with closing(sqlite3.connect(file, uri=True)) as database:
                found = database.execute(UNALLOWED).fetchall()
        except sqlite3.OperationalError:  # a test has filled its disk, or taken its tables
            return []
        return [
            f"{tool} {params}" for tool, params, result in found if json.loads(result)["success"]
        ]

    @property
    def shared(self) -> dict[str, str]:
        """What every process of the same bridge has: its stores and its tokens."""
        names = ("DATABASE_URL", "REDIS_URL", "BRIDGE_HOOK_TOKEN", "BRIDGE_ADMIN_TOKEN")
        return {name: self.settings[name] for name in names if name in self.settings}

    def beside(self, directory: Path, **settings: Any) -> QuickBridge:
        """Another process of the same bridge."""
        return QuickBridge(directory, **self.shared | settings)

    def spawn(self) -> Bridge:
        url = self.settings.get("DATABASE_URL", "")
        if url.startswith("postgresql:") and url not in self.known:
            self._make_tables_at(url)
        elif not url and not (self.seen / "bridge.sqlite3").exists():
            self._make_tables()
        return super().spawn()

    def _make_tables(self) -> None:
        file = self.seen / "bridge.sqlite3"
        self.seen.mkdir(mode=0o700, exist_ok=True)
        file.touch(0o600)
        if self.unused_file is not None:
            file.write_bytes(self.unused_file)
        else:
            self.manage("migrate", "--verbosity", "0")
            assert not file.with_name(f"{file.name}-wal").exists(), "all of it is in the file"
            QuickBridge.unused_file = file.read_bytes()

    def _make_tables_at(self, url: str) -> None:
        """Copy tables made before; not where the database was used, or is out of reach."""
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
            connection.execute("SELECT pg_advisory_lock(1)")  # other workers of the run do the same
            there = "SELECT 1 FROM pg_database WHERE datname = 'unused'"
            if connection.execute(there).fetchone() is not None:
                connection.execute(f'DROP DATABASE "{name}"'.encode())
                connection.execute(f'CREATE DATABASE "{name}" TEMPLATE unused'.encode())
            else:
                self.manage("migrate", "--verbosity", "0")
                connection.execute(f'CREATE DATABASE unused TEMPLATE "{name}"'.encode())

    def popen(self, arguments: list[str], log: IO[bytes]) -> Running:
        return self._spawn(arguments, log, log)

    def _spawn(self, arguments: list[str], out: IO[bytes], err: IO[bytes]) -> Running:
        code = self.first
        if arguments[0] == "-c":
            code, arguments = code + arguments[1], ["-c", *arguments[2:]]
        return self.nursery.spawn(arguments, self.environment, out, err, code)

    def run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self._spawn(arguments, out, err)
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


class Untroubled(QuickBridge):
    """At its end no traceback is in its log."""

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        assert "Traceback" not in self.log.read_text()


def bridge_of_module(kind: type[QuickBridge] = QuickBridge, /, **settings: Any) -> object:
    """A fixture of a module: a quick bridge of this kind with these settings."""

    @pytest.fixture(scope="module")
    def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickBridge]:
        with kind(tmp_path_factory.mktemp("bridge"), **settings) as bridge:
            yield bridge

    return bridge


def with_limits(**limits: float) -> str:
    """What a bridge executes first to have these numbers of limits.py."""
    lines = [f"assert hasattr(limits, {name!r}); limits.{name} = {limits[name]}" for name in limits]
    return "\n".join(["from bridge_project.kernel import limits", *lines, ""])
