"""Tools that the bridge itself runs and that fail or take too long (spec, Limits; D50)."""

from collections.abc import Iterator
from typing import Any

import pytest

from bridge_project.kernel import limits
from tests.agents.drive import carrying
from tests.conformance.agent_tools import Script, quick_bridge
from tests.conformance.agents import ask, begin, end, tool, words
from tests.conformance.approvals import decide
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id
from tests.faults.quick import bridge_of_module
from tests.servers import wait_until
from tests.short import SHORT, short

COMMAND_SECONDS = SHORT["TOOL_TIMEOUT_BASH_SECONDS"]
SOONER = short("TOOL_TIMEOUT_BASH_SECONDS")
# The spec's retry policy: command → how it ends, and how often it may be tried again.
RETRIES = {
    "echo 'curl: (28) Connection timed out' >&2; exit 28": (28, 3),
    "echo 'HTTP 429: too many requests' >&2; exit 1": (1, 3),
    "echo 'fork: Cannot allocate memory' >&2; exit 1": (1, 1),
    "kill -9 $$": (-9, 1),
    "cat /no/such/file": (1, 0),
    "no-such-command-at-all": (127, 0),
    "echo 'touch: /x: Permission denied' >&2; exit 1": (1, 0),
    "exit 3": (3, 0),
}
patient = bridge_of_module(BRIDGE_DEMO_SHELL="1")


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """With the short limits, for what is to exceed them; `patient` has the specification's."""
    place = tmp_path_factory.mktemp("limits")
    with quick_bridge(place, Script(place, "plain"), BRIDGE_DEMO_SHELL="1", **SOONER) as bridge:
        yield bridge


def failure(phone: Phone, session: str, call_id: str, name: str) -> dict[str, Any]:
    """The payload of the call's tool_error; a tool_result of it says that it has failed."""
    payload = dict(phone.expect("tool_error", session_id=session, tool_call_id=call_id)["payload"])
    fields = {"session_id", "tool_call_id", "tool", "code", "message", "details"}
    assert set(payload) == fields | {"retryable", "max_retries"}, payload
    assert set(payload["details"]) <= {"exit_code", "stderr", "stdout", "execution_time_ms"}
    assert payload["tool"] == name and isinstance(payload["message"], str) and payload["message"]
    assert type(payload["max_retries"]) is int
    assert payload["retryable"] is (payload["max_retries"] > 0), payload
    result = phone.expect("tool_result", session_id=session, tool_call_id=call_id)["payload"]
    assert result["result"]["success"] is False
    return payload


@pytest.mark.spec("wscode.TOOL_TIMEOUT limit.tool_timeouts error.tool_error.* ws.tool_error")
def test_a_command_that_takes_too_long(bridge: Bridge, phone: Phone) -> None:
    """It and what it started are gone, and the agent goes on."""
    assert limits.TOOL_TIMEOUT_BASH_SECONDS == 300, "where it is not shorter"
    line = f"echo begun; sleep 100 & sleep 100; : {(mark := new_id())}"
    session = begin(bridge, phone, agent="demo")
    call_id = tool(phone, session, command=line)["tool_call_id"]
    decide(phone, session, call_id, "approved")
    payload = failure(phone, session, call_id, "Bash")
    details = payload["details"]
    assert payload["code"] == "TOOL_TIMEOUT"
    assert f"longer than {COMMAND_SECONDS} seconds" in payload["message"]
    assert details["stdout"].startswith("begun\n") and details.get("exit_code") is None
    assert details["execution_time_ms"] >= COMMAND_SECONDS * 1000
    assert (payload["retryable"], payload["max_retries"]) == (False, 0)
    phone.expect("stream_end", session_id=session, finish_reason="stop")
    assert "and on" in words(ask(phone, session, "and on"))
    end(phone, session)
    wait_until(lambda: not carrying(f": {mark}"))


@pytest.mark.spec("retry.policy wscode.TOOL_EXECUTION_FAILED wscode.TOOL_ERROR error.tool_error.*")
def test_the_retry_policy(patient: Bridge) -> None:
    """D50: the code says that the tool ran; TOOL_ERROR is in the table alone, as never sent."""
    with patient.phones(1) as (phone,):
        session = begin(patient, phone, agent="demo")
        for line, (exit_code, retries) in RETRIES.items():
            call_id = tool(phone, session, command=line)["tool_call_id"]
            decide(phone, session, call_id, "approved")
            payload = failure(phone, session, call_id, "Bash")
            phone.expect("stream_end", session_id=session, finish_reason="stop")
            told = (payload["code"], payload["retryable"], payload["max_retries"])
            assert told == ("TOOL_EXECUTION_FAILED", retries > 0, retries), (line, payload)
            details = payload["details"]
            assert details.get("exit_code") == (None if exit_code < 0 else exit_code), line
            assert details["execution_time_ms"] >= 0, details
            said = (details.get("stderr") or "") + (details.get("stdout") or "")
            assert "echo" not in line or line.split("'")[1] in said
        end(phone, session)
    page = patient.get("/docs/errors/TOOL_ERROR").body.decode()
    for words_of_it in ("never sent", "TOOL_EXECUTION_FAILED", "Change the parameters"):
        assert words_of_it in page
