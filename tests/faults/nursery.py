"""The process that quick servers are forked from: what reads no setting is imported once, then for
each environment the rest of the project.

The root forks a template for each environment, and the template forks what is asked for: `manage.py
serve`, other commands, code. Neither of the two opens a database, runs an event loop or starts a
thread. A request is one JSON object on a Unix socket, with the files for standard output and
standard error and a pipe, to which the child's pid is written at once and its exit code at its end.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from typing import Any

REQUEST_BYTES = 200 * 1024
PRELOADED = (
    "autobahn.twisted.websocket",
    "bridge_project.operations.setup",
    "bridge_project.protocol.catalogue",
    "bridge_project.protocol.http",
    "bridge_project.protocol.parse",
    "channels.generic.websocket",
    "channels_redis.pubsub",
    "cryptography.x509",
    "django.contrib.admin",
    "django.contrib.postgres.fields",
    "django.core.handlers.asgi",
    "django.core.management.commands.migrate",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.test",
    "django.views.i18n",
    "dotenv",
    "hooks_app.producer.forwarder",
    "inflection",
    "prometheus_client.core",
    "redis.asyncio",
    "requests",
    "rest_framework.request",
    "rest_framework.serializers",
    "segno",
    "service_identity",
    "structlog",
    "twisted.internet.endpoints",
    "twisted.protocols.tls",
    "twisted.web.http",
    "uritemplate",
    "whitenoise.middleware",
    "yaml",
)
PROJECT = (
    "bridge_project.operations.startup",
    "bridge_project.asgi",
    "bridge_project.urls",
    "bridge_project.management.commands.serve",
)
# holds an event loop, which processes must not share: each server makes its own
REACTOR = "twisted.internet.reactor"

Request = dict[str, Any]


def main() -> None:
    """The root. Returns only in a child, once it is done."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in PRELOADED:
        importlib.import_module(name)
    _settle()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the templates
    while True:
        received = _receive(control, 1)
        if received is None:
            os._exit(0)
        request, (commands,) = received
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _template(request["environment"], socket.socket(fileno=commands))
            return
        os.close(commands)


def _settle() -> None:
    """Before the first fork: raises RuntimeError when there is something that two processes must
    not share.
    """
    if REACTOR in sys.modules or threading.active_count() > 1:
        raise RuntimeError(f"an event loop or threads before the fork: {threading.enumerate()}")
    gc.collect()
    gc.freeze()  # the collector leaves these objects alone, so that their memory stays shared


def _receive(control: socket.socket, files: int) -> tuple[Request, list[int]] | None:
    """A request and what came with it; None when nobody asks any more."""
    data, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, files)
    if not data:
        return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return json.loads(data), list(descriptors)


# -- the template ----------------------------------------------------------------------------------


def _template(environment: dict[str, str], commands: socket.socket) -> None:
    """Become the process that holds the project under one environment; returns in a child, once it
    is done.
    """
    os.environ.clear()
    os.environ.update(environment)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bridge_project.settings")
    sys.argv = ["manage.py"]
    import django

    django.setup()
    for name in PROJECT:
        importlib.import_module(name)
    from django.db import connections

    if any(one.connection is not None for one in connections.all(initialized_only=True)):
        raise RuntimeError("a database was opened before the fork")
    _settle()
    request = _Template(commands).run()
    if request is None:
        os._exit(0)  # to take all that was imported apart again would cost more than to import it
    _become(request)


class _Template:
    """Forks on request and tells of the ends of its children."""

    def __init__(self, commands: socket.socket) -> None:
        self.commands = commands
        self.pipes: dict[int, int] = {}  # pid → where its end is told

    def run(self) -> Request | None:
        """None when nobody asks any more; in a child the request."""
        woken, wakes = os.pipe()
        for end in (woken, wakes):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes)
        with selectors.DefaultSelector() as selector:
            selector.register(self.commands, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if woken in ready:
                    os.read(woken, 4096)
                    self._bury()
                if self.commands.fileno() in ready:
                    received = _receive(self.commands, 3)
                    if received is None:
                        self._end()
                        return None
                    if (request := self._fork(*received)) is not None:
                        return request

    def _fork(self, request: Request, files: list[int]) -> Request | None:
        out, err, told = files
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _redirect(out, err)
            return request
        os.close(out)
        os.close(err)
        os.write(told, f"{pid}\n".encode())
        self.pipes[pid] = told
        return None

    def _bury(self) -> None:
        for pid in list(self.pipes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._tell(pid, os.waitstatus_to_exitcode(status))

    def _tell(self, pid: int, code: int) -> None:
        told = self.pipes.pop(pid)
        try:
            os.write(told, f"{code}\n".encode())
        except BrokenPipeError:
            pass  # nobody wants to know
        os.close(told)

    def _end(self) -> None:
        """The tests are over or dead: nothing that was started here outlives them."""
        for pid in list(self.pipes):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# -- the child -------------------------------------------------------------------------------------


def _redirect(out: int, err: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    os.closerange(3, min(os.sysconf("SC_OPEN_MAX"), 65536))


def _become(request: Request) -> None:
    """Run what `python …` would run, with these arguments. Logging is set up again by Django, this
    time for the command.
    """
    sys.argv = list(request["arguments"])
    os.chdir(request["directory"])
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    if sys.argv[0] == "-c":
        exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
        return
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
