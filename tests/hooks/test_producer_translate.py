"""Risk, size, characters and time in the translation; and the one file for another machine."""

import ast
import json
import subprocess
import sys
import time
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_project.kernel import limits
from bridge_project.protocol import jsontext
from bridge_project.protocol.agent_text import for_person
from bridge_project.protocol.hooks import (
    HookInvalid,
    parse_hook_batch,
    parse_hook_body,
    parse_hook_event,
)
from bridge_project.protocol.risk import risk_of
from hooks_app.producer import https_sender
from hooks_app.producer.__main__ import make_one_file
from hooks_app.producer.agents import AGENTS, CLAUDE
from hooks_app.producer.forwarder import SEND_MAX_EVENTS
from hooks_app.producer.install import install
from hooks_app.producer.translate import (
    EVENT_MAX_BYTES,
    EVENT_MAX_DEPTH,
    FRESH_SECONDS,
    TRANSLATIONS,
    NeverAnEvent,
    dump,
    iso,
    translate,
)
from tests.hooks.conftest import JSON_VALUES, run_hook
from tests.hooks.scripted import FIXTURES, fixture

NOW = 1_800_000_000.0

# risk → a command on each line
COMMANDS: dict[str, Any] = tomllib.loads((FIXTURES.parent / "risks.toml").read_text())
TOOLS = COMMANDS.pop("tools")


@pytest.mark.parametrize("risk", COMMANDS)
def test_what_a_command_does(risk: str) -> None:
    judged = {one: risk_of("Bash", {"command": one}) for one in COMMANDS[risk].splitlines()}
    assert judged == dict.fromkeys(judged, risk)


@pytest.mark.parametrize(
    ("tool", "params", "risk"), [*TOOLS, ("Bash", {"command": "#" * 200_000}, "critical")]
)
def test_risk_of_tools(tool: str, params: dict[str, Any], risk: str) -> None:
    assert risk_of(tool, params) == risk


@pytest.mark.parametrize(
    "piece",
    [
        *("curl ", "git ", "rm -a ", "git push ", "dd ", "chmod -v ", "eval ", "curl x | "),
        *("ls;", "find ", "git log -C ", "'", '"$a', "sort -", "if ", "npm run "),
    ],
)
def test_a_hostile_command_costs_little(piece: str) -> None:
    began = time.thread_time()
    for size in (9_990, 50_000):
        risk_of("Bash", {"command": piece * (size // len(piece))})
    assert time.thread_time() - began < 3


@pytest.mark.parametrize(
    "piece", ["\n", "<system-reminder>", "agentId: a\n", "</analysis>", "(", ")<usage>"]
)
def test_what_a_tool_printed_costs_little(piece: str) -> None:
    began = time.thread_time()
    for text in (f"a{piece * 100_000}b", f"a\nagentId: a ({piece * 100_000}"):
        assert for_person(text).startswith("a")
    assert time.thread_time() - began < 3


def made(raw: dict[str, Any], **more: Any) -> dict[str, Any]:
    event = translate(raw, **{"now": NOW, "mtime": NOW, **more})
    assert event is not None
    return event.fields


def test_why_it_stopped() -> None:
    """The other reasons: tests/live/test_real_hooks.py."""
    stopped = made(fixture("StopFailure") | {"error": "max_output_tokens"})
    assert stopped["payload"]["reason"] == "max_tokens"
    for said, why in {"logout": "user_exit", "internal_error": "error"}.items():
        ended = made(fixture("SessionEnd-other") | {"reason": said})
        assert ended["payload"]["exit_reason"] == why


@pytest.mark.parametrize("mtime", [NOW - 250, NOW - 86400, NOW + 400, 1e15, -1e15])
def test_an_old_event_gets_a_fresh_time_and_keeps_its_own(mtime: float) -> None:
    event = made(fixture("Stop"), mtime=mtime)
    assert (event["timestamp"], event["occurred_at"]) == (iso(NOW), iso(mtime))
    event = made(fixture("Stop"), mtime=NOW - 200)  # which the bridge still takes
    assert event["timestamp"] == iso(NOW - 200) and "occurred_at" not in event


@pytest.mark.parametrize(
    "response",
    [
        "ü" * 3_000_000,
        ["y" * 1000] * 5000,
        {f"k{n}": n for n in range(100_000)},
        {"a": {"b": "z" * 2_000_000}, "c": "y" * 20_000},
    ],
    ids=["umlauts", "strings", "keys", "nested"],
)
def test_a_huge_event_is_cut_and_says_so(response: Any) -> None:
    raw = {**fixture("PostToolUse-Bash"), "tool_response": response}
    event = made(raw)
    payload = event["payload"]
    assert len(dump(event)) <= EVENT_MAX_BYTES < payload["original_bytes"]
    assert payload["truncated"] is True
    assert (payload["tool"], payload["params"]) == ("Bash", raw["tool_input"])
    if "c" in response:
        assert payload["result"]["c"] == response["c"], "only the longest is cut"
    parse_hook_event(event, now=datetime.fromtimestamp(NOW, UTC))


FIELDS = """
tool_name tool_input tool_use_id tool_response duration_ms error is_interrupt prompt source cwd
reason message notification_type level trigger last_assistant_message
"""


@given(
    kind=st.sampled_from(sorted(TRANSLATIONS)),
    fields=st.dictionaries(st.sampled_from(FIELDS.split()), JSON_VALUES),
)
def test_whatever_an_agent_sends_becomes_a_valid_event(kind: str, fields: dict[str, Any]) -> None:
    """A new version of the agent may send other types than those seen."""
    raw = {"hook_event_name": kind, "session_id": "s", **fields}
    event, now = translate(raw, now=NOW, mtime=NOW), datetime.fromtimestamp(NOW, UTC)
    assert event is not None
    posted, handed_over = (
        parse_hook_body(event.body, now=now),
        parse_hook_event(event.fields, now=now),
    )
    assert jsontext.dumps(posted.outbound("id")) == jsontext.dumps(handed_over.outbound("id"))


def test_what_is_nested_too_deeply_is_no_event() -> None:
    """What is nested as deeply as the bridge takes is one, also in a batch."""
    now = datetime.fromtimestamp(NOW, UTC)
    deep: Any = []
    for depth in range(3, limits.JSON_MAX_DEPTH + 2):  # of an event whose payload has it
        stop = {**fixture("Stop"), "deep": deep}
        if depth <= limits.JSON_MAX_DEPTH:
            event = translate(stop, now=NOW, mtime=NOW)
            assert event is not None
            parse_hook_body(event.body, now=now)
            [found] = parse_hook_batch(b'{"events":[' + event.body + b"]}", now)
            assert not isinstance(found, HookInvalid)
        else:
            with pytest.raises(NeverAnEvent, match="nested too deeply"):
                translate(stop, now=NOW, mtime=NOW)
        deep = [deep]


def test_numbers_agree_with_the_bridges_limits() -> None:
    assert limits.BATCH_MAX_EVENTS == SEND_MAX_EVENTS
    assert limits.JSON_MAX_DEPTH == EVENT_MAX_DEPTH
    assert limits.TIMESTAMP_SKEW_SECONDS > FRESH_SECONDS
    assert limits.RATES["hooks.batch"] == "10/m" and https_sender.BATCH_GAP_SECONDS > 6


def test_the_one_file_runs_alone_on_python_3_9(tmp_path: Path) -> None:
    """Copied to another machine, without any installed package; the command it prints works."""
    make_one_file(tmp_path / "producer.py")
    with zipfile.ZipFile(tmp_path / "producer.py") as one_file:
        assert "hooks_app/producer/forwarder.py" in one_file.namelist()
        for name in one_file.namelist():
            if name.endswith(".py"):
                ast.parse(one_file.read(name), feature_version=(3, 9))
    spool = tmp_path / "spool dir"
    alone = [sys.executable, "-I", "-S", str(tmp_path / "producer.py"), "--spool", str(spool)]

    def run(*arguments: str) -> str:
        command = [*alone, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    for name, agent in AGENTS.items():
        assert run("--print-hooks", name) == install("", str(spool), agent=agent)
    hooks = json.loads(run("--print-hooks"))["hooks"]
    assert set(hooks) == set(AGENTS[CLAUDE].events) == set(TRANSLATIONS)
    run_hook(spool, (FIXTURES / "Stop.json").read_bytes(), hooks["Stop"][0]["hooks"][0]["command"])
    assert json.loads(run("--status"))["waiting"] == 1
