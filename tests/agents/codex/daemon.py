"""A stand-in for codex's server at the desk, which a test plays (D80)."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, unix_serve

from tests.servers import wait_until

Json = dict[str, Any]
THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"
CHILD = "0199a213-81c0-7800-8aa1-bbab2a03ffff"
OTHER = "0199a213-81c0-7800-8aa1-bbab2a03eeee"
ASKS: Json = {
    "model": "small",
    "approvalPolicy": "on-request",
    "approvalsReviewer": "user",
    "sandbox": {"type": "readOnly", "networkAccess": False},
}
UNASKED: Json = {"approvalPolicy": "never"}


class Daemon:
    """Listens where codex's would with this home; ``spec`` is as the other stand-in's.

    ``heard`` is all that it was asked, ``answers`` what it was answered, by the question's number.
    """

    def __init__(self, home: Path, directory: Path, **spec: Any) -> None:
        thread = {"id": THREAD, "cwd": str(directory), "name": None, "parentThreadId": None}
        self.spec: Json = {
            "initialize": {"userAgent": "codex-tui/0.171.0 (Debian)"},
            "thread/loaded/list": {"data": [THREAD, OTHER], "nextCursor": None},
            "thread/read": {"thread": {"id": OTHER, "parentThreadId": None}},
            "thread/resume": {"thread": thread, **ASKS},
            "turn/start": {"turn": {"id": "turn-1", "status": "inProgress"}},
            **spec,
        }
        self.heard: list[Json] = []
        self.answers: dict[int, Json] = {}
        self.joined: list[ServerConnection] = []
        self.numbers = itertools.count()
        self.place = TemporaryDirectory(prefix="d-")  # whose path is short
        self.path = Path(self.place.name).resolve() / "socket"
        self.link = home / "app-server-control" / "app-server-control.sock"
        self.link.parent.mkdir(parents=True, exist_ok=True)
        self.link.symlink_to(self.path)
        self.server = unix_serve(self._serve, path=str(self.path), compression=None)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _serve(self, socket: ServerConnection) -> None:
        for frame in socket:
            message = json.loads(frame)
            if "method" not in message:
                self.answers[message["id"]] = message
                continue
            self.heard.append(message)
            if message["method"] == "thread/resume":
                self.joined.append(socket)
            if "id" in message:
                answer = self.spec.get(message["method"], {})
                if "approvalPolicy" in answer:  # it is the thread that was asked for
                    thread = {**answer["thread"], "id": message["params"]["threadId"]}
                    answer = {**answer, "thread": thread}
                error = {"error": {"message": answer["error"]}} if "error" in answer else None
                socket.send(json.dumps({"id": message["id"], **(error or {"result": answer})}))
        if socket in self.joined:
            self.joined.remove(socket)

    def send(self, **message: Any) -> None:
        for socket in self.joined:
            try:
                socket.send(json.dumps(message))
            except ConnectionClosed:  # it has left
                self.joined.remove(socket)

    def note(self, method: str, thread: str = THREAD, **params: Any) -> None:
        self.send(method=method, params={"threadId": thread, **params})

    def turn(self, thread: str = THREAD, id_: str = "turn-9", **ends: Any) -> None:
        """Begin a turn, or end it."""
        method, status = ("turn/completed", ends) if ends else ("turn/started", {})
        self.note(method, thread, turn={"id": id_, "status": "inProgress", **status})

    def typed(self, words: str, client: str = "desk") -> None:
        """A person at the desk begins a turn."""
        self.turn()
        said: Json = {"type": "userMessage", "id": f"u-{words}", "clientId": client}
        said["content"] = [{"type": "text", "text": words}]
        self.note("item/started", item=said)

    def say(self, words: str) -> None:
        self.note("item/agentMessage/delta", itemId=words, delta=words)

    def command(self, line: str, thread: str = THREAD) -> Json:
        """A command that has begun."""
        item = {"type": "commandExecution", "id": f"c-{line}", "command": line, "cwd": "/"}
        self.note("item/started", thread, item={**item, "status": "inProgress"})
        return item

    def ask(self, method: str, thread: str = THREAD, **params: Any) -> int:
        """Ask all who have joined; the number of the question."""
        number = next(self.numbers)
        params = {"threadId": thread, "turnId": "turn-9", **params}
        self.send(method=f"item/{method}/requestApproval", id=number, params=params)
        return number

    def may(self, item: Json, thread: str = THREAD) -> int:
        about = {"itemId": item["id"], "command": item["command"], "cwd": "/", "kind": "command"}
        return self.ask("commandExecution", thread, **about)

    def resolve(self, number: int, thread: str = THREAD) -> None:
        self.note("serverRequest/resolved", thread, requestId=number)

    def over(self, item: Json, status: str = "completed", thread: str = THREAD) -> None:
        self.note("item/completed", thread, item={**item, "status": status, "exitCode": 0})

    def decision(self, number: int) -> str:
        """What the bridge has decided."""
        return str(wait_until(lambda: self.answers.get(number))["result"]["decision"])

    def asked_for(self, method: str) -> list[Json]:
        """The parameters of what it was asked by this method."""
        return [one["params"] for one in self.heard if one["method"] == method]

    def close(self) -> None:
        """It is killed."""
        self.server.shutdown()
        for socket in tuple(self.joined):
            socket.close()
        self.place.cleanup()
