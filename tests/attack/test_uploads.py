"""Uploads, and pictures of hooks, while the disk is slow (D70)."""

import base64
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.agents import begin, end, say
from tests.conformance.bridge import Bridge
from tests.conformance.https import Response, assert_error
from tests.conformance.phone import Phone
from tests.conformance.samples import hook, new_id, new_session
from tests.conformance.test_attachments import kept, png, upload
from tests.faults.quick import QuickBridge
from tests.servers import wait_until

PICTURE = png(12_345)
SLOW = f"""
import os, pathlib, time
fsync = os.fsync
def wait_for_gate(descriptor):
    while os.fstat(descriptor).st_size == {len(PICTURE)} and not pathlib.Path("GATE").exists():
        time.sleep(0.01)
    fsync(descriptor)
os.fsync = wait_for_gate
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def slow(tmp_path: Path, gate: Path) -> Iterator[Bridge]:
    """A bridge whose disk has PICTURE when the gate is there."""
    with QuickBridge(tmp_path / "b", first=SLOW.replace("GATE", str(gate))) as bridge:
        bridge.pin = bridge.pairing().pin
        yield bridge


@pytest.fixture
def phone(slow: Bridge) -> Iterator[Phone]:
    with slow.phones() as [phone]:
        yield phone


class Doing(threading.Thread):
    """What is asked of the bridge meanwhile, and its answer."""

    def __init__(self, ask: Callable[[], Response]) -> None:
        super().__init__()
        self.ask = ask
        self.start()

    def run(self) -> None:
        self.answer = self.ask()

    def done(self) -> Response:
        self.join()
        return self.answer


def test_two_uploads_of_one_file(slow: Bridge, phone: Phone, gate: Path) -> None:
    """Neither knows of the other when it begins: one file and one answer come of it."""
    session, own = begin(slow, phone), new_id()
    both = [Doing(lambda: upload(slow, session, PICTURE, client_id=own)) for _ in range(2)]
    wait_until(lambda: len(kept(slow)) == 2, "both are written")
    gate.touch()
    first, second = [one.done() for one in both]
    assert first.status == 201 and first.json() == second.json()
    assert [path.name for path in kept(slow)] == [first.json()["attachment_id"]]


def test_a_session_ends_in_the_middle_of_an_upload(slow: Bridge, phone: Phone, gate: Path) -> None:
    session = begin(slow, phone)
    uploading = Doing(lambda: upload(slow, session, PICTURE))
    wait_until(lambda: len(kept(slow)) == 1, "it is written")
    end(phone, session)
    gate.touch()
    assert_error(uploading.done(), 409, "SESSION_CLOSED")
    assert kept(slow) == []


def test_a_device_is_revoked_in_the_middle_of_its_upload(
    slow: Bridge, phone: Phone, gate: Path
) -> None:
    session, pairing = begin(slow, phone), slow.pairing()
    uploading = Doing(lambda: upload(slow, session, PICTURE, token=pairing.token))
    wait_until(lambda: len(kept(slow)) == 1, "it is written")
    slow.manage("revoke_device", pairing.name)
    gate.touch()
    assert_error(uploading.done(), 401, "AUTH_INVALID_TOKEN")
    assert kept(slow) == []


def test_a_hook_brings_a_picture(slow: Bridge, phone: Phone, gate: Path) -> None:
    """Whoever else writes to the log does not wait for the disk."""
    session, at_the_desk = begin(slow, phone), new_session()
    slow.accept(hook("SessionStart", at_the_desk))
    source = {"type": "base64", "data": base64.b64encode(PICTURE).decode()}
    stop = {
        "reason": "task_completed",
        "message": "Seen",
        "seen": {"type": "image", "source": source},
    }
    posting = Doing(lambda: slow.post_hook(hook("Stop", at_the_desk, stop)))
    wait_until(lambda: len(kept(slow)) == 1, "it is written")
    say(phone, session, "Hello")
    phone.expect("stream_end", session_id=session)
    gate.touch()
    assert posting.done().status == 200
    [picture] = kept(slow)
    assert picture.read_bytes() == PICTURE
