"""Client messages that come twice (D31): answered again, not done again; and what is another
message.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.approvals import ask, notifications, pending
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, session_in
from tests.conformance.samples import new_id, prompt

pytestmark = pytest.mark.spec("client.repeat", "offline.flush")
on_both = pytest.mark.usefixtures("database")


def again(phone: Phone) -> Phone:
    phone.close()
    return phone.ready()


@on_both
def test_a_decision(bridge: Bridge, sid: str, joined: Phone, device: Phone) -> None:
    """D31, D38: refused in the wrong phase or for its shape it was not done, and is done when it is
    sent again with its id; then it is answered the same however often it comes, whatever the order
    of its keys. One that lost is told so each time.
    """
    call_id, id_ = ask(bridge, joined, sid), "decision-1"
    call = {"session_id": sid, "tool_call_id": call_id}
    body = call | {"decision": "modified", "modifications": {"a": 1, "b": {"c": 2, "d": 3}}}

    def code(phone: Phone, payload: dict[str, Any]) -> Any:
        return send(phone, "approval_response", id_, payload)["payload"].get("code")

    device.connect()
    device.auth()
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


@on_both
@pytest.mark.parametrize("across", [False, True], ids=["one connection", "two connections"])
def test_a_commit(bridge: Bridge, repository: Repository, phone: Phone, across: bool) -> None:
    """D31: a commit whose answer was lost is not made twice: the second answer names the first
    one's commit.
    """
    repository.commit_files({"a": "1\n"})
    repository.write("a", "2\n")
    sid = session_in(bridge, phone, repository.path)
    id_, body = new_id(), {"session_id": sid, "message": "Once", "files": ["a"]}
    first = send(phone, "git_commit", id_, body)
    repository.write("a", "3\n")
    if across:
        again(phone).join(sid)
    second = send(phone, "git_commit", id_, body)
    assert first["type"] == second["type"] == "git_status_response"
    assert first["payload"]["commit"] == second["payload"]["commit"]
    assert repository.git("rev-list", "--count", "HEAD").strip() == "2"
    third = send(phone, "git_commit", new_id(), body)
    assert (
        third["payload"]["commit"]["hash"]
        == repository.head()
        != first["payload"]["commit"]["hash"]
    ), "another id is another commit"


@on_both
def test_a_commit_sent_twice_at_once(bridge: Bridge, repository: Repository, phone: Phone) -> None:
    """D31: the repetition comes before the answer: still one commit, both are answered."""
    repository.commit_files({"a": "1\n"})
    # a commit that takes its time
    repository.write(".git/hooks/pre-commit", "#!/bin/sh\nsleep 0.5\n").chmod(0o755)
    repository.write("a", "2\n")
    sid = session_in(bridge, phone, repository.path)
    id_, body = new_id(), {"session_id": sid, "message": "Once", "files": ["a"]}
    for _ in range(2):
        phone.send("git_commit", body, id=id_)
    phone.collect(
        lambda: len([message for message in phone.messages if message.get("id") == id_]) == 2,
        "two answers",
    )
    first, second = [message for message in phone.messages if message.get("id") == id_]
    assert first["type"] == second["type"] == "git_status_response"
    assert first["payload"]["commit"] == second["payload"]["commit"]
    assert repository.git("rev-list", "--count", "HEAD").strip() == "2"


def test_what_is_another_message(
    bridge: Bridge, repository: Repository, phone: Phone, device: Phone
) -> None:
    """D31: the same device, type, id and payload; otherwise it is another message and is done."""
    repository.commit_files({"a": "1\n"})
    sid = session_in(bridge, phone, repository.path)
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
    for text in ("before", "after"):  # what changes nothing is asked anew
        repository.write("a", text)
        answer = send(phone, "git_diff", id_, {"session_id": sid, "files": ["a"], "cached": False})
        assert text in str(answer["payload"])


def test_an_id_that_is_no_uuid_counts_on_its_connection_only(
    bridge: Bridge, repository: Repository, phone: Phone
) -> None:
    """D31: across connections only a UUID: a client that counts from 1 again after reconnecting
    must be heard.
    """
    repository.commit_files({"a": "1\n"})
    sid = session_in(bridge, phone, repository.path)
    body = {"session_id": sid, "message": "Counted", "files": ["a"]}
    hashes = []
    for number in range(2):
        repository.write("a", f"{number + 2}\n")
        answer = send(phone, "git_commit", "1", body)
        hashes.append(answer["payload"]["commit"]["hash"])
        again(phone).join(sid)
    assert hashes[0] != hashes[1] == repository.head()


def test_joining_is_always_done(bridge: Bridge, sid: str, phone: Phone) -> None:
    """D31: session_start of a known session is no message of that kind: the same one joins again
    after a reconnect.
    """
    bridge.accept(prompt(sid, 0))
    id_, body = (
        new_id(),
        {"agent": "primary-agent", "session_id": sid, "working_directory": "/", "resume": False},
    )
    assert send(phone, "session_start", id_, body)["type"] == "session_ready"
    again(phone)
    assert send(phone, "session_start", id_, body)["type"] == "session_ready"
    assert bridge.accept(prompt(sid, 1))[0]["broadcast_count"] == 1
    phone.wait_numbers(sid, [0, 1])
