"""The forwarder: order, exactly once, and files that no hook wrote (D47)."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import time_machine

from hooks_app.producer import watch
from hooks_app.producer.__main__ import make_one_file
from hooks_app.producer.forwarder import Forwarder
from hooks_app.producer.shell_command import HOOK_SCRIPT
from hooks_app.producer.spool import REJECTED_MAX_BYTES, spool_status
from tests.hooks.conftest import Hook, Make, prompts, put, run_until_empty, waiting
from tests.hooks.scripted import TOKEN, ScriptedBridge, cut_after_taking, fixture
from tests.servers import stop_process, wait_until

EVENT, BATCH = "/api/v1/hooks/event", "/api/v1/hooks/batch"


def notices(bridge: ScriptedBridge) -> list[str]:
    return [e["payload"]["message"] for e in bridge.events if e["event"] == "Notification"]


@contextmanager
def running(forwarder: Forwarder) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=forwarder.run_forever, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(180)
        assert not thread.is_alive()


# -- order -----------------------------------------------------------------------------------------


def test_one_event_goes_alone_and_a_backlog_as_a_batch(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    put(spool, "1")
    assert forwarder.run_once() == 1
    for number in range(2, 5):
        put(spool, str(number), time.time() - 100 + number)
    assert forwarder.run_once() == 3
    assert bridge.requests == [(EVENT, 1), (BATCH, 3)]
    assert prompts(bridge) == ["1", "2", "3", "4"]
    assert waiting(spool) == []
    assert bridge.connections == 1  # kept alive: an event costs no handshake


def test_a_large_backlog_goes_in_batches_of_500_in_order(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    began = time.time() - 200
    names = [str(number) for number in range(1203)]
    for place, name in enumerate(names):
        put(spool, name, began + place / 100)
    assert forwarder.run_once() == 1203
    assert prompts(bridge) == names
    assert bridge.requests[:2] == [(BATCH, 500), (BATCH, 500)]


def test_a_batch_stays_under_8_mb(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.max_bytes = 8 * 2**20 + 1000
    for number in range(12):
        put(spool, str(number), time.time() - 100 + number, more="x" * 1_000_000)
    assert forwarder.run_once() == 12
    assert len(bridge.events) == 12
    assert all(count <= 8 for _, count in bridge.requests)


def test_at_a_tie_a_session_starts_first_and_ends_last(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    moment = float(int(time.time()) - 10)
    put(spool, "30", moment, hook_event_name="SessionStart", cwd="/x")
    put(spool, "10", moment, hook_event_name="SessionEnd")
    put(spool, "9", moment)
    put(spool, "100", moment)
    put(spool, "200", moment - 1)
    forwarder.run_once()
    assert prompts(bridge)[0] == "200" and prompts(bridge)[2:4] == ["9", "100"]
    assert [event["event"] for event in bridge.events[1::3]] == ["SessionStart", "SessionEnd"]


@pytest.mark.parametrize("inotify", [True, False])
def test_an_event_leaves_at_once(
    spool: Path,
    bridge: ScriptedBridge,
    forwarder: Forwarder,
    hook: Hook,
    inotify: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where nothing announces it: the next look that nobody asked for is 2 s away."""
    if not inotify:
        monkeypatch.setattr(watch, "inotify_simple", None)
    with running(forwarder):
        took = []
        for number in range(8):
            hook({**fixture("Stop"), "number": number})
            began = time.monotonic()
            wait_until(lambda n=number: len(bridge.events) > n, "the event")  # type: ignore[misc]
            took.append(time.monotonic() - began)
    assert sorted(took)[len(took) // 2] < 1


# -- nothing lost, nothing doubled -----------------------------------------------------------------


def test_an_answer_that_was_lost_makes_no_duplicate(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.script.append(cut_after_taking)
    put(spool, "1")
    run_until_empty(forwarder, spool)
    assert bridge.requests == [(EVENT, 1), (EVENT, 1)]
    assert prompts(bridge) == ["1"]


def test_killed_between_sending_and_deleting_it_sends_the_same_ids(
    spool: Path, bridge: ScriptedBridge, tmp_path: Path
) -> None:
    """kill -9 while the bridge has taken the events but not answered, twice; then a forwarder that
    may live.
    """
    holding, release = threading.Event(), threading.Event()

    def hold(held: ScriptedBridge, path: str, events: list[dict[str, Any]]) -> None:
        held.take(events)
        holding.set()
        release.wait(180)

    for number in range(5):
        put(spool, str(number), time.time() - 50 + number)
    producer, token = tmp_path / "producer.py", tmp_path / "token"
    make_one_file(producer)
    token.write_text(TOKEN + "\n")
    where = ["--spool", str(spool), "--url", bridge.url, "--pin", bridge.pin]
    command = [sys.executable, "-I", "-S", str(producer), *where, "--token-file", str(token)]
    for _ in range(2):
        holding.clear()
        bridge.script.append(hold)
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        assert holding.wait(180)
        process.kill()
        process.wait()
    assert len(waiting(spool)) == 5
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_until(lambda: not waiting(spool), "everything was taken")
    stop_process(process)
    release.set()
    assert process.returncode == 0
    assert prompts(bridge) == ["0", "1", "2", "3", "4"]
    assert len(bridge.requests) == 3


def test_two_forwarders_take_turns(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, make_forwarder: Make
) -> None:
    put(spool, "1")
    second = make_forwarder()
    forwarder.run_once()
    put(spool, "2")
    assert second.run_once() == 0
    forwarder.close()
    assert second.run_once() == 1
    assert prompts(bridge) == ["1", "2"]


# -- files that no hook wrote ----------------------------------------------------------------------


def test_poison_blocks_nothing(spool: Path, bridge: ScriptedBridge, make_forwarder: Make) -> None:
    """Each is set aside and reported once; the others go on."""
    forwarder, old = make_forwarder(grace=0.0), time.time() - 100
    outside = spool.parent / "outside"
    outside.write_text("precious")
    texts = [b"", b"not json", b'{"cut', b"[1]", b"\xff\xfe", b"[" * 100_000, b"{}"]
    texts.append(b'{"hook_event_name": "Stop", "session_id": "s", "n": NaN, "m": 1e999}')
    for number, data in enumerate(texts, 1):
        (spool / str(number)).write_bytes(data)
        os.utime(spool / str(number), (old, old))
    (spool / "9").mkdir()
    (spool / "9" / "inner").write_text("x")
    (spool / "10").symlink_to(outside)
    (spool / "11").symlink_to("/nonexistent")
    os.mkfifo(spool / "12")
    for name, size in (("13", 300 * 10**6), ("14", 5 * 2**30)):
        with (spool / name).open("wb") as huge:
            huge.truncate(size)
    put(spool, "15", old, session_id="")
    put(spool, "no number", old)
    if os.geteuid() == 0:
        shutil.chown(put(spool, "16", old), 65534, 65534)
    else:
        put(spool, "16", old).chmod(0)
    put(spool, "20")
    run_until_empty(forwarder, spool)
    assert "20" in prompts(bridge) and "16" not in prompts(bridge)
    assert outside.read_text() == "precious"
    assert spool_status(spool)["rejected"] == 17
    kept = sum(path.lstat().st_size for path in (spool / "rejected").iterdir())
    assert kept <= REJECTED_MAX_BYTES
    said = len(notices(bridge))
    forwarder.run_once()
    assert said and len(notices(bridge)) == said


def test_a_file_that_vanishes_while_it_is_read_is_nobodys_loss(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.stop()
    for number in range(3):
        put(spool, str(number), time.time() - 50 + number)
    forwarder.run_once()
    (spool / "1").unlink()
    bridge.start()
    run_until_empty(forwarder, spool)
    assert prompts(bridge) == ["0", "2"] and spool_status(spool)["rejected"] == 0


@pytest.mark.parametrize("jump", [0.0, 3600.0, -3600.0], ids=["none", "forth", "back"])
def test_a_file_that_grows_is_waited_for_whatever_the_clock_does(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, jump: float
) -> None:
    """The grace is measured from where the forwarder has seen the file last grow, whatever time the
    file and the machine have.
    """
    whole = put(spool, "1").read_bytes()
    (spool / "1").write_bytes(whole[:30])
    put(spool, "2")
    assert forwarder.run_once() == 1
    with time_machine.travel(time.time() + jump, tick=True):
        assert forwarder.run_once() == 0
        assert waiting(spool) == ["1"] and spool_status(spool)["rejected"] == 0
    (spool / "1").write_bytes(whole)
    assert forwarder.run_once() == 1
    assert prompts(bridge) == ["2", "1"]


def test_a_file_from_the_future_is_not_waited_for_for_ever(
    spool: Path, make_forwarder: Make
) -> None:
    forwarder = make_forwarder(grace=0.05)
    (spool / "1").write_text("{")
    os.utime(spool / "1", (time.time() + 9999, time.time() + 9999))
    wait_until(lambda: forwarder.run_once() or "1" not in waiting(spool), "it is set aside")


def test_awkward_characters_arrive(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    text = '{"hook_event_name":"UserPromptSubmit","session_id":"s","prompt":"p\\ud800\\u0000\t"}'
    put(spool, "1").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert forwarder.run_once() == 1
    assert prompts(bridge) == ["p\ufffd\0\t"]


# -- bounds ----------------------------------------------------------------------------------------


def test_a_spool_over_its_bound_loses_the_oldest_and_says_so(
    spool: Path, bridge: ScriptedBridge, make_forwarder: Make
) -> None:
    """Nothing is lost up to the bound; then each session is told."""
    forwarder, began = make_forwarder(max_bytes=1_000_000), time.time() - 100
    bridge.stop()
    for number in range(15):
        session = f"s{number % 2}"
        put(spool, str(number), began + number, session_id=session, more="x" * 99_000)
        forwarder.run_once()
        if number == 8:
            assert len(waiting(spool)) == 9
    bridge.start()
    run_until_empty(forwarder, spool)
    events = [int(prompt) for prompt in prompts(bridge) if prompt.isdigit()]
    assert 7 <= len(events) < 10 and events == list(range(15 - len(events), 15))
    gaps = [event for event in bridge.events if event["event"] == "Notification"]
    assert {gap["session_id"] for gap in gaps} == {"s0", "s1"}
    assert {gap["payload"]["notification_type"] for gap in gaps} == {"gap"}
    assert sum(int(text.split()[0]) for text in notices(bridge)) == 15 - len(events)


def test_a_full_spool_is_opened_again_and_the_gap_is_said(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, hook: Hook
) -> None:
    put(spool, "1")
    (spool / "full").touch()
    run_until_empty(forwarder, spool)
    assert not (spool / "full").exists()
    assert "not recorded" in notices(bridge)[0] and bridge.events[-1]["session_id"] == "s"
    hook(fixture("Stop"))
    assert forwarder.run_once() == 1


@contextmanager
def no_room() -> Iterator[None]:
    """Not a byte more can be written to any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_a_full_disk_cost_is_said_when_it_can_be(
    spool: Path, bridge: ScriptedBridge, make_forwarder: Make, hook: Hook
) -> None:
    """D47: a gap is said. While the disk is full the notice cannot be written either: it is not
    forgotten, and no half of it stays.
    """
    forwarder = make_forwarder(grace=0.0)
    forwarder.run_once()
    hook(fixture("Stop"))
    (spool / "lost").touch()
    (spool / "42").write_bytes(b"{")
    with no_room():
        assert forwarder.run_once() == 1, "what was spooled goes out all the same"
    assert (spool / "lost").exists() and not list(spool.glob(".draft-*"))
    hook(fixture("Stop"))
    put(spool, "42")  # a hook of the process id whose file was set aside
    run_until_empty(forwarder, spool)
    assert not (spool / "lost").exists()
    told = sorted(notices(bridge))
    assert "could not be delivered" in told[0] and "the disk was full" in told[1]
    assert len(told) == 2 and len(bridge.events) == 5


# -- the spool itself ------------------------------------------------------------------------------


def test_a_spool_that_was_replaced_goes_on(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, hook: Hook
) -> None:
    with running(forwarder):
        hook(fixture("Stop"))
        wait_until(lambda: len(bridge.events) > 0, "the first event")
        spool.rename(spool.with_name("old"))
        spool.mkdir(mode=0o700)
        wait_until((spool / HOOK_SCRIPT).exists, "the hook's script in the new spool")
        hook(fixture("StopFailure"))
        wait_until(lambda: len(bridge.events) == 2, "the event in the new spool")


def test_a_data_directory_that_was_removed_does_not_come_back(
    tmp_path: Path, make_forwarder: Make
) -> None:
    forwarder = make_forwarder(spool=tmp_path / "gone" / "spool")
    with running(forwarder):
        wait_until(lambda: forwarder.trouble != "", "it noticed")
    assert not (tmp_path / "gone").exists()
