"""The process that quick servers are forked from.

The root imports what reads no setting, and forks a template for each environment, which imports
the rest and forks what is asked for: JSON on a Unix socket, with the files for output and errors
and a pipe, to which the child's pid is written, and its exit code, in four bytes each.
"""

import atexit
import gc
import importlib.util
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

REQUEST_BYTES = 200 * 1024
PRELOADED = """
acp.schema autobahn.twisted.websocket bridge_project.operations.setup
bridge_project.protocol.catalogue bridge_project.protocol.http bridge_project.protocol.parse
channels.generic.websocket channels_redis.pubsub cryptography.x509 devices_app.web_client
django.contrib.admin django.contrib.admindocs.views django.contrib.postgres.fields
django.core.handlers.asgi django.core.management.commands.migrate django.db.backends.postgresql.base
django.db.backends.sqlite3.base django.test django.views.i18n dotenv drf_spectacular.utils
files_app.git.patch hooks_app.producer.forwarder inflection plistlib prometheus_client.core psutil
redis.asyncio requests rest_framework.request rest_framework.serializers segno service_identity
sessions_app.agents.driver structlog twisted.internet.endpoints twisted.protocols.tls
twisted.web.http unfold.dataclasses unfold.sections uritemplate whitenoise.middleware yaml
"""
PROJECT = """
bridge_project.composition.startup bridge_project.asgi bridge_project.urls
bridge_project.management.commands.serve sessions_app.agents.acp.driver
sessions_app.agents.host.forker
"""
OPTIONAL = "claude_agent_sdk"  # which not every installation has
Request = dict[str, Any]


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in PRELOADED.split():
        importlib.import_module(name)
    if importlib.util.find_spec(OPTIONAL):
        importlib.import_module(OPTIONAL)
    _settle()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the templates
    while received := _receive(control, 1):
        request, (commands,) = received
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(_template(request["environment"], socket.socket(fileno=commands)))
        os.close(commands)
    os._exit(0)


def _settle() -> None:
    """Raise RuntimeError when there is something that two processes must not share."""
    if "twisted.internet.reactor" in sys.modules or threading.active_count() > 1:
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


def _template(environment: dict[str, str], commands: socket.socket) -> Request:
    """Hold the project under one environment and fork; returns in a child, with its request."""
    os.environ.clear()
    os.environ.update({"DJANGO_SETTINGS_MODULE": "bridge_project.settings"} | environment)
    sys.argv = ["manage.py"]
    import django

    with suppress(ValueError):  # settings that are refused, by what is run too
        django.setup()
        for name in PROJECT.split():
            importlib.import_module(name)
        from django.db import connections

        if any(one.connection is not None for one in connections.all(initialized_only=True)):
            raise RuntimeError("a database was opened before the fork")
    _settle()
    with selectors.DefaultSelector() as selector:
        selector.register(commands, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _bury(*key.data)
                elif (received := _receive(commands, 3)) is None:
                    _end([other.data[0] for other in selector.get_map().values() if other.data])
                elif pid := os.fork():
                    _, (out, err, told) = received
                    os.close(out)
                    os.close(err)
                    _tell(told, pid)
                    if sys.platform == "linux":
                        held = os.pidfd_open(pid)
                        selector.register(held, selectors.EVENT_READ, (pid, told))
                else:
                    selector.close()
                    os.setsid()
                    _redirect(*received[1][:2])
                    return received[0]


def _tell(told: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody wants to know
        os.write(told, number.to_bytes(4, "little", signed=True))


def _bury(pid: int, told: int) -> None:
    _tell(told, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os.close(told)


def _end(pids: list[int]) -> None:
    """The tests are over or dead: nothing that was started here outlives them."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os._exit(0)  # to take all that was imported apart again would cost more than to import it


def _redirect(out: int, err: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    os.closerange(3, min(os.sysconf("SC_OPEN_MAX"), 65536))


def _become(request: Request) -> None:
    """Run what `python …` would run, and end as it does, but for what `_end` leaves out, too."""
    sys.argv, code = list(request["arguments"]), 0
    os.chdir(request["directory"])
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    if "serve" in sys.argv:
        with suppress(ValueError):  # settings that are refused, by what is run too
            _have_forker()
    try:
        exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
        if sys.argv[0] != "-c":
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def _have_forker() -> None:
    """Keep a process that becomes the one that forks hosts, once the bridge wants it (D79)."""
    from sessions_app.agents.host import client, forker

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        os.setsid()
        if (received := _receive(theirs, 1)) is not None:
            theirs.close()
            sys.argv = ["-c", *map(str, received[1])]
            forker.main()
        os._exit(0)
    theirs.close()
    run, as_made = client.Forker._run, client._FORKER

    async def hand_over(self: client.Forker, control: socket.socket) -> None:
        if ours.fileno() < 0 or as_made != client._FORKER:  # it has been used; a test changed it
            await run(self, control)
        else:
            socket.send_fds(ours, [b"{}"], [control.fileno()])
            ours.close()

    client.Forker._run = hand_over  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
