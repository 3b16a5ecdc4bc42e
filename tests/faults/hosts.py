"""Hosts with a network and disks of their own: namespaces of Linux, and cables to pull out."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import AF_UNIX, SOCK_SEQPACKET, recv_fds, socketpair
from socket import socket as Socket  # noqa: N812 - hosts have a method of that name
from typing import Any

import pytest

from tests.conformance.bridge import REPOSITORY
from tests.faults.quick import Nursery, QuickBridge

AGENT = Path(__file__).with_name("host_agent.py")
OWN = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


class Host:
    """A network stack and a table of mounts; what `enter` precedes runs there."""

    enter: list[str]

    def __init__(self, beside: Host | None = None) -> None:
        """`beside`: another host, of the same user namespace, so that a cable can join them."""
        command = OWN if beside is None else [*beside.enter, "unshare", "--net", "--mount"]
        self._one_at_a_time = threading.Lock()
        self._control, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        with theirs:
            self._agent = subprocess.Popen(
                [*command, sys.executable, str(AGENT), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        self._control.settimeout(120)
        data = self._control.recv(65536)
        if not data:
            raise OSError(f"the host did not start: {self._agent.communicate()[1].decode()}")
        self.pid = int(json.loads(data)["pid"])
        spaces = ["--user", "--preserve-credentials", "--net", "--mount"]
        self.enter = ["nsenter", "--target", str(self.pid), *spaces, f"--wd={REPOSITORY}", "--"]
        self.nursery = Nursery(self.enter)

    def _do(self, do: str, **how: object) -> list[int]:
        with self._one_at_a_time:
            self._control.send(json.dumps({"do": do} | how).encode())
            data, descriptors, _, _ = recv_fds(self._control, 65536, 1)
        answer = json.loads(data)
        if "error" in answer:
            raise OSError(answer["error"])
        return list(descriptors)

    def socket(self) -> Socket:
        """A TCP socket of this host, for this process to use."""
        [descriptor] = self._do("socket")
        return Socket(fileno=descriptor)

    def dial(self, address: str, port: int, timeout: float, *, source: str | None = None) -> Socket:
        """A connection from this host. Raises OSError."""
        made = self.socket()
        try:
            made.settimeout(timeout)
            if source is not None:
                made.bind((source, 0))
            made.connect((address, port))
        except BaseException:
            made.close()
            raise
        return made

    def listen(self, port: int) -> Socket:
        """A socket of this host at which this process serves."""
        made = self.socket()
        made.bind(("0.0.0.0", port))
        made.listen(100)
        return made

    def mount(self, path: Path, size: str) -> None:
        """A disk of that size at `path`, to be seen on this host alone."""
        self._do("disk", path=str(path), size=size)

    def path(self, path: Path) -> Path:
        """Where this process sees what that host sees at `path`."""
        return Path(f"/proc/{self.pid}/root{path}")

    def close(self) -> None:
        """The host is gone, once nothing runs there any more."""
        self.nursery.close()
        self._control.close()
        self._agent.communicate(timeout=180)


_numbers = itertools.count(1)


class Cable:
    """Joins two hosts; `here` and `there` are their addresses on it."""

    def __init__(self, first: Host, second: Host, network: str = "") -> None:
        number = next(_numbers)
        self.name = f"cable{number}"
        self.first, self.second = first, second
        network = network or f"10.77.{number}"
        self.here, self.there = f"{network}.1", f"{network}.2"
        first._do("pair", name=self.name, pid=second.pid)
        first._do("address", name=self.name, address=self.here)
        second._do("address", name=self.name, address=self.there)

    def cut(self, end: Host) -> None:
        """Switch it off at that host, which knows; the other one hears nothing any more."""
        end._do("link", name=self.name, state="down")

    def mend(self) -> None:
        for end in (self.first, self.second):
            end._do("link", name=self.name, state="up")


def bridge_on(host: Host, directory: Path, **settings: Any) -> QuickBridge:
    """One that runs on that host, and that clients there reach."""
    bridge = QuickBridge(directory, **settings)
    bridge.nursery, bridge.enter = host.nursery, host.enter
    bridge.seen = host.path(bridge.data)
    bridge.dial = lambda timeout: host.dial("127.0.0.1", bridge.port, timeout)
    return bridge


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """That many hosts, without cables. Skips the test where the system has no such namespaces."""
    made: list[Host] = []
    with ExitStack() as ending:
        try:
            while len(made) < count:
                made.append(Host(made[0] if made else None))
                ending.callback(made[-1].close)
            if count > 1:
                Cable(made[0], made[1])  # which the system may refuse too
        except OSError as error:
            pytest.skip(f"no hosts of our own to be had here: {error}")
        yield made
