"""Fork hosts from a process that has loaded what they need.

They share its memory. Each bridge has one, which ends with it; its hosts go on. It is alone in its
process, and has no threads: ``Forker`` of ``client.py`` starts it and speaks with it, in JSON, one
line each.
"""

import gc
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from bridge_project.kernel import child_environment, limits, ways
from bridge_project.kernel.config import conf
from sessions_app.agents import registry
from sessions_app.agents.host import host, sockets
from sessions_app.agents.process import groups


def main() -> None:
    """Take the bridge's requests from the socket that the argument names."""
    control = socket.socket(fileno=int(sys.argv[1]))
    os.umask(0o077)
    child_environment.hide_process()  # like the bridge: it has the same environment
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the hosts
    gc.disable()  # a collection would copy what the hosts share
    requests = control.makefile("rb")
    begin = json.loads(requests.readline() or b"null")
    if begin is None:
        return
    for name, value in begin["limits"].items():
        setattr(limits, name, value)
    conf.use_roots(begin["roots"])
    ways.linux.update(begin["ways"])
    registry.load()
    while line := requests.readline():
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            host.make_driver(request["agent"], joins=request["joins"])  # loads what it needs
            answer = {"pid": _fork(control, begin["instance"], **request)}
        except Exception:  # noqa: BLE001 - whatever it is, the bridge is told, and asks again
            answer = {"error": traceback.format_exc(limit=-3)}
        control.sendall(json.dumps(answer).encode() + b"\n")


def _fork(
    control: socket.socket, instance: str, agent: str, host_id: str, path: str, *, joins: bool
) -> int:
    """Fork a host, and return its pid once it listens. Raises OSError."""
    gc.collect()
    gc.freeze()
    ready, tells = os.pipe()
    if pid := os.fork():
        os.close(tells)
        with os.fdopen(ready, "rb") as told:
            if error := told.read().decode():
                raise OSError(error)
        return pid
    code = 1
    try:
        os.close(ready)
        control.close()
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gc.enable()
        groups.mark_as(f"{instance}/{host_id}")
        try:
            listening = sockets.listen(Path(path))
        except OSError as error:
            os.write(tells, str(error).encode())
            raise
        os.close(tells)
        host.run(agent, listening, Path(path), joins=joins)
        code = 0
    finally:
        os._exit(code)  # also where a thread hangs


if __name__ == "__main__":
    main()
