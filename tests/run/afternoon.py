"""One afternoon with a phone: what `watch`, a device in the terminal, shows of the demo agent.

`.venv/bin/python -m tests.run.afternoon` plays it on a bridge of its own and prints it; ``--write``
makes docs/afternoon.md of it. tests/run/test_watch_commands.py holds that it is true.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.approvals import post, pre
from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.samples import hook, new_session
from tests.faults.quick import QuickBridge
from tests.run.terminal import Program
from tests.servers import wait_until

PAGE = REPOSITORY / "docs" / "afternoon.md"
HEAD = """\
# An afternoon with a phone

<!-- Made by `.venv/bin/python -m tests.run.afternoon --write`: edit that. -->

What `make watch`, a device in the terminal, shows of the [demo agent](agents.md#demo), started by
`BRIDGE_DEMO_SHELL=1 make run`. What the person types is behind `>`, but for what is said to the
agent, which is shown as every device sees it: `say What is left to do?`, or `say /tool …`, by which
the demo agent is told to use a tool; a real one decides that itself. The time and the session's
title, with which each line begins, are left out. `.venv/bin/python -m tests.run.afternoon` plays it
again, once `make lint` has installed the test tools.
"""
MAKEFILE = "test:\n\t@echo 12 passed\n"
QUESTION = {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}
# What differs from run to run, and what stands in its place: the time and the session's title that
# a line begins with, addresses and ids, how far the agent has counted, how often a connection was
# tried, and which session is chosen, which is said or not, going by which of two answers is first.
MASKS = (
    (r"(?m)^\d\d:\d\d:\d\d  .{24}  ", ""),
    (r"wss://\S+:\d+\S*;", "wss://127.0.0.1:8443/api/v1/ws;"),
    (r"[0-9a-f]{8}-[0-9a-f-]{27}", "6f1c…"),
    (r"(?m)^answer   [\d ]*(\n +)?(?=\(error\)|Slept)", "answer   1 2 3 … "),
    (r"(?m)^answer   ([\d ]*|\(stop\))$", "answer   1 2 3 …"),
    (r"(?m)^(-- .*trying again in) .*\n(-- .*trying again in .*\n)*", r"\1 1 s\n"),
    (r"(?m)^-- chosen: .*\n", ""),
)


class Afternoon:
    """Plays scene after scene, and keeps what was typed and shown of each."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge, self.told = bridge, ""
        self.home = bridge.root / "door"
        (self.home / "old").mkdir(parents=True)
        (self.home / "Makefile").write_text(MAKEFILE)

    def play(self) -> str:
        with self._phone():
            self._scene("A session begins, and its agent answers.")
            self._keep("connected to")
            self._type(f"start demo {self.home}", "-- started ", "started  ")
            self._say("Good afternoon! What is left to do?", "you say: Good afternoon!")

            self._scene("It asks before it acts. A call is approved, one refused, one changed.")
            self._say(tool("Bash", command="make test"), "asks ", "[", "builds: ")
            self._type("approve", "-- Bash", "Bash is over.")
            asked = "asks ", "[", "edits: "
            self._say(tool("Write", file_path="notes.md", content="Paint!"), *asked)
            self._type("reject", "-- Write", "Write was rejected.")
            self._say(tool("Bash", command="rm -rf old"), "asks ", "[")
            self._type('modify {"command": "mv old attic; ls"}', "-- Bash", "Bash is over.")

            self._scene("It has a question.")
            self._say(tool("AskUserQuestion", questions=[QUESTION]), "asks ", "[answer")
            self._type("answer 2", "-- Ask", "AskUserQuestion is over.")

            self._scene("What is said while it works waits; what takes too long is stopped.")
            self._say("/sleep 600")
            wait_until(self._works, "the turn has begun")
            self._say("And the hinges?", "(queued)")
            self._type("interrupt", "you say: And the hinges?")

            self._scene("Another agent works in a terminal, and only reports: it asks there.")
            self._observe()

            self._scene("The phone goes into a pocket while the agent works, and comes out again.")
            self._say("/sleep 8")
            wait_until(self._works, "the turn has begun")
        wait_until(lambda: not self._works(), "the turn is over")
        with self._phone():
            self._keep("connected to", "Slept for 8 seconds.")

            self._scene("Power fails in the middle of an answer.")
            self._say("/sleep 600")
            wait_until(self._works, "the turn has begun")
            self.bridge.kill_all()
            self.bridge.start()
            self._keep("trying again in", "connected to", "notice ", "(error)")
            self._type("resume", "-- resumed ")
            self._say("Where were we?", "you say: Where were we?")
            self._type("end", "ended ")
        return self.told

    def _observe(self) -> None:
        """An agent asks in its terminal, a phone answers, a person at the machine decides."""
        session, call = new_session(), {"command": "rm -r shavings"}
        accept = self.bridge.accept
        accept(hook("SessionStart", session, {"working_directory": str(self.home)}))
        accept(hook("UserPromptSubmit", session, {"prompt": "Tidy up."}))
        self._keep("started ", "Tidy up.")
        accept(pre(session, call, approval=True, risk="critical"))
        self._keep("asks at the machine]")
        self._type("approve", "-- Bash")
        accept(post(session, call, result="The floor is clean."))
        self._keep("The floor is clean.")
        accept(hook("SessionEnd", session, {"exit_reason": "user_exit"}))
        self._keep("ended ")

    def _works(self) -> bool:
        """Whether the session that the bridge runs is in the middle of a turn."""
        listed = self.bridge.get("/api/v1/sessions", self.bridge.admin_token).json()["sessions"]
        return [one["turn"] for one in listed if one["kind"] == "bridge"] == ["working"]

    @contextmanager
    def _phone(self) -> Iterator[None]:
        with Program(self.bridge.environment, "watch", terminal=False) as self.phone:
            self.kept = 0
            yield
            self.phone.end_of_input()
            assert self.phone.ended() == 0, self.phone.shown

    def _scene(self, told: str) -> None:
        self.told += f"\n{told}\n\n"

    def _say(self, text: str, *until: str) -> None:
        """A message to the agent, which is shown as it is taken."""
        self.phone.say(f"say {text}")
        self._keep("prompt ", *until)

    def _type(self, command: str, *until: str) -> None:
        self._tell([f"> {command}"])
        self.phone.say(command)
        self._keep(*until)

    def _keep(self, *until: str) -> None:
        """Wait for these words and keep the lines up to the last of them. Remarks of `watch` come
        first: they answer what was typed, before or after what the agent says to it.
        """
        self.phone.until(*until)
        self.phone.until("\n")
        text = self.phone.shown[self.kept : self.phone.seen]
        self.kept = self.phone.seen
        for pattern, instead in MASKS:
            text = re.sub(pattern, instead, text)
        self._tell(sorted(text.splitlines(), key=lambda line: not line.startswith("--")))

    def _tell(self, lines: list[str]) -> None:
        text = "".join(f"    {line}".rstrip() + "\n" for line in lines)
        self.told += text.replace(str(self.home), "~/door")


def tool(name: str, /, **params: object) -> str:
    """How the demo agent is told to use a tool."""
    return f"/tool {name} {json.dumps(params)}"


def play() -> str:
    """Play it on a bridge in a directory of its own; the transcript."""
    with (
        tempfile.TemporaryDirectory(prefix="afternoon-") as directory,
        QuickBridge(Path(directory).resolve(), BRIDGE_DEMO_SHELL="1") as bridge,
    ):
        told = Afternoon(bridge).play()
    return HEAD + told


def written() -> str:
    return PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    played = play()
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(played, encoding="utf-8")
    sys.stdout.write(played)
