"""The forwarder: order, exactly once, and files that no hook wrote (D47)."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import time_machine

from bridge_project.kernel.process_note import ProcessNote
from hooks_app.producer import forwarder as forwarders
from hooks_app.producer import spool_queue
from hooks_app.producer.__main__ import make_one_file
from hooks_app.producer.spool import REJECTED_MAX_BYTES, File, Spool, spool_status
from hooks_app.producer.spool_queue import SpoolQueue
from tests.hooks.conftest import Hook, Way
from tests.hooks.scripted import Events, ScriptedBridge, fixture
from tests.servers import meanwhile, stop_process, wait_until

EVENT, BATCH = "/api/v1/hooks/event", "/api/v1/hooks/batch"


def test_one_event_goes_alone_and_a_backlog_as_a_batch(way: Way) -> None:
    way.put("1")
    assert way.run() == 1
    way.put_many(range(2, 5))
    assert way.run() == 3 and way.waiting() == []
    assert way.bridge.requests == [(EVENT, 1), (BATCH, 3)]
    assert way.prompts() == ["1", "2", "3", "4"]
    assert way.bridge.connections == 1  # kept alive: an event costs no handshake


def test_a_large_backlog_goes_in_order_in_batches_of_500_events_or_8_mb(way: Way) -> None:
    way.bridge.max_bytes = 8 * 2**20 + 1000
    began = time.time() - 200
    names = [str(number) for number in range(1211)]
    for place, name in enumerate(names):
        more = "x" * 1_000_000 if place > 1200 else ""
        way.put(name, began + place / 100, more=more)
    assert way.run() == len(names)
    assert way.prompts() == names
    counts = [count for _, count in way.bridge.requests]
    assert counts[:2] == [500, 500] and sum(counts) == len(names), "none is refused and repeated"


def test_at_a_tie_a_session_starts_first_and_ends_last(way: Way) -> None:
    moment = float(int(time.time()) - 10)
    way.put("30", moment, hook_event_name="SessionStart", cwd="/x")
    way.put("10", moment, hook_event_name="SessionEnd")
    way.put("9", moment)
    way.put("100", moment)
    way.put("200", moment - 1)
    way.run()
    assert way.prompts()[0] == "200" and way.prompts()[2:4] == ["9", "100"]
    assert [event["event"] for event in way.bridge.events[1::3]] == ["SessionStart", "SessionEnd"]


@pytest.mark.parametrize("inotify", [True, False])
def test_an_event_leaves_at_once(
    way: Way, hook: Hook, inotify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing announces it: no other look comes."""
    monkeypatch.setattr(forwarders, "SCAN_SECONDS", 600.0)
    if not inotify:
        monkeypatch.setattr(forwarders, "inotify_simple", None)
    with meanwhile(way.forwarder.run_forever):
        for number in range(3):
            hook({**fixture("Stop"), "number": number})
            wait_until(lambda n=number: len(way.bridge.events) > n, "the event")


def test_killed_between_sending_and_deleting_it_sends_the_same_ids(
    way: Way, tmp_path: Path
) -> None:
    """kill -9, twice, while the bridge has taken the events but not answered."""
    holding, release = threading.Event(), threading.Event()

    def hold(held: ScriptedBridge, events: Events) -> None:
        held.take(events)
        holding.set()
        release.wait(180)

    way.put_many(range(5))
    producer = tmp_path / "producer.py"
    make_one_file(producer)
    where = ["--spool", str(way.spool), "--url", way.bridge.url, "--pin", way.bridge.pin]
    command = [sys.executable, "-I", "-S", str(producer), *where, "--token-file", str(way.token)]
    for _ in range(2):
        holding.clear()
        way.bridge.script.append(hold)
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        assert holding.wait(180)
        process.kill()
        process.wait()
    assert len(way.waiting()) == 5
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_until(lambda: not way.waiting(), "everything was taken")
    stop_process(process)
    release.set()
    assert process.returncode == 0
    assert way.prompts() == ["0", "1", "2", "3", "4"]
    assert len(way.bridge.requests) == 3


def test_two_forwarders_take_turns(way: Way) -> None:
    way.put("1")
    second = way.make()
    way.run()
    way.put("2")
    assert second.run_once() == 0
    way.forwarder.close()
    assert second.run_once() == 1


def test_poison_blocks_nothing(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is set aside and reported once; the others go on."""
    monkeypatch.setattr(spool_queue, "GRACE_SECONDS", 0.0)
    old = time.time() - 100
    outside = way.spool.parent / "outside"
    outside.write_text("precious")
    texts = [b"", b"not json", b'{"cut', b"[1]", b"\xff\xfe", b"[" * 100_000, b"{}"]
    texts.append(b'{"hook_event_name": "Stop", "session_id": "s", "n": NaN, "m": 1e999}')
    for number, data in enumerate(texts, 1):
        (way.spool / str(number)).write_bytes(data)
        os.utime(way.spool / str(number), (old, old))
    (way.spool / "9").mkdir()
    (way.spool / "9" / "inner").write_text("x")
    (way.spool / "10").symlink_to(outside)
    (way.spool / "11").symlink_to("/nonexistent")
    os.mkfifo(way.spool / "12")
    for name, size in (("13", 300 * 10**6), ("14", 5 * 2**30)):
        with (way.spool / name).open("wb") as huge:
            huge.truncate(size)
    way.put("15", old, session_id="")
    way.put("no number", old)
    if os.geteuid() == 0:
        shutil.chown(way.put("16", old), 65534, 65534)
    else:
        way.put("16", old).chmod(0)
    text = '{"hook_event_name":"UserPromptSubmit","session_id":"s","prompt":"p\\ud800\\u0000\t"}'
    way.put("20").write_bytes(b"\xef\xbb\xbf" + text.encode())
    way.run_until_empty()
    assert "p\ufffd\0\t" in way.prompts() and "16" not in way.prompts()
    assert outside.read_text() == "precious"
    assert spool_status(way.spool)["rejected"] == 17
    kept = sum(path.lstat().st_size for path in (way.spool / "rejected").iterdir())
    assert kept <= REJECTED_MAX_BYTES
    said = len(way.notices())
    way.run()
    assert said and len(way.notices()) == said


def test_what_is_nested_too_deeply_is_never_sent(way: Way) -> None:
    """It spoils no batch, of which the other events would be sent again and again."""
    deep = json.loads("[" * 101 + "]" * 101)
    way.put_many(range(3))
    way.put("3", time.time() - 47, extra=deep)
    way.put_many(range(4, 6))
    way.run_until_empty()
    assert way.prompts() == ["0", "1", "2", "4", "5", "Notification"]
    assert way.bridge.requests == [(BATCH, 5), (EVENT, 1)]
    assert spool_status(way.spool)["reasons"][0]["reason"] == "nested too deeply"


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forth", "back"])
def test_a_file_that_grows_is_waited_for_whatever_the_clock_does(
    way: Way, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grace begins when the forwarder sees it grow, whatever the time of file or clock."""
    whole = way.put("1").read_bytes()
    (way.spool / "1").write_bytes(whole[:30])
    way.put("2")
    assert way.run() == 1
    with time_machine.travel(time.time() + jump, tick=True):
        assert way.run() == 0
        assert way.waiting() == ["1"] and spool_status(way.spool)["rejected"] == 0
    (way.spool / "1").write_bytes(whole)
    assert way.run() == 1
    assert way.prompts() == ["2", "1"]
    monkeypatch.setattr(spool_queue, "GRACE_SECONDS", 0.0)
    (way.spool / "3").write_text("{")
    os.utime(way.spool / "3", (time.time() + 9999, time.time() + 9999))
    way.run()
    assert "3" not in way.waiting(), "one from the future is not waited for for ever"


def test_a_spool_over_its_bound_loses_the_oldest_and_says_so(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost up to the bound; then each session is told."""
    monkeypatch.setattr(spool_queue, "SPOOL_MAX_BYTES", 1_000_000)
    began = time.time() - 100
    way.bridge.stop()
    for number in range(15):
        session = f"s{number % 2}"
        way.put(str(number), began + number, session_id=session, more="x" * 99_000)
        way.run()
        if number == 8:
            assert len(way.waiting()) == 9
    way.bridge.start()
    way.run_until_empty()
    events = [int(prompt) for prompt in way.prompts() if prompt.isdigit()]
    assert 7 <= len(events) < 10 and events == list(range(15 - len(events), 15))
    gaps = [event for event in way.bridge.events if event["event"] == "Notification"]
    assert {gap["session_id"] for gap in gaps} == {"s0", "s1"}
    assert {gap["payload"]["notification_type"] for gap in gaps} == {"gap"}
    assert sum(int(text.split()[0]) for text in way.notices()) == 15 - len(events)


def test_a_full_spool_is_opened_again_and_the_gap_is_said(way: Way, hook: Hook) -> None:
    way.put("1")
    (way.spool / "full").touch()
    way.run_until_empty()
    assert not (way.spool / "full").exists()
    assert "not recorded" in way.notices()[0] and way.bridge.events[-1]["session_id"] == "s"
    hook(fixture("Stop"))
    assert way.run() == 1


def test_a_data_directory_that_was_removed_does_not_come_back(way: Way, tmp_path: Path) -> None:
    way.spool = tmp_path / "gone" / "spool"
    with meanwhile(way.forwarder.run_forever):
        wait_until(lambda: way.forwarder.trouble != "", "it noticed")
    assert not (tmp_path / "gone").exists()


def test_one_that_becomes_whole_while_later_ones_are_read_keeps_its_place(spool: Path) -> None:
    """Two hooks of a session at once: the first is written when the second is read."""

    class Slow(Spool):
        def read(self, name: str) -> tuple[File, dict[str, Any], ProcessNote | None]:
            if name == "200":  # meanwhile the first one is completed
                (spool / "100").write_text(json.dumps(first))
                os.utime(spool / "100", ns=(now - 2 * 10**9,) * 2)
            return super().read(name)

    first, second = ({"hook_event_name": "Stop", "session_id": "s", "n": n} for n in (1, 2))
    now = time.time_ns()
    (spool / "100").write_text("#1 100 agent /home\n")
    (spool / "200").write_text(json.dumps(second))
    os.utime(spool / "100", ns=(now - 2 * 10**9,) * 2)
    os.utime(spool / "200", ns=(now - 10**9,) * 2)
    queue = SpoolQueue(Slow(spool))
    queue.read_new()
    assert [item.file.name for item in queue.items] == ["100", "200"]
