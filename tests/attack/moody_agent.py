"""An ACP agent that acts unasked whenever it is not made to ask: `scripted_agent.py`, with modes.

`python moody_agent.py NAME JOURNAL [ARGUMENT …]`: as `opencode` it asks by its
environment, as the real one does; else by its mode. The last argument may be a JSON
object: `name` (its own), `modes`, `current`, `option` (they are a configuration option), `locked`
(how often a mode can be set), `restless` (it leaves each that is set), `deaf` (no cancel stops it),
`takes` (the mode that it takes, whichever is set), `allow_all` (an option of its own: it asks while
that is "off").

Prompts: `/act FILE` writes it, asking first if it asks at all; `/stray MODE FILE` goes to a mode,
and acts when it was set back or after a minute; `stray later` goes to a mode when the turn is over;
`/offer KINDS FILE` asks with such options.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, __file__.rpartition("/tests/")[0])

from tests.agents.scripted_agent import Refusal, Scripted, listen

KIND = sys.argv[1]
SPEC: dict[str, Any] = json.loads(sys.argv[-1]) if sys.argv[-1].startswith("{") else {}
COPILOT = "https://agentclientprotocol.com/protocol/session-modes#agent"
ASKING = {"default", "ask", "manual", "read-only", "normal", COPILOT}
KINDS = "allow_always,allow_once,reject_once"


class Moody(Scripted):
    def __init__(self) -> None:
        super().__init__()
        self.sets = 0
        self.modes: list[str] = SPEC.get("modes", [])
        self.mode: str = SPEC.get("current") or (self.modes or [""])[0]
        if KIND == "opencode":
            self.modes, self.mode, SPEC["option"] = ["build", "plan"], "build", True
        self.handlers |= {"session/set_mode": self.set, "session/set_config_option": self.set}
        self.commands: dict[str, Callable[[str], None]] = {
            "/act": self.act,
            "/stray": self.stray,
            "/offer": self.offer,
        }

    def asks(self) -> bool:
        if KIND == "opencode":
            permission = json.loads(os.environ.get("OPENCODE_PERMISSION", "{}"))
            alone = os.environ.get("OPENCODE_DISABLE_PROJECT_CONFIG") == "1"
            return permission.get("bash") == "ask" and (
                alone or not os.path.exists("opencode.json")
            )
        if SPEC.get("allow_all", "off") != "off":
            return False
        return self.mode in ASKING

    def hear(self, message: dict[str, Any]) -> None:
        if "method" not in message and message["id"] in self.waiting:
            self.touch("answered-twice")
        if message.get("method") != "session/cancel" or not SPEC.get("deaf"):
            super().hear(message)

    def obey(self, message: dict[str, Any]) -> None:
        super().obey(message)
        if "stray later" in json.dumps(message):
            self.report("yolo")
        if message["method"].startswith("session/set_") and SPEC.get("restless"):
            self.report("yolo")

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        name = "OpenCode" if KIND == "opencode" else SPEC.get("name", "moody")
        return super().initialize(params) | {"agentInfo": {"name": name, "version": "1"}}

    def new(self, params: dict[str, Any]) -> dict[str, Any]:
        return super().new(params) | self.state()

    def load(self, params: dict[str, Any]) -> dict[str, Any]:
        return super().load(params) | self.state()

    def state(self) -> dict[str, Any]:
        """What it says of its modes, in one of the two ways, if it has any."""
        if not self.modes:
            return {}
        if SPEC.get("option"):
            return {"configOptions": self.options()}
        available = [{"id": mode, "name": mode} for mode in self.modes]
        return {"modes": {"currentModeId": self.mode, "availableModes": available}}

    def options(self) -> list[dict[str, Any]]:
        option = {"id": "mode", "name": "Mode", "category": "mode", "type": "select"}
        choices = [{"value": mode, "name": mode} for mode in self.modes]
        found = [option | {"currentValue": self.mode, "options": choices}]
        if "allow_all" in SPEC:
            choices = [{"value": value, "name": value} for value in ("on", "off")]
            more = {"id": "allow_all", "name": "All", "type": "select", "options": choices}
            found.append(more | {"currentValue": SPEC["allow_all"]})
        return found

    def set(self, params: dict[str, Any]) -> dict[str, Any]:
        if params.get("configId") == "allow_all":
            SPEC["allow_all"] = params["value"]
            return {"configOptions": self.options()}
        mode = SPEC.get("takes") or params.get("modeId") or params["value"]
        self.sets += 1
        if mode not in self.modes or self.sets > SPEC.get("locked", 1000):
            raise Refusal(-32602, "Invalid params", "this mode is locked")
        self.mode = mode
        return {"configOptions": self.options()} if SPEC.get("option") else {}

    def report(self, mode: str) -> None:
        if mode == "allow_all":
            SPEC["allow_all"] = "on"
        else:
            self.mode = mode
        if SPEC.get("option"):
            self.update("config_option_update", configOptions=self.options())
        else:
            self.update("current_mode_update", currentModeId=mode)

    def stray(self, rest: str) -> None:
        mode, _, name = rest.partition(" ")
        self.report(mode)
        until = time.monotonic() + 60
        while not self.asks() and time.monotonic() < until:
            if self.cancelled.wait(0.01):
                break
        self.act(name)

    def offer(self, rest: str) -> None:
        kinds, _, name = rest.partition(" ")
        self.act(name, kinds)

    def act(self, name: str, kinds: str = KINDS) -> None:
        if self.cancelled.is_set():
            return
        if self.asks() and self.chosen(name, kinds) != "allow_once":
            self.say("refused")
        else:
            self.touch(name)
            self.say("written")

    def touch(self, name: str) -> None:
        with open(name, "a") as file:
            file.write("written\n")

    def chosen(self, name: str, kinds: str) -> str:
        """Ask; which option was chosen."""
        options = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds.split(",")]
        line = f"touch {name}"
        call = {"title": line, "kind": "execute", "rawInput": {"command": line}}
        number = self.ask(f"call-{next(self.numbers)}", options, **call)
        outcome = self.answer(number).get("outcome", {})
        chosen = str(outcome.get("optionId", outcome.get("outcome")))
        self.say(f"chosen {chosen} ")
        return chosen


listen(Moody())
