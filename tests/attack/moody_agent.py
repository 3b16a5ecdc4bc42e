"""An ACP agent that acts unasked whenever it is not made to ask, with nothing but the standard
library.

It plays whichever agent its file is named after: `opencode` and `codex-acp` ask by their
environment and options, as the real ones do; any other asks by its mode. The last argument may be a
JSON object: `name` (its own), `modes`, `current`, `option` (they are a configuration option),
`locked` (how often a mode can be set), `restless` (it leaves each mode that is set), `deaf` (no
cancel stops it).

Prompts: `/act FILE` writes it, asking first if it asks at all; `/stray MODE FILE` goes to a mode
and acts when it was set back, or a minute later; `/offer KINDS FILE` asks with options of these
kinds; `/argv` tells what it was started with.
"""

import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

KIND = os.path.basename(sys.argv[0])
SPEC: dict[str, Any] = json.loads(sys.argv[-1]) if sys.argv[-1].startswith("{") else {}
ASKING = {"default", "ask", "manual", "read-only"}
CODEX = {"untrusted": "", "on-request": "read-only", "never": "full-access"}


class Moody:
    def __init__(self) -> None:
        self.lock, self.news = threading.Lock(), threading.Condition()
        self.answers: dict[int, dict[str, Any]] = {}
        self.cancelled, self.number, self.sets = False, 0, 0
        self.modes: list[str] = SPEC.get("modes", [])
        self.mode: str = SPEC.get("current") or (self.modes or [""])[0]
        if KIND == "opencode":
            self.modes, self.mode, SPEC["option"] = ["build", "plan"], "build", True
        if KIND == "codex-acp":
            policies = [word.partition("approval_policy=")[2] for word in sys.argv]
            self.mode = CODEX[[policy for policy in ("on-request", *policies) if policy][-1]]
            self.modes = ["read-only", "auto", "full-access"] if self.mode else []
        known = {"opencode": "OpenCode", "codex-acp": "codex-acp"}
        self.name: str = known.get(KIND) or SPEC.get("name", "moody")

    def asks(self) -> bool:
        if KIND == "opencode":
            permission = json.loads(os.environ.get("OPENCODE_PERMISSION", "{}"))
            alone = os.environ.get("OPENCODE_DISABLE_PROJECT_CONFIG") == "1"
            return permission.get("bash") == "ask" and (
                alone or not os.path.exists("opencode.json")
            )
        return not self.mode if KIND == "codex-acp" else self.mode in ASKING

    def send(self, **message: Any) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
            sys.stdout.flush()

    def update(self, **update: Any) -> None:
        self.send(method="session/update", params={"sessionId": "s", "update": update})

    def say(self, text: str) -> None:
        self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    def hear(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            with self.news:
                if message["id"] in self.answers:
                    self.write("answered-twice")
                self.answers[message["id"]] = message
                self.news.notify_all()
        elif message["method"] == "session/cancel":
            with self.news:
                self.cancelled = not SPEC.get("deaf")
                self.news.notify_all()
        else:
            threading.Thread(target=self.answer, args=(message,), daemon=True).start()

    def answer(self, message: dict[str, Any]) -> None:
        params, method = message.get("params") or {}, message["method"]
        if method == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": 1,
                "agentCapabilities": {"loadSession": True},
            }
            result |= {"agentInfo": {"name": self.name, "version": "1"}, "authMethods": []}
        elif method in ("session/new", "session/load"):
            result = {"sessionId": "s"} | self.offer()
        elif method in ("session/set_mode", "session/set_config_option"):
            result = self.set(params.get("modeId") or params["value"])
        else:
            text = "".join(part.get("text", "") for part in params["prompt"])
            result = {"stopReason": self.prompt(text)}
        self.send(id=message["id"], **(result if "error" in result else {"result": result}))
        if method.startswith("session/set_") and SPEC.get("restless"):
            self.report("yolo")

    def offer(self) -> dict[str, Any]:
        if not self.modes:
            return {}
        if SPEC.get("option"):
            return {"configOptions": self.options()}
        available = [{"id": mode, "name": mode} for mode in self.modes]
        return {"modes": {"currentModeId": self.mode, "availableModes": available}}

    def options(self) -> list[dict[str, Any]]:
        option = {"id": "mode", "name": "Mode", "category": "mode", "type": "select"}
        choices = [{"value": mode, "name": mode} for mode in self.modes]
        return [option | {"currentValue": self.mode, "options": choices}]

    def set(self, mode: str) -> dict[str, Any]:
        self.sets += 1
        if mode not in self.modes or self.sets > SPEC.get("locked", 1000):
            error = {"code": -32602, "message": "Invalid params"}
            return {"error": error | {"data": {"details": "this mode is locked"}}}
        with self.news:
            self.mode = mode
            self.news.notify_all()
        return {"configOptions": self.options()} if SPEC.get("option") else {}

    def report(self, mode: str) -> None:
        self.mode = mode
        if SPEC.get("option"):
            self.update(sessionUpdate="config_option_update", configOptions=self.options())
        else:
            self.update(sessionUpdate="current_mode_update", currentModeId=mode)

    def prompt(self, text: str) -> str:
        word, _, rest = text.partition(" ")
        self.cancelled = False
        if word == "/act":
            self.act(rest)
        elif word == "/stray":
            mode, _, name = rest.partition(" ")
            self.report(mode)
            with self.news:
                self.news.wait_for(lambda: self.mode in ASKING or self.cancelled, 60)
            self.act(name)
        elif word == "/offer":
            kinds, _, name = rest.partition(" ")
            self.act(name, kinds.split(","))
        elif word == "/argv":
            self.say(json.dumps(sys.argv[1:]))
        return "cancelled" if self.cancelled else "end_turn"

    def act(
        self, name: str, kinds: Sequence[str] = ("allow_always", "allow_once", "reject_once")
    ) -> None:
        if self.cancelled:
            return
        if self.asks() and self.ask(name, kinds) != "allow_once":
            self.say("refused")
            return
        self.write(name)
        self.say("written")

    def write(self, name: str) -> None:
        with open(name, "a") as file:
            file.write("written\n")

    def ask(self, name: str, kinds: Sequence[str]) -> str:
        self.number += 1
        number = self.number
        call: dict[str, Any] = {
            "toolCallId": f"call-{number}",
            "title": f"touch {name}",
            "kind": "execute",
        }
        call |= {"rawInput": {"command": f"touch {name}"}}
        options = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds]
        params = {"sessionId": "s", "toolCall": call, "options": options}
        self.send(id=number, method="session/request_permission", params=params)
        with self.news:
            self.news.wait_for(lambda: number in self.answers)
        outcome = self.answers[number].get("result", {}).get("outcome", {})
        chosen = outcome.get("optionId", outcome.get("outcome"))
        self.say(f"chosen {chosen} ")
        return str(chosen)


moody = Moody()
for line in sys.stdin.buffer:
    moody.hear(json.loads(line))
