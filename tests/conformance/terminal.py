"""An agent in a terminal, as far as its hooks tell: a process that runs the installed command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from hooks_app.producer.shell_command import answer_command, hook_command
from tests.conformance.approvals import notifications
from tests.conformance.phone import Phone
from tests.servers import wait_until
from tests.short import short

# as in a container: process ids of its own
CONTAINER = ["unshare", "--user", "--map-root-user", "--mount-proc", "--pid", "--fork"]
CONTAINER += ["--kill-child"]
# Runs the command for each line that it is given, as an agent does, and says when it has ended. A
# line with "dialog" is a permission request: its hook runs beside the dialog, and what it prints
# becomes a file of that name. "no": the desk refuses in that dialog, which ends its hook.
AGENT = """
import json, os, subprocess, sys, threading
PIPE, hooks = subprocess.PIPE, {}
def ask(name, hook, event):
    printed = hook.communicate(event)[0]
    with open(name + ".draft", "wb") as file:
        file.write(printed)
    os.rename(name + ".draft", name)
for line in sys.stdin:
    asked = json.loads(line)
    if "no" in asked:
        hooks[asked["no"]].terminate()
        continue
    event, name = json.dumps(asked["event"]).encode(), asked.get("dialog")
    if name is None:
        command = ["/bin/sh", "-c", sys.argv[1]]
        done = subprocess.run(command, input=event, capture_output=True)
        print(done.returncode, len(done.stdout + done.stderr), flush=True)
        continue
    known = os.environ | {"CLAUDE_PID": str(os.getpid())} | asked["environment"]
    command = ["/bin/sh", "-c", sys.argv[2]]
    hooks[name] = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=known)
    threading.Thread(target=ask, args=(name, hooks[name], event), daemon=True).start()
"""


COMMANDS = (hook_command, answer_command)


class Dialog:
    """A permission request that an agent's terminal shows, and its hook that may wait."""

    def __init__(self, printed: Path) -> None:
        self.printed = printed

    @property
    def over(self) -> bool:
        return self.printed.exists()

    def answer(self) -> Any:
        """What the hook printed in the end, as an agent reads it; None for nothing."""
        wait_until(lambda: self.over, "the hook still waits")
        text = self.printed.read_bytes()
        return json.loads(text)["hookSpecificOutput"]["decision"] if text else None


class Terminal:
    """``home``: what the program has for CLAUDE_CONFIG_DIR; ``inside``: a command to run it by."""

    def __init__(
        self, data: Path, session_id: str, directory: str, home: Path, inside: Sequence[str] = ()
    ) -> None:
        self.session_id, self.directory, self.home = session_id, directory, home
        self._dialogs = 0
        kept = {name: value for name, value in os.environ.items() if name != "CLAUDE_PID"}
        self.process = subprocess.Popen(
            [
                *(*inside, sys.executable, "-c", AGENT),
                *(make(str(data / "spool")) for make in COMMANDS),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept | {"CLAUDE_CONFIG_DIR": str(home)},
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def hook(self, event: str, **fields: Any) -> None:
        """Run the hook command for an event, to its end."""
        body = {"hook_event_name": event, "session_id": self.session_id, "cwd": self.directory}
        self._say(event=body | fields)
        assert self.process.stdout
        assert self.process.stdout.readline() == "0 0\n", "it is silent, and never fails"

    def _say(self, **what: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def asks(self, tool: str, params: dict[str, Any], /, **fields: Any) -> Dialog:
        """Show a dialog beside the hook of its request, whose command may wait (D66).

        ``entrypoint``: how the program was started, `cli` where a person sits at it.
        """
        environment = {"CLAUDE_CODE_ENTRYPOINT": fields.pop("entrypoint", "cli")}
        body: dict[str, Any] = {"hook_event_name": "PermissionRequest"}
        body |= {
            "session_id": self.session_id,
            "cwd": self.directory,
            "tool_name": tool,
            "tool_input": params,
        }
        self.home.mkdir(exist_ok=True)
        self._dialogs += 1
        printed = self.home / f"{self.process.pid}-{self._dialogs}"
        self._say(event=body | fields, dialog=str(printed), environment=environment)
        return Dialog(printed)

    def refuse(self, dialog: Dialog) -> None:
        """Say No at the desk: the program ends the hook at once."""
        self._say(no=str(dialog.printed))

    def tool(self, event: str, command: str, id_: str = "", **fields: Any) -> None:
        """A hook about a call of Bash; a permission request has no id."""
        call: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": command}}
        call |= {"tool_use_id": id_} if id_ else {}
        ran = {"tool_response": {"stdout": "ok", "stderr": ""}} if event == "PostToolUse" else {}
        self.hook(event, **call, **ran, **fields)

    @property
    def registry(self) -> Path:
        """Where Claude Code says what this program does."""
        return self.home / "sessions" / f"{self.process.pid}.json"

    def register(self, status: str, since: float, **fields: Any) -> None:
        """Write that file, as the program was seen to; ``since``: seconds since 1970."""
        self.registry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = {"pid": self.process.pid, "sessionId": self.session_id, "status": status}
        body |= {"kind": "interactive", "entrypoint": "cli", "statusUpdatedAt": since * 1000}
        draft = self.registry.with_suffix(".draft")
        draft.write_text(json.dumps(body | fields))
        draft.rename(self.registry)

    def kill(self) -> None:
        """SIGKILL, as when the machine has no memory left."""
        self.process.kill()
        self.process.wait(180)


# of a bridge that waits less for what does not come
SOONER = short(
    *("QUIET_SECONDS", "TURN_END_SECONDS", "TERMINAL_CHECK_SECONDS", "PROCESS_CHECK_SECONDS"),
    *("IDLE_SESSION_FOLD_SECONDS", "PROGRAM_END_SECONDS", "TRANSCRIPT_SECONDS"),
)


def shown(phone: Phone, session_id: str) -> dict[str, Any]:
    told = [one for one in phone.updates if one["session_id"] == session_id]
    return told[-1] if told else {}


def take_back(phone: Phone, session_id: str, rule_id: str) -> None:
    """Remove a rule; return when the session is shown without it."""

    def is_shown() -> bool:
        return rule_id in [one["id"] for one in shown(phone, session_id).get("rules") or ()]

    phone.collect(is_shown, "the session shows the rule")
    phone.send("rule_remove", {"session_id": session_id, "rule_id": rule_id})
    phone.collect(lambda: not is_shown(), "it is gone")


def until(phone: Phone, session_id: str, **state: Any) -> dict[str, Any]:
    """Wait until the phone was told that the session is so; return what it was told."""
    phone.collect(lambda: shown(phone, session_id).items() >= state.items(), f"it is {state}")
    return shown(phone, session_id)


def until_quiet(phone: Phone, session_id: str) -> dict[str, Any]:
    phone.collect(lambda: shown(phone, session_id).get("quiet_since") is not None, "no sign of it")
    return shown(phone, session_id)


def heard(phone: Phone, session_id: str) -> list[str]:
    """The titles of the notifications about a session, in order."""
    return [one["title"] for one in notifications(phone, session_id)]
