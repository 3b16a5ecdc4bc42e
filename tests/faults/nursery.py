"""The process that quick servers are forked from.

It imports the project once and forks what is asked for, which reads the settings anew from its own
environment. JSON on a Unix socket, with the files for output and errors and a pipe, to which the
child's pid is written, and its exit code, in four bytes each.
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
import tempfile
import threading
from contextlib import suppress
from typing import Any

REQUEST_BYTES = 200 * 1024
IMPORTED = """
django.core.management.commands.migrate django.db.backends.postgresql.base
django.db.backends.sqlite3.base django.test
bridge_project.composition.startup bridge_project.asgi bridge_project.urls
bridge_project.management.commands.serve sessions_app.agents.acp.driver
sessions_app.agents.host.forker
"""
OPTIONAL = "claude_agent_sdk"  # which not every installation has
# A process that starts as any other does: what refuses its settings is shown as it would be.
ALONE = """
import runpy, sys
code = sys.argv.pop(1)
sys.argv.pop(0)
exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
if sys.argv[0] != "-c":
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
Request = dict[str, Any]


def main() -> None:
    commands = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
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
                    _become(received[0])


def _import_all() -> None:
    """Import the project, with settings that nobody uses.

    Raises RuntimeError when there is then something that two processes must not share.
    """
    imported, sys.argv = json.loads(sys.argv[2]), ["manage.py"]
    with tempfile.TemporaryDirectory() as directory:
        os.environ.clear()
        os.environ.update(imported, BRIDGE_DATA_DIR=directory)
        import django
        import django.contrib.postgres.fields  # which the settings of SQLite leave out

        django.setup()
        for name in IMPORTED.split():
            importlib.import_module(name)
    if importlib.util.find_spec(OPTIONAL):
        importlib.import_module(OPTIONAL)
    from django.db import connections

    if any(one.connection is not None for one in connections.all(initialized_only=True)):
        raise RuntimeError("a database was opened before the fork")
    if "twisted.internet.reactor" in sys.modules or threading.active_count() > 1:
        raise RuntimeError(f"an event loop or threads before the fork: {threading.enumerate()}")
    gc.collect()
    gc.freeze()  # the collector leaves these objects alone, so that their memory stays shared


def _read_settings(environment: dict[str, str]) -> None:
    """Have what a process has that began with this environment.

    No module but the settings' own reads them while it is imported. Raises ValueError where they
    are refused.
    """
    os.environ.clear()
    os.environ.update(environment)
    from django.apps import apps
    from django.conf import Settings, settings
    from django.core.signals import setting_changed
    from django.db import connections

    from bridge_project import apps as our_apps
    from bridge_project.kernel import config

    for one in (our_apps, config):
        vars(one)["OWN_TIME_ZONE"] = environment.get("TZ")
    fresh = config.load()
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_private__"):
        object.__setattr__(config.conf, slot, getattr(fresh, slot))
    before, module = vars(settings)["_wrapped"], settings.SETTINGS_MODULE
    for name in dict.fromkeys(("bridge_project.settings", module)):
        importlib.reload(importlib.import_module(name))
    settings._wrapped = Settings(module)
    apps.get_app_config("kernel").ready()
    for name in set(dir(settings)) - {"DATABASES"}:
        value = getattr(settings, name)
        if name.isupper() and value != getattr(before, name, None):
            setting_changed.send(sender=None, setting=name, value=value, enter=True)
    connections.__dict__.pop("settings", None)
    connections.__init__()  # type: ignore[misc]


def _receive(control: socket.socket, files: int) -> tuple[Request, list[int]] | None:
    """A request and what came with it; None when nobody asks any more."""
    data, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, files)
    if not data:
        return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return json.loads(data), list(descriptors)


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
    environment: dict[str, str] = request["environment"]
    os.chdir(request["directory"])
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    try:
        _read_settings(environment)
    except ValueError:  # what runs is to say it, and to end as it does
        alone = [sys.executable, "-c", ALONE, request["code"], *sys.argv]
        os.execve(sys.executable, alone, environment)
    if "serve" in sys.argv:
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
