"""Client messages that come twice (D31): answered again, not done again; what is another one."""

from typing import Any

import pytest

from tests.conformance import agents
from tests.conformance.approvals import ask, decision_of, notifications, pending, pre
from tests.conformance.bridge import Bridge, query
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work
from tests.conformance.samples import new_id, prompt
from tests.servers import wait_until

pytestmark = pytest.mark.spec("client.repeat", "offline.flush")
on_both = pytest.mark.usefixtures("database")


@on_both
def test_a_decision(bridge: Bridge, sid: str, joined: Phone, device: Phone) -> None:
    """What was refused was not done; what was done is answered the same, also to who lost."""
    call_id, id_ = ask(bridge, joined, sid), "decision-1"
    call = {"session_id": sid, "tool_call_id": call_id}
    body = call | {"decision": "modified", "modifications": {"a": 1, "b": {"c": 2, "d": 3}}}

    def code(phone: Phone, payload: dict[str, Any]) -> Any:
        return send(phone, "approval_response", id_, payload)["payload"].get("code")

    device.connect().auth()
    assert code(device, body) == "PROTO_SEQUENCE_ERROR"
    device.health_check()
    assert code(device, body | {"modifications": None}) == "PROTO_INVALID_MESSAGE"
    assert pending(bridge, sid) == [call_id]
    turned = dict(reversed(body.items())) | {"modifications": {"b": {"d": 3, "c": 2}, "a": 1}}
    first, *others = [send(device, "approval_response", id_, one) for one in (body, body, turned)]
    assert first["type"] == "approval_recorded", first
    assert [other["payload"] for other in others] == [first["payload"]] * 2
    lost = call | {"decision": "approved", "modifications": None}
    assert [code(joined, lost) for _ in range(2)] == ["TOOL_ALREADY_DECIDED"] * 2
    bridge.fence(joined)
    assert len(notifications(joined, sid, "approval_decided")) == 1


def test_what_may_be_over_the_next_time(bridge: Bridge, sid: str, device: Phone) -> None:
    """A failure before which nothing was done is no answer to remember."""
    id_, body = new_id(), decision_of(sid, "call-1", "approved")
    device.ready()
    for code in ("SESSION_NOT_FOUND", "TOOL_CALL_NOT_FOUND"):
        assert send(device, "approval_response", id_, body)["payload"]["code"] == code
        bridge.accept(prompt(sid, 1))
    bridge.accept(pre(sid, approval=True, tool_call_id="call-1"))
    assert send(device, "approval_response", id_, body)["type"] == "approval_recorded"


def test_a_commit_that_was_refused(repository: Repository, work: Work) -> None:
    """It is tried again, and then it is done."""
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    repository.hook("pre-commit", "test -e .git/ready")
    assert work.commit("Trust the hook", ["a"])["payload"]["code"] == "GIT_ERROR"
    id_, body = new_id(), {"session_id": work.sid, "message": "Again", "files": ["a"]}
    assert send(work.phone, "git_commit", id_, body)["payload"]["code"] == "GIT_ERROR"
    repository.write(".git/ready", "")
    first = send(work.phone, "git_commit", id_, body)["payload"]["commit"]
    repository.write("a", "3\n")
    assert send(work.phone, "git_commit", id_, body)["payload"]["commit"] == first
    assert repository.head() == first["hash"]


@on_both
def test_a_commit_whose_answer_was_lost(repository: Repository, work: Work) -> None:
    """The same commit, also when the repetition comes before the answer, and on the next
    connection, where an id that is no UUID is a new one.
    """
    repository.commit_files({"a": "1\n"})
    repository.hook("pre-commit", "sleep 0.5")  # so that it comes before
    repository.write("a", "trusted\n")
    assert work.committed("Trust the hook", ["a"])
    phone, body = work.phone, {"session_id": work.sid, "message": "Once", "files": ["a"]}
    made = []
    for number, id_ in enumerate((new_id(), "1")):
        repository.write("a", f"{number} of two\n")
        first = send(phone, "git_commit", id_, body, times=2)["payload"]["commit"]
        assert first["hash"] == repository.head() not in made, "another id is another commit"
        made.append(first["hash"])
        answers = [message for message in phone.messages if message.get("id") == id_]
        assert [answer["payload"]["commit"] for answer in answers] == [first] * 2
        repository.write("a", "3\n")
        assert send(phone, "git_commit", id_, body)["payload"]["commit"] == first
        phone.again().join(work.sid)
        answer = send(phone, "git_commit", id_, body)["payload"]["commit"]
        assert (answer == first) is (id_ != "1")
    assert repository.git("rev-list", "--count", "HEAD") == "5\n"


def test_what_is_another_message(repository: Repository, work: Work, device: Phone) -> None:
    """What differs in device, type, id or payload; what changes nothing is asked anew."""
    repository.commit_files({"a": "1\n"})
    phone, sid = work.phone, work.sid
    device.ready().join(sid)
    id_, body = new_id(), {"session_id": sid, "message": "First", "files": ["a"]}
    made = [repository.head()]
    second = (phone, id_, body | {"message": "Second"})
    others = ((phone, id_, body), (phone, new_id(), body), (device, id_, body), second)
    for number, (by, sent_id, fields) in enumerate(others):
        repository.write("a", f"{number + 2}\n")
        answer = send(by, "git_commit", sent_id, fields)
        assert answer["payload"]["commit"]["hash"] == repository.head() not in made
        made.append(repository.head())
    for text in ("before", "after"):
        repository.write("a", text)
        answer = send(phone, "git_diff", id_, {"session_id": sid, "files": ["a"], "cached": False})
        assert text in str(answer["payload"])


def test_a_prompt_that_comes_again_after_hours(shared: Bridge, session: str, phone: Phone) -> None:
    """As long as its row is kept it is the same message, also when the request is forgotten."""
    id_, body = new_id(), {"session_id": session, "content": "once", "role": "user"}

    def prompts() -> int:
        return sum(
            message["type"] == "agent_event" and message["payload"]["event"] == "UserPromptSubmit"
            for message in agents.log_of(phone, session)
        )

    phone.send("message", body, id=id_)
    phone.expect("stream_end", session_id=session)
    query(shared.data / "bridge.sqlite3", "DELETE FROM sessions_app_clientrequest")
    phone.send("message", body, id=id_)
    assert "twice" in agents.words(agents.ask(phone, session, "twice"))
    assert prompts() == 2
    phone.send("message", body | {"content": "another"}, id=id_)
    wait_until(lambda: prompts() == 3)
