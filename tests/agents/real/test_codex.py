"""What only codex has: its code mode, servers' tools, subagents, and its hold on a session."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.agents.install import AGENTS
from tests.agents.real.desk import DeskProgram
from tests.agents.real.models import Handler, Json, Model, Reply
from tests.agents.real.place import SECONDS, Place, Talk, go_on, payloads, place_of
from tests.agents.real.table import REAL
from tests.conformance.agents import words
from tests.conformance.desk import refused, take
from tests.servers import wait_until

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400), pytest.mark.xdist_group("codex")]

CALL = re.compile(r"call: (\S+) (.*)")
SERVER = """
import json, pathlib, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {}
    if asked["method"] == "initialize":
        about = {"serverInfo": {"name": "x", "version": "1"}, "capabilities": {"tools": {}}}
        answer = about | {"protocolVersion": asked["params"]["protocolVersion"]}
    if asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        answer = {"tools": [{"name": "poke", "description": "Poke", "inputSchema": schema}]}
    if asked["method"] == "tools/call":
        pathlib.Path(asked["params"]["arguments"]["path"]).touch()
        answer = {"content": [{"type": "text", "text": "poked"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


class Calling(Handler):
    """Also obeys `call: NAMESPACE.TOOL JSON`, of which a text is what a tool without JSON takes."""

    def _response_events(self, reply: Reply) -> Iterator[Json]:
        for event in super()._response_events(reply):
            item = event.get("item", {})
            if item.get("type") == "function_call" and "." in item["name"]:
                item["namespace"], item["name"] = item["name"].split(".")
                if isinstance(given := json.loads(item["arguments"]), str):
                    item |= {"type": "custom_tool_call", "input": given}
            yield event

    def _responses(self, body: Json) -> None:
        said = json.dumps(body["input"][-1])
        found = CALL.search(str(body["input"][-1].get("content", "")))
        if not found or "_call_output" in said:
            super()._responses(body)
            return
        text = body["input"][-1]["content"][-1]["text"]
        [(tool, given)] = CALL.findall(text)
        self.stream(self._response_events(Reply(["I ", "will. "], tool, json.loads(given))))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A bridge with codex, which has a server of tools and may have subagents."""
    directory = tmp_path_factory.mktemp("codex")
    server = directory / "server.py"
    server.write_text(SERVER)
    more = f'[mcp_servers.x]\ncommand = "{sys.executable}"\nargs = ["-IS", "{server}"]\n'
    # a model that it does not know, which has subagents
    written = REAL["codex"].written.replace("gpt-5.5", "gpt-5.3-codex")
    agent = replace(REAL["codex"], written=written + more)
    model = Model(Calling)
    with place_of(agent, model, directory) as place:
        yield place
    model.close()


def refused_and_approved(talk: Talk, call: str, made: Path) -> dict[str, Any]:
    """Refuse a call, which makes no file then, and approve the same; what was asked."""
    said = talk.turn(call, "rejected")
    [asked] = payloads(said, "approval_required")
    assert not made.exists() and payloads(said, "tool_result")[0]["result"]["success"] is False
    assert payloads(said, "stream_end")[-1]["finish_reason"] == "stop"
    talk.turn(call, "approved")
    wait_until(made.exists)
    return dict(asked)


def test_code_mode(place: Place) -> None:
    """A command in a script asks, as those of the newest models are."""
    talk = place.talk("code_mode")
    talk.choose("model", "gpt-6.2-sol")
    script = json.dumps("const made = await tools.exec_command({cmd: 'touch scripted'}); text(1)")
    asked = refused_and_approved(
        talk, f"call: functions.exec {script}", talk.directory / "scripted"
    )
    assert (asked["tool"], asked["params"]["command"]) == ("Bash", "touch scripted")
    talk.close()


def test_the_tool_of_a_server(place: Place) -> None:
    talk = place.talk("server")
    made = talk.directory / "poked"
    given = json.dumps({"path": str(made)})
    asked = refused_and_approved(talk, f"call: mcp__x.poke {given}", made)
    assert (asked["tool"], asked["params"]) == ("mcp__x__poke", {"path": str(made)})
    talk.close()


def test_a_subagent(place: Place) -> None:
    """It asks under a name of its own, also when the turn that began it is over."""
    talk = place.talk("subagent")
    task = json.dumps({"message": "do: run touch helped"})
    for decision in ("rejected", "approved"):
        talk.say(f"call: multi_agent_v1.spawn_agent {task}")
        about = {"session_id": talk.session}
        asked = talk.phone.expect("approval_required", 20, **about)["payload"]
        assert asked["agent"]["id"] and asked["params"]["command"] == "touch helped"
        talk.decide(asked, decision)
        done = {**about, "tool_call_id": asked["tool_call_id"]}
        result = talk.phone.expect("tool_result", 20, **done)["payload"]["result"]
        assert result["success"] is (decision == "approved"), result
        assert talk.files() == (["helped"] if result["success"] else [])
    talk.close()


def test_a_change_of_a_file(place: Place) -> None:
    talk = place.talk("change")
    talk.choose("model", "gpt-5.5")
    kept = talk.directory / "kept"
    kept.write_text("alpha beta\n")
    said = talk.turn(f"do: edit {quote(str(kept))} alpha gamma", "approved")
    [asked], [result] = payloads(said, "approval_required"), payloads(said, "tool_result")
    texts = {"old_string": "alpha beta\n", "new_string": "gamma beta\n"}
    assert (asked["tool"], asked["params"]) == ("Edit", {"file_path": str(kept), **texts})
    assert "+gamma beta" in result["result"]["diff"] and kept.read_text() == "gamma beta\n"
    talk.close()


def test_a_message_into_a_turn(place: Place) -> None:
    talk = place.talk("steer")
    talk.begin("do: count 2000")
    body = {"session_id": talk.session, "content": "do: say enough", "role": "user", "when": "now"}
    talk.phone.send("message", body)
    assert talk.answer()["payload"]["finish_reason"] == "stop"
    assert words(talk.phone.messages).endswith("enough")
    talk.close()


def test_what_another_program_has_open(place: Place) -> None:
    """It is listed, and continued once that program has ended (D67)."""
    directory = (place.bridge.root / "begun").resolve()
    directory.mkdir()
    desk = CodexDesk(place, directory, [AGENTS / "node_modules/.bin/codex", "app-server"])
    try:
        own = desk.say("do: say remember the marmalade")
        with place.bridge.phones() as (phone,):
            phone.ready()
            asked = {"agent": "codex", "working_directory": str(directory)}
            refused(take(phone, own, None, **asked), "SESS_AT_THE_DESK")
            desk.end()
            sent = phone.send("history_list", {"agent": "codex", "directory": str(directory)})
            [found] = phone.answer_to(sent, timeout=SECONDS)["payload"]["sessions"]
            assert (found["session_id"], found["live"]) == (own, False)
            assert "marmalade" in found["title"]
    finally:
        desk.end()
    go_on(place, directory, own, "codex resume {id}")


class CodexDesk(DeskProgram):
    def say(self, text: str) -> str:
        self.ask("initialize", clientInfo={"name": "desk", "version": "1"})
        thread = str(self.ask("thread/start", cwd=str(self.directory))["thread"]["id"])
        given = [{"type": "text", "text": text, "text_elements": []}]
        self.ask("turn/start", threadId=thread, input=given)
        assert self.process.stdout is not None
        assert any(
            json.loads(line).get("method") == "turn/completed" for line in self.process.stdout
        )
        return thread
