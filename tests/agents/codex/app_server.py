"""A stand-in for ``codex app-server`` 0.171, for what the real one cannot be made to do.

`python app_server.py SPEC JOURNAL`, with the standard library only. SPEC is a JSON object: for each
method the fields that its answer has besides, or `{"error": words}`; `exits`: what it says before
it ends at once. A prompt is Python, run with the functions of ``Turn``; the turn is over when it
has run, or was interrupted. What was said stands in JOURNAL, in both directions, a line each.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from typing import Any

Json = dict[str, Any]
SPEC: Json = json.loads(sys.argv[1])
JOURNAL = sys.argv[2]
HERE = os.getcwd()
THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"
CHILD = "0199a213-81c0-7800-8aa1-bbab2a03ffff"
THREAD_FIELDS: Json = {
    "id": THREAD,
    "sessionId": THREAD,
    "preview": "",
    "ephemeral": False,
    "turns": [],
    "historyMode": "paginated",
    "modelProvider": "s",
    "createdAt": 1,
    "updatedAt": 2,
    "projectId": None,
    "status": {"type": "idle"},
    "cwd": HERE,
    "cliVersion": "0.171.0",
    "source": "vscode",
}
EFFORTS = [{"reasoningEffort": name, "description": name} for name in ("low", "high")]


def model(name: str) -> Json:
    return {
        "id": name,
        "model": name,
        "displayName": name.title(),
        "description": "A model.",
        "hidden": False,
        "supportedReasoningEfforts": EFFORTS,
        "isDefault": name == "small",
        "defaultReasoningEffort": "low",
        "inputModalities": ["text", "image"],
    }


ASKS: Json = {
    "thread": THREAD_FIELDS,
    "model": "small",
    "modelProvider": "s",
    "cwd": HERE,
    "approvalPolicy": "untrusted",
    "approvalsReviewer": "user",
    "instructionSources": [],
    "sandbox": {"type": "readOnly", "networkAccess": False},
}
ANSWERS: dict[str, Json] = {
    "initialize": {
        "userAgent": "agent-bridge/0.171.0 (Debian 12; x86_64) xterm",
        "codexHome": HERE,
        "platformFamily": "unix",
        "platformOs": "linux",
    },
    "account/read": {"account": None, "requiresOpenaiAuth": False},
    "model/list": {"data": [model("small"), model("large")], "nextCursor": None},
    "thread/start": ASKS,
    "thread/resume": ASKS,
    "thread/items/list": {"data": [], "nextCursor": None},
    "thread/list": {"data": [THREAD_FIELDS], "nextCursor": None},
    "turn/steer": {"turnId": ""},
    "turn/interrupt": {},
}


class Interrupted(BaseException):
    """Ends a turn from within."""


class Server:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.waiting: dict[int, Json] = {}
        self.answered = threading.Condition()
        self.turns = itertools.count(1)
        self.turn: Turn | None = None
        self.journal = open(JOURNAL, "a", buffering=1)  # noqa: SIM115 - as long as it lives

    def listen(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            self.journal.write(json.dumps({"in": message}) + "\n")
            self.hear(message)

    def send(self, **message: Any) -> None:
        with self.lock:
            self.journal.write(json.dumps({"out": message}) + "\n")
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    def note(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def hear(self, message: Json) -> None:
        method: str | None = message.get("method")
        id_: Any = message.get("id")
        if method is None:
            with self.answered:
                self.waiting[id_] = message
                self.answered.notify_all()
        elif method == "turn/start":
            self.start_turn(id_, message["params"])
        elif id_ is not None:
            self.answer(id_, method)

    def answer(self, id_: int, method: str) -> None:
        spec = SPEC.get(method, {})
        if "error" in spec or method not in ANSWERS:
            words = spec.get("error", f"Invalid request: unknown variant `{method}`")
            self.send(id=id_, error={"code": -32600, "message": words})
            return
        if method == "turn/steer" and self.turn is None:
            self.send(id=id_, error={"code": -32600, "message": "no active turn to steer"})
            return
        self.send(id=id_, result=ANSWERS[method] | spec)
        if method == "turn/interrupt" and self.turn is not None:
            self.turn.stopped.set()
            with self.answered:
                self.answered.notify_all()

    def start_turn(self, id_: int, params: Json) -> None:
        self.turn = Turn(self, f"turn-{next(self.turns)}")
        self.send(id=id_, result={"turn": self.turn.fields("inProgress")})
        code = "".join(one.get("text", "") for one in params["input"])
        threading.Thread(target=self.turn.run, args=(code,), daemon=True).start()


class Turn:
    """One turn, and what a prompt may do in it."""

    def __init__(self, server: Server, id_: str, thread: str = THREAD) -> None:
        self.server, self.id, self.thread = server, id_, thread
        self.stopped = threading.Event()
        self.items = itertools.count(1)
        self.ends: Json = {}  # how it does, if not as it should

    def fields(self, status: str, **more: Any) -> Json:
        return {"id": self.id, "items": [], "itemsView": "notLoaded", "status": status, **more}

    def run(self, code: str) -> None:
        self.begin()
        status = "completed"
        try:
            exec(code, {name: getattr(self, name) for name in dir(self)} | globals())
        except Interrupted:
            status = "interrupted"
        self.server.turn = None
        self.end(**{"status": status, **self.ends})

    def begin(self) -> None:
        self.note("turn/started", turn=self.fields("inProgress"))

    def end(self, **more: Any) -> None:
        self.note("turn/completed", turn=self.fields("completed") | more)

    def note(self, method: str, **params: Any) -> None:
        """Report something of this turn's thread."""
        ids = {} if method.startswith("turn/") else {"turnId": self.id}
        self.server.note(method, **{"threadId": self.thread, **ids, **params})

    def say(self, *words: str) -> None:
        id_ = f"m{next(self.items)}"
        message = {"type": "agentMessage", "id": id_, "text": ""}
        self.note("item/started", item=message, startedAtMs=1)
        for word in words:
            self.note("item/agentMessage/delta", itemId=id_, delta=word)
        whole = message | {"text": "".join(words)}
        self.note("item/completed", item=whole, completedAtMs=2)

    def command(self, line: str, id_: str = "") -> Json:
        """An item that begins to run a command."""
        return self.item(
            "commandExecution",
            id_,
            command=f"/bin/bash -lc '{line}'",
            cwd=HERE,
            source="agent",
            commandActions=[{"type": "unknown", "command": line}],
        )

    def change(self, *changes: Json) -> Json:
        return self.item("fileChange", changes=[*changes])

    def item(self, kind: str, id_: str = "", **fields: Any) -> Json:
        id_ = id_ or f"call_{self.id}_{next(self.items)}"
        item = {"type": kind, "id": id_, "status": "inProgress", **fields}
        self.note("item/started", item=item, startedAtMs=1)
        return item

    def over(self, item: Json, status: str = "completed", **more: Any) -> None:
        self.note("item/completed", item=item | {"status": status} | more, completedAtMs=2)

    def ask_begun(self, method: str, **params: Any) -> int:
        """Ask the bridge; the number of the question."""
        number = next(self.server.numbers)
        ids = {"threadId": self.thread, "turnId": self.id}
        self.server.send(method=method, id=number, params={**ids, **params})
        return number

    def answer_to(self, number: int) -> Json:
        """The bridge's whole answer to a question."""
        with self.server.answered:
            self.server.answered.wait_for(
                lambda: number in self.server.waiting or self.stopped.is_set()
            )
        if number not in self.server.waiting:
            raise Interrupted
        self.note_resolved(number)
        return self.server.waiting[number]

    def note_resolved(self, number: int) -> None:
        self.server.note("serverRequest/resolved", threadId=self.thread, requestId=number)

    def ask(self, method: str, **params: Any) -> Json:
        answer = self.answer_to(self.ask_begun(method, **params))
        return answer.get("result") or {"error": answer["error"]}

    def may(self, item: Json, **more: Any) -> str:
        """Ask about an item, as codex does; the decision."""
        about = {"itemId": item["id"], "startedAtMs": 1, **more}
        if item["type"] == "commandExecution":
            about = {"kind": "command", "command": item["command"], "cwd": item["cwd"], **about}
            return str(self.ask("item/commandExecution/requestApproval", **about)["decision"])
        return str(self.ask("item/fileChange/requestApproval", **about)["decision"])

    def wait(self) -> None:
        """Wait to be interrupted."""
        self.stopped.wait()
        raise Interrupted

    def wait_for(self, path: str) -> None:
        """Wait until the test has made this file."""
        while not os.path.exists(path):
            time.sleep(0.01)

    def child(self) -> Turn:
        """A subagent's turn."""
        return Turn(self.server, f"{self.id}-child", CHILD)


if __name__ == "__main__":
    if "exits" in SPEC:
        sys.exit(SPEC["exits"])
    while SPEC.get("babbles"):
        sys.stdout.write("this is no protocol\n")
    Server().listen()
