"""An agent of the tests' own: the Agent Client Protocol, version 1, with nothing but the standard
library: `python scripted_agent.py MODE JOURNAL`.

MODE is how it starts, the first word of a prompt what it does with it; `/do` is followed by Python.
What it was told stands in JOURNAL, a line of JSON each, which outlives it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

MODE, JOURNAL = sys.argv[1:3]
RUN = os.urandom(8).hex()  # a system gives a process's number again
OPTIONS = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
LATE = ("What was asked?", "This is what ", "was said.")
CAPABILITIES = {
    "no-load": {"loadSession": False},
    "sees": {"promptCapabilities": {"image": True}},
    "resumes": {"loadSession": False, "sessionCapabilities": {"resume": {}}},
    "lists": {"loadSession": True, "sessionCapabilities": {"list": {}}},
}
CHOICES = [{"value": name, "name": name.title()} for name in ("small", "large")]
SELECT = {"type": "select", "options": CHOICES, "currentValue": "small"}
# what it lets a person choose; of the unknown agent that it is, only the first two are offered
CONFIG = [
    {"id": "brain", "name": "Model", "category": "model", **SELECT},
    {"id": "depth", "name": "Thinking", "category": "thought_level", **SELECT},
    {"id": "style", "name": "Style", "category": "model_config", **SELECT},
    {"id": "approvals", "name": "Approvals", "category": "model", **SELECT},
]
ASKING = {"currentModeId": "asks", "availableModes": [{"id": "asks", "name": "Asks"}]}
MODELS = {
    "availableModels": [{"modelId": one["value"], "name": one["name"]} for one in CHOICES],
    "currentModelId": "small",
}
WAYS = [
    {"id": "key", "name": "A key", "description": "Requires SCRIPTED_API_KEY."},
    {"id": "browser", "name": "A browser"},
]


def main() -> None:
    if MODE == "exits":
        sys.exit("I need a newer machine")
    if MODE in ("hangs", "refuses"):
        key = os.environ.get("SCRIPTED_API_KEY")
        sys.stderr.write(f"waiting for the network with {key} and sk-{'1' * 20}\n")
    while MODE == "garbage":
        sys.stdout.write("this is no protocol\n")
    while MODE == "hangs":
        time.sleep(1000)
    if MODE == "banner":
        sys.stdout.write("Welcome!\n\nChecking for updates …\n")
    if MODE == "lingers":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listen(Scripted())
    if MODE == "lingers":
        journal("over")
        wait_for_go()


def listen(agent: Scripted) -> None:
    for line in sys.stdin.buffer:
        agent.hear(json.loads(line))


def wait_for_go() -> None:
    while not os.path.exists(f"{JOURNAL}-go"):
        time.sleep(0.01)


def journal(what: str, **more: Any) -> None:
    with open(JOURNAL, "ab") as file:
        about = {"what": what, "pid": os.getpid(), "run": RUN}
        file.write(json.dumps(about | more).encode() + b"\n")


class Refusal(Exception):
    """What a request is answered with in place of a result: code, message, details."""


class Scripted:
    """Requests are answered in threads of their own, so that a cancel is heard meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.numbers = itertools.count(1)
        self.waiting: dict[int, dict[str, Any]] = {}
        self.answered = threading.Condition()
        self.cancelled = threading.Event()
        self.busy: list[str] = []  # with which words it refuses the next prompts
        self.handlers = {
            "initialize": self.initialize,
            "session/new": self.new,
            "session/load": self.load,
            "session/list": self.list_kept,
            "session/resume": self.resume,
            "session/prompt": self.prompt,
            "session/set_config_option": self.set_option,
            "session/set_model": self.set_model,
            "session/set_mode": self.set_mode,
        }
        self.choices = [dict(one) for one in CONFIG]
        if os.path.exists("anew"):  # another brain has a depth of its own
            self.choices[1]["currentValue"] = "large"
        self.commands: dict[str, Callable[[str], None]] = {
            "/rate": self.rate,
            "/ask": self.ask_for,
            "/ask-many": self.ask_many,
            "/exit": self.exit,
            "/spawn": self.spawn,
            "/deaf": self.deaf,
            "/run": self.run,
            "/do": self.do,
        }

    def hear(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            journal("answered", number=message["id"])
            with self.answered:
                self.waiting[message["id"]] = message
                self.answered.notify_all()
        elif message["method"] == "session/cancel":
            self.cancelled.set()
        elif "id" in message:
            if message["method"] == "session/prompt":
                # here, in the order of what is heard: a cancel may be right behind it
                self.cancelled.clear()
            threading.Thread(target=self.obey, args=(message,), daemon=True).start()

    def send(self, **message: Any) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
            sys.stdout.flush()

    def obey(self, message: dict[str, Any]) -> None:
        self.number = message["id"]
        try:
            if message["method"] not in self.handlers:
                raise Refusal(-32601, "Method not found", "")
            result = self.handlers[message["method"]](message.get("params") or {})
        except Refusal as refusal:
            code, text, details = refusal.args
            error = {"code": code, "message": text, "data": {"details": details}}
            self.send(id=message["id"], error=error)
        else:
            self.send(id=message["id"], result=result)

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        self.capabilities = params.get("clientCapabilities")
        if MODE == "told":
            wait_for_go()
        if MODE == "nonsense":
            return {"protocolVersion": "first", "agentCapabilities": "all"}
        return {
            "protocolVersion": 99 if MODE == "version" else 1,
            "agentInfo": {"name": "scripted", "version": "1.0"},
            "agentCapabilities": CAPABILITIES.get(MODE, {"loadSession": True}),
            "authMethods": WAYS if MODE == "refuses" else [],
        }

    def new(self, params: dict[str, Any]) -> dict[str, Any]:
        if MODE == "refuses":
            raise Refusal(-32000, "Authentication required", "log in with `scripted login` first")
        journal("new")
        self.session = f"scripted-{os.getpid()}"
        if os.path.exists(f"{JOURNAL}-id"):  # how it shall name its sessions
            with open(f"{JOURNAL}-id") as file:
                self.session = file.read()
        return {"sessionId": self.session, **self.offered()}

    def offered(self) -> dict[str, Any]:
        if MODE == "models":
            return {"models": MODELS}
        if MODE == "lists":
            return {"modes": ASKING}
        return {"configOptions": self.choices} if MODE == "offers" else {}

    def set_option(self, params: dict[str, Any]) -> dict[str, Any]:
        """Takes the value; a file `refuses`, `silent` or `stubborn` has it do otherwise."""
        journal("set", option=params["configId"], value=params["value"])
        if os.path.exists("refuses"):
            raise Refusal(-32603, "Internal error", "that model has gone home")
        while os.path.exists("silent"):
            time.sleep(0.01)
        for one in self.choices:
            if one["id"] == params["configId"] and not os.path.exists("stubborn"):
                one["currentValue"] = params["value"]
        if os.path.exists("anew") and params["configId"] == "brain":
            self.choices[1]["currentValue"] = "small"
        return {"configOptions": self.choices}

    def set_model(self, params: dict[str, Any]) -> dict[str, Any]:
        journal("set", option="model", value=params["modelId"])
        return {}

    def set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    def load(self, params: dict[str, Any]) -> dict[str, Any]:
        self.session = params["sessionId"]
        journal("load", session=self.session)
        if MODE == "stuck":
            time.sleep(1000)
        for text in self.told() if MODE in ("tells", "lists") else ():
            self.say(text, "user_message_chunk")
            self.say("about ")
            self.update("tool_call", toolCallId="c", title="Looking", kind="search")
            self.say(text)
        if MODE == "late":
            self.say(f"<session_context>\n…</session_context>{LATE[0]}", "user_message_chunk")
            self.say("I look.")
            self.say("[Function Response: run_shell_command]", "user_message_chunk")
            threading.Thread(target=self.tell_late, daemon=True).start()
        if MODE == "forgets":
            raise Refusal(-32602, "Invalid params", "that conversation was deleted")
        return self.offered()

    def list_kept(self, params: dict[str, Any]) -> Any:
        """Says what JOURNAL-list has: `sessions` by `page`, or an `answer` as it is."""
        journal("list", cwd=params.get("cwd"), directory=os.getcwd())
        with open(f"{JOURNAL}-list") as file:
            kept = json.load(file)
        if "refusal" in kept:
            raise Refusal(*kept["refusal"])
        while kept.get("silent"):
            time.sleep(0.01)
        if "answer" in kept:
            return kept["answer"]
        first, page = int(params.get("cursor", 0)), kept.get("page", 100)
        sessions, following = kept["sessions"][first : first + page], first + page
        more = {"nextCursor": str(following)} if following < len(kept["sessions"]) else {}
        return {"sessions": sessions, **more}

    def resume(self, params: dict[str, Any]) -> dict[str, Any]:
        self.session = params["sessionId"]
        journal("resume", session=self.session)
        return self.offered()

    def tell_late(self) -> None:
        """Says of its history what the bridge is to hear when the session has begun."""
        for text in LATE[1:]:
            time.sleep(0.2)
            self.say(text)

    def told(self) -> list[str]:
        with open(JOURNAL) as file:
            lines = [json.loads(line) for line in file]
        return [
            one["text"] for one in lines if one.get("session") == self.session and "text" in one
        ]

    # what it does with a prompt

    def prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        text = "".join(block.get("text", "") for block in params["prompt"])
        self.session = params["sessionId"]
        if self.busy:
            raise Refusal(-32603, "Internal error", self.busy.pop())
        journal("prompt", text=text[:200], session=self.session)
        for block in params["prompt"]:
            if block["type"] == "image":
                journal("picture", kind=block["mimeType"], data=block["data"])
        word, _, rest = text.partition(" ")
        if word in self.commands:
            self.commands[word](rest)
        else:
            digest = hashlib.sha256(text.encode()).hexdigest()
            self.say(f"{len(text)} characters, {digest}: {text[-100:]}")
        return {"stopReason": "cancelled" if self.cancelled.is_set() else "end_turn"}

    def update(self, what: str, **parts: Any) -> None:
        update = {"sessionUpdate": what} | parts
        self.send(method="session/update", params={"sessionId": self.session, "update": update})

    def say(self, text: str, what: str = "agent_message_chunk") -> None:
        self.update(what, content={"type": "text", "text": text})

    def rate(self, rest: str) -> None:
        """LABEL COUNT PER_SECOND: so many numbered chunks, each due at its own time."""
        label, count, each = rest.split(" ")
        began = time.monotonic()
        for number in range(int(count)):
            if self.cancelled.wait(max(0.0, began + number / float(each) - time.monotonic())):
                return
            self.say(f"{label}-{number} ")
        journal("said", label=label, seconds=time.monotonic() - began)

    def request(self, method: str, **params: Any) -> int:
        number = next(self.numbers)
        self.send(id=number, method=method, params={"sessionId": self.session, **params})
        return number

    def answer(self, number: int) -> dict[str, Any]:
        """What the bridge answers; empty for an error."""
        with self.answered:
            self.answered.wait_for(lambda: number in self.waiting)
        return self.waiting[number].get("result") or {}

    def ask(self, call_id: str, options: list[dict[str, str]] = OPTIONS, **call: Any) -> int:
        call = {"toolCallId": call_id, "status": "pending"} | call
        return self.request("session/request_permission", toolCall=call, options=options)

    def allowed(self, number: int) -> bool:
        return bool(self.answer(number).get("outcome", {}).get("optionId") == "allow_once")

    def do(self, code: str) -> None:
        """Does as the Python says, which has the words of this agent at hand."""
        words = ("say", "send", "update", "request", "answer", "ask", "allowed")
        exec(code, {name: getattr(self, name) for name in words} | globals() | {"agent": self})

    def ask_for(self, command: str, runs: bool = False) -> None:
        """Asks for a command, and says which option was chosen."""
        call_id = f"call-{os.getpid()}-{next(self.numbers)}"
        number = self.ask(call_id, title=command, kind="execute", rawInput={"command": command})
        outcome = self.answer(number).get("outcome", {})
        journal("decided", call=call_id, outcome=outcome)
        allowed = outcome.get("optionId") == "allow_once"
        if MODE == "cancelling" and not allowed:
            self.cancelled.set()
        if allowed and runs:
            nothing = subprocess.DEVNULL
            subprocess.run(["sh", "-c", command], stdin=nothing, stdout=nothing, check=False)
        if allowed:
            text = {"type": "content", "content": {"type": "text", "text": f"ran {command}"}}
            self.update("tool_call_update", toolCallId=call_id, status="completed", content=[text])
        self.say(str(outcome.get("optionId", outcome.get("outcome"))))

    def ask_many(self, rest: str) -> None:
        """COUNT LABEL: so many questions at once."""
        count, label = rest.split(" ")
        lines = [f"ls {label}-{number}" for number in range(int(count))]
        asking = [threading.Thread(target=self.ask_for, args=(line,)) for line in lines]
        for one in asking:
            one.start()
        for one in asking:
            one.join()

    def run(self, command: str) -> None:
        self.ask_for(command, runs=True)

    def exit(self, code: str) -> None:
        self.say("so far ")
        sys.stderr.write("it went wrong\n")
        sys.stderr.flush()
        time.sleep(0.3)  # what it said is to be read before its end is seen
        os._exit(int(code))

    def spawn(self, rest: str) -> None:
        """Two processes of its own, one of which leaves its group."""
        for leaves in (False, True):
            command = ["sh", "-c", f"sleep 1000; : {JOURNAL}"]
            subprocess.Popen(command, start_new_session=leaves, stdout=subprocess.DEVNULL)
        self.say("spawned")

    def deaf(self, rest: str) -> None:
        """Does not yield when it is told to."""
        self.say("I hear nothing")
        time.sleep(1000)


if __name__ == "__main__":
    main()
