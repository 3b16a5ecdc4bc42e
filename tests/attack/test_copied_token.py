"""A thief has copied the token of a pairing code that a phone uses (D15, D62)."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agent_tools import bridges_of
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.raw import upgraded
from tests.conformance.samples import new_session
from tests.faults.quick import bridge_of_module
from tests.run.terminal import Program

pytestmark = pytest.mark.slow

OWN_ID = "the phone"
REFUSED = (401, "AUTH_INVALID_TOKEN")
READS = ("/api/v1/info", "/api/v1/sessions", "/api/v1/files/tree")

alone = bridge_of_module()  # one process on SQLite
two = bridges_of(2)  # on one PostgreSQL, with a certificate each


@pytest.fixture
def first(two: list[Bridge]) -> Iterator[Bridge]:
    yield two[0]
    for bridge in two:
        bridge.hang_up()


@pytest.fixture
def second(two: list[Bridge]) -> Bridge:
    return two[1]


def phone(bridge: Bridge, token: str, device_id: str | None = OWN_ID) -> Phone:
    made = Phone(bridge.port, token, device_id=device_id)
    bridge.called.append(made)
    return made


def greeted(phone: Phone) -> dict[str, Any]:
    """Connect; the payload of `connection_ack`, or of the `connection_error` that came instead."""
    return dict(phone.connect().auth()["payload"])


def fresh(phone: Phone) -> str:
    """Connect, and take the token that comes with the answer."""
    token: str = greeted(phone)["device_token"]
    assert token.startswith("bridge_device_") and token != phone.token
    return token


def http(bridge: Bridge, token: str) -> list[tuple[int, str | None]]:
    """What reading with this token gives, and speaking: status, and code of the error."""
    answers = [bridge.get(path, token) for path in READS]
    spoken = {"type": "user_message", "content": "Delete it all."}
    path = f"/api/v1/sessions/{new_session()}/events"
    answers.append(bridge.https().post(path, token=token, json_body=spoken))
    return [(answer.status, answer.json().get("code")) for answer in answers]


def refused(bridge: Bridge, token: str, device_id: str | None = OWN_ID) -> bool:
    """Whether the token is good for nothing at this process: over HTTP, the upgrade, and `auth`."""
    upgrade = upgraded(bridge.port, Authorization=f"Bearer {token}")
    answers = {*http(bridge, token), (upgrade.status, upgrade.json()["code"])}
    code = greeted(phone(bridge, token, device_id)).get("code")
    return answers == {REFUSED} and code == "AUTH_FAILED"


@pytest.mark.parametrize("way", ["over http", "over the socket"])
def test_from_the_fresh_token_s_first_use_the_copied_one_is_worth_nothing(
    first: Bridge, second: Bridge, way: str
) -> None:
    """At once, on every process; the phone's socket, opened with the copied one, lives on."""
    copied = first.pairing().token
    owner = phone(first, copied)
    token = fresh(owner)
    owner.health_check()
    # Until then it is as good over HTTP as the phone's: the code can still be used by who has it.
    assert http(second, copied)[:2] == [(200, None)] * 2
    if way == "over http":
        assert http(first, token)[:2] == [(200, None)] * 2
    else:
        other = greeted(phone(second, token))
        assert "server_version" in other and "device_token" not in other
    assert refused(second, copied) and refused(first, copied)
    assert refused(second, copied, "the thief") and refused(second, copied, None)
    if way == "over http":
        owner.ping()
        code = first.pairing()
        other_device = phone(first, code.token).ready()
        first.manage("revoke_device", code.name)
        other_device.wait_closed()  # so the bridge has looked since which ones must end
        first.fence(owner)
        owner.ping()
    assert "device_token" not in greeted(phone(first, token)), "it was used"
    thief = greeted(phone(second, token, "the thief"))
    assert thief["code"] == "AUTH_FAILED", "it is bound, as the code's is"


def test_an_earlier_unused_one_is_void(first: Bridge, second: Bridge) -> None:
    """The client that stored it, or ignores the field, goes on with the code's token."""
    token = first.pairing().token
    *earlier, later = [fresh(phone(bridge, token)) for bridge in (first, second, first)]
    assert len({*earlier, later}) == 3
    for one in earlier:
        assert refused(first, one) and refused(second, one)
    assert http(first, token)[0][0] == 200
    assert "device_token" not in greeted(phone(first, later))
    assert refused(second, token)


def test_a_device_that_gave_no_id_gets_none(first: Bridge) -> None:
    """Nothing binds its token, so nobody could say to whom a fresh one goes."""
    token = first.pairing().token
    assert "device_token" not in greeted(phone(first, token, None))
    bound = fresh(phone(first, token))
    assert http(first, bound)[0][0] == 200
    assert refused(first, token)


def test_the_first_use_and_another_fresh_one_at_once(first: Bridge, second: Bridge) -> None:
    """Whoever is first: afterwards exactly one token works, and the client has it."""
    for _ in range(3):
        token = first.pairing().token
        given = fresh(phone(first, token))
        with ThreadPoolExecutor(2) as threads:
            used = threads.submit(first.get, "/api/v1/info", given)
            answer = threads.submit(greeted, phone(second, token)).result()
        if used.result().status == 200:
            assert "device_token" not in answer
            assert refused(second, token) and http(first, given)[0][0] == 200
        else:
            assert refused(second, given)
            assert http(second, answer["device_token"])[0][0] == 200 and refused(first, token)


def test_a_new_code_for_the_device_ends_what_came_of_the_old_one(
    first: Bridge, second: Bridge
) -> None:
    """`mint_pairing_qr --device`: also a fresh token that was given out after it was minted."""
    old = first.pairing()
    code = first.mint("--device", old.name)
    token = fresh(phone(second, old.token))
    assert http(first, token)[0][0] == 200
    assert http(second, code.token)[0][0] == 200, "the use of the old code's ended no new code"
    assert refused(second, token) and refused(first, old.token)
    assert http(first, fresh(phone(second, code.token)))[0][0] == 200
    assert refused(first, code.token)


def test_revoking_ends_them_all(first: Bridge, second: Bridge) -> None:
    """Also the socket that was opened with the code's token."""
    code = first.pairing()
    owner = phone(second, code.token)
    token = fresh(owner)
    assert http(first, token)[0][0] == 200
    first.manage("revoke_device", code.name)
    assert refused(second, token) and refused(second, code.token)
    assert owner.wait_closed() == 4401


def identity(bridge: Bridge) -> dict[str, Any]:
    return dict(json.loads((bridge.data / "watch.json").read_text()))


def watch(bridge: Bridge) -> str:
    with Program(bridge.environment, "watch", "--raw", terminal=False) as program:
        program.until("connected to")  # by then it has stored its token
    return program.shown


def test_watch_goes_on_with_the_fresh_one(alone: Bridge) -> None:
    """Stored in a private file, beside the one before: so it falls back when it was ended early."""
    shown = watch(alone)
    before = identity(alone)
    lost = fresh(phone(alone, before["previous"], before["device_id"]))
    shown += watch(alone)
    after = identity(alone)
    assert after["previous"] == before["previous"] and after["device"] == before["device"]
    assert refused(alone, before["token"]) and refused(alone, lost)
    assert alone.get("/api/v1/info", after["previous"]).status == 200
    shown += watch(alone)
    assert identity(alone) == after, "it used the fresh one, and got no other"
    assert refused(alone, after["previous"], after["device_id"])
    assert "device_token" not in shown
    assert before["token"] not in shown and after["token"] not in shown
    (kept,) = [one for one in alone.data.rglob("*") if one.is_file() and has(one, after["token"])]
    assert kept.name == "watch.json" and kept.stat().st_mode & 0o777 == 0o600
    assert not has(alone.log, after["token"]), "D15: the bridge has it as a hash alone"


def has(path: Path, token: str) -> bool:
    return token.encode() in path.read_bytes()
