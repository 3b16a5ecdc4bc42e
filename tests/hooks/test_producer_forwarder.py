"""The forwarder: order, exactly once, waiting, refusals, clocks, and files that no hook wrote
(D47).
"""

from __future__ import annotations

import ctypes
import email.utils
import json
import os
import resource
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

from hooks_app.producer import program
from hooks_app.producer.program import HOOK_SCRIPT, Forwarder, HttpsTransport, spool_status
from tests.hooks.conftest import Hook, waiting
from tests.hooks.scripted import TOKEN, ScriptedBridge, answer, cut_after_taking, fixture
from tests.servers import stop_process, wait_until

EVENT, BATCH = program.EVENT, program.BATCH


def put(spool: Path, name: str, mtime: float | None = None, **fields: Any) -> Path:
    """A file as the hook command leaves it."""
    path = spool / name
    path.write_text(
        json.dumps(
            {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": name, **fields}
        )
    )
    if mtime is not None:
        os.utime(path, ns=(int(mtime * 1e9), int(mtime * 1e9)))
    return path


def prompts(bridge: ScriptedBridge) -> list[str]:
    return [
        event["payload"]["prompt"] if event["event"] == "UserPromptSubmit" else event["event"]
        for event in bridge.events
    ]


def ready(forwarder: Forwarder) -> None:
    """End of whatever wait the forwarder has been told."""
    forwarder._retry_at = 0.0
    forwarder._open_at = {EVENT: 0.0, BATCH: 0.0}


@contextmanager
def running(forwarder: Forwarder) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=forwarder.run_forever, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(15)
        assert not thread.is_alive()


# -- order and transport


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
    assert prompts(bridge) == ["200", "SessionStart", "9", "100", "SessionEnd"]


def test_at_a_tie_process_ids_that_began_anew_come_later(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    moment = float(int(time.time()) - 10)
    for name in ("301", "32760", "32767", "305"):
        put(spool, name, moment)
    forwarder.run_once()
    assert prompts(bridge) == ["32760", "32767", "301", "305"]


def test_an_event_leaves_at_once(
    spool: Path,
    bridge: ScriptedBridge,
    forwarder: Forwarder,
    hook: Hook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "POLL_SECONDS", 1.0)
    monkeypatch.setattr(program, "LOOK_SECONDS", 10.0)
    with running(forwarder):
        hook(fixture("Stop"))
        wait_until(lambda: len(bridge.events) > 0, 5, "the first event")
        took = []
        for number in range(1, 8):
            hook({**fixture("Stop"), "number": number})
            began = time.monotonic()
            while len(bridge.events) <= number:
                assert time.monotonic() - began < 15
                time.sleep(0.001)
            took.append(time.monotonic() - began)
    # about 5 ms on an idle machine; a poll would take far longer
    assert sorted(took)[len(took) // 2] < 0.3


def test_without_inotify_it_polls(
    spool: Path,
    bridge: ScriptedBridge,
    forwarder: Forwarder,
    hook: Hook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NoInotify:
        def __init__(self, *args: object, **kwargs: object) -> None:
            raise OSError

    monkeypatch.setattr(ctypes, "CDLL", NoInotify)
    with running(forwarder):
        wait_until((spool / "id").exists, 5, "the forwarder runs")
        hook(fixture("Stop"))
        wait_until(lambda: len(bridge.events) > 0, 5, "the event")


# -- nothing lost, nothing doubled


def test_the_bridge_was_away(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, hook: Hook
) -> None:
    bridge.stop()
    with running(forwarder):
        for name in (
            "SessionStart-startup",
            "UserPromptSubmit",
            "PreToolUse-Bash",
            "PostToolUse-Bash",
            "Stop",
            "SessionEnd-other",
        ):
            hook(fixture(name))
        wait_until(lambda: forwarder.trouble != "", 5, "it noticed")
        assert len(waiting(spool)) == 6
        bridge.start()
        wait_until(lambda: len(bridge.events) == 6, 10, "all events")
    assert [event["event"] for event in bridge.events] == [
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "SessionEnd",
    ]
    assert forwarder.trouble == ""


def test_an_answer_that_was_lost_makes_no_duplicate(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.script.append(cut_after_taking)
    put(spool, "1")
    forwarder.run_once()
    ready(forwarder)
    forwarder.run_once()
    assert bridge.requests == [(EVENT, 1), (EVENT, 1)]
    assert prompts(bridge) == ["1"]
    assert waiting(spool) == []


def test_a_connection_closed_while_idle_is_opened_again_at_once(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    put(spool, "1")
    forwarder.run_once()
    bridge.script.append(cut_after_taking)
    put(spool, "2")
    assert forwarder.run_once() == 1
    assert prompts(bridge) == ["1", "2"]
    assert bridge.connections == 2


def test_killed_between_sending_and_deleting_it_sends_the_same_ids(
    spool: Path, bridge: ScriptedBridge
) -> None:
    """kill -9 while the bridge has taken the events but not answered, three times; then a forwarder
    that may live.
    """
    holding, release = threading.Event(), threading.Event()

    def hold(held: ScriptedBridge, path: str, events: list[dict[str, Any]]) -> None:
        held.take(events)
        holding.set()
        release.wait(20)

    for number in range(5):
        put(spool, str(number), time.time() - 50 + number)
    token = spool.parent / "token"
    token.write_text(TOKEN + "\n")
    command = [
        sys.executable,
        "-I",
        program.__file__,
        "--spool",
        str(spool),
        "--url",
        bridge.url,
        "--pin",
        bridge.pin,
        "--token-file",
        str(token),
    ]
    for _ in range(3):
        holding.clear()
        bridge.script.append(hold)
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        assert holding.wait(20)
        process.kill()
        process.wait()
    assert len(waiting(spool)) == 5
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_until(lambda: not waiting(spool), 20, "everything was taken")
    stop_process(process)
    release.set()
    assert process.returncode == 0
    assert prompts(bridge) == ["0", "1", "2", "3", "4"]
    assert len(bridge.requests) == 4


def test_two_forwarders_take_turns(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    put(spool, "1")
    second = Forwarder(spool, HttpsTransport(bridge.url, lambda: TOKEN, bridge.pin))
    forwarder.run_once()
    put(spool, "2")
    assert second.run_once() == 0
    forwarder.close()
    assert second.run_once() == 1
    second.close()
    assert prompts(bridge) == ["1", "2"]


# -- waiting


@pytest.mark.parametrize("status", [500, 503, 401, 403, 404, 302])
def test_what_may_pass_is_waited_for(
    spool: Path,
    bridge: ScriptedBridge,
    forwarder: Forwarder,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "BACKOFF_SECONDS", (20.0, 30.0))
    bridge.script.append(answer(status))
    put(spool, "1")
    assert forwarder.run_once() == 0
    assert forwarder.run_once() == 0
    assert len(bridge.requests) == 1  # not hammered
    assert 0 < forwarder._retry_at - time.monotonic() <= 20
    assert str(status) in forwarder.trouble
    ready(forwarder)
    assert forwarder.run_once() == 1
    assert prompts(bridge) == ["1"]


def test_waits_grow_to_half_a_minute(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    put(spool, "1")
    waits = []
    for _ in range(12):
        bridge.script.append(answer(500))
        ready(forwarder)
        forwarder.run_once()
        waits.append(forwarder._retry_at - time.monotonic())
    assert waits[0] <= 0.2 < waits[3] < waits[6]
    assert 14 < max(waits) <= 30


@pytest.mark.parametrize(
    ("headers", "body"),
    [({"Retry_After": "7"}, {}), ({}, {"retry_after": 7})],
    ids=["header", "body"],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured(
    spool: Path,
    bridge: ScriptedBridge,
    forwarder: Forwarder,
    status: int,
    headers: dict[str, str],
    body: dict[str, Any],
) -> None:
    bridge.script.extend([answer(status, body, **headers), answer(status, body, **headers)])
    put(spool, "1")
    forwarder.run_once()
    assert 5 < forwarder._retry_at - time.monotonic() <= 7
    assert waiting(spool) == ["1"]


def test_a_date_is_a_retry_after_too() -> None:
    told = program.Answer(
        503, {"retry-after": email.utils.formatdate(time.time() + 30, usegmt=True)}, {}
    )
    assert program.retry_after(told) == pytest.approx(30, abs=2)


def test_when_single_events_are_limited_batches_go_on(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.script.append(answer(429, Retry_After="60"))
    put(spool, "1")
    assert forwarder.run_once() == 1
    assert bridge.requests == [(EVENT, 1), (BATCH, 1)]
    put(spool, "2")
    assert forwarder.run_once() == 0
    assert forwarder._retry_at - time.monotonic() < program.BATCH_GAP_SECONDS
    put(spool, "3", hook_event_name="PermissionRequest", tool_name="Bash", tool_input={})
    ready(forwarder)
    forwarder._open_at[EVENT] = time.monotonic() + 60
    assert forwarder.run_once() == 2  # a human is waited for: no gap


def test_the_token_file_may_be_replaced(
    spool: Path, bridge: ScriptedBridge, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old-token")
    forwarder = Forwarder(spool, HttpsTransport(bridge.url, program.token_from(token), bridge.pin))
    put(spool, "1")
    assert forwarder.run_once() == 0
    assert waiting(spool) == ["1"]
    token.write_text(TOKEN + "\n")
    ready(forwarder)
    assert forwarder.run_once() == 1
    token.unlink()
    put(spool, "2")
    forwarder.run_once()
    assert waiting(spool) == ["2"]
    forwarder.close()


@pytest.mark.parametrize("pin", ["00" * 32, "zz", "short"])
def test_another_key_gets_not_a_byte(spool: Path, bridge: ScriptedBridge, pin: str) -> None:
    forwarder = Forwarder(spool, HttpsTransport(bridge.url, lambda: TOKEN, pin))
    put(spool, "1")
    forwarder.run_once()
    forwarder.close()
    assert "pinned" in forwarder.trouble
    assert (bridge.requests, bridge.bytes_before_close, waiting(spool)) == ([], 0, ["1"])


def test_without_a_pin_an_unknown_authority_is_refused(spool: Path, bridge: ScriptedBridge) -> None:
    forwarder = Forwarder(spool, HttpsTransport(bridge.url, lambda: TOKEN))
    put(spool, "1")
    forwarder.run_once()
    forwarder.close()
    assert "CERTIFICATE" in forwarder.trouble.upper()
    assert bridge.requests == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:8443", "https://"])
def test_only_https(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        HttpsTransport(url, lambda: TOKEN)


# -- refusals


def test_what_is_refused_for_good_is_set_aside_and_said_once(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.refuse = lambda event: event["payload"].get("prompt") == "2"
    for number in range(1, 4):
        put(spool, str(number), time.time() - 100 + number)
    assert forwarder.run_once() == 2
    assert forwarder.run_once() == 1
    assert forwarder.run_once() == 0
    assert prompts(bridge) == ["1", "3", "Notification"]
    notice = bridge.events[-1]
    assert (
        notice["session_id"],
        notice["payload"]["level"],
        notice["payload"]["notification_type"],
    ) == ("s", "error", "hook_rejected")
    assert "scripted" in notice["payload"]["message"]
    status = spool_status(spool)
    assert (status["waiting"], status["rejected"], status["reasons"][0]["reason"]) == (
        0,
        1,
        "payload.x: scripted",
    )
    assert waiting(spool) == []


def test_a_refused_notice_makes_no_further_notice(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.refuse = lambda event: True
    put(spool, "1")
    for _ in range(4):
        forwarder.run_once()
    assert len(bridge.requests) == 2
    assert waiting(spool) == []


def test_a_batch_refused_as_a_whole_is_taken_apart(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    """One event that spoils the body for the others is found by halving; all the others arrive, in
    order.
    """

    def spoilt(
        held: ScriptedBridge, path: str, events: list[dict[str, Any]]
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        held.script.append(spoilt)
        if any(event["payload"].get("prompt") == "7" for event in events):
            return 400, {}, {"code": "HOOK_INVALID_PAYLOAD", "message": "not usable JSON"}
        held.take(events)
        return 200, {}, {"received": True, "errors": []}

    bridge.script.append(spoilt)
    for number in range(20):
        put(spool, str(number), time.time() - 100 + number)
    assert forwarder.run_once() == 19
    assert prompts(bridge) == [str(number) for number in range(20) if number != 7]
    assert spool_status(spool)["reasons"][0]["reason"] == "not usable JSON"
    assert len(bridge.requests) < 20


def test_too_large_for_the_bridge_is_cut_further(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.max_bytes = 20_000
    put(spool, "1", more="x" * 500_000)
    assert forwarder.run_once() == 1
    assert bridge.events[0]["payload"]["truncated"] is True
    bridge.max_bytes = 100
    put(spool, "2", more="x" * 500_000)
    forwarder.run_once()
    assert spool_status(spool)["rejected"] == 1


def test_a_bad_request_about_the_host_is_not_the_events_fault(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    bridge.script.append(answer(400, {"code": "HOST_NOT_ALLOWED"}))
    put(spool, "1")
    forwarder.run_once()
    assert waiting(spool) == ["1"]


# -- clocks


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("skew", [3600.0, -3600.0])
def test_a_wrong_clock_is_put_right_with_the_servers_time(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, skew: float, count: int
) -> None:
    bridge.skew = skew
    for number in range(count):
        put(spool, str(number), time.time() - 10 + number)
    assert forwarder.run_once() == count
    assert prompts(bridge) == [str(number) for number in range(count)]
    assert all("occurred_at" in event for event in bridge.events)
    put(spool, "9")
    requests = len(bridge.requests)
    assert forwarder.run_once() == 1
    assert len(bridge.requests) == requests + 1  # learnt once


def test_a_time_that_stays_stale_does_not_go_round_for_ever(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    stale = answer(400, {"code": "HOOK_STALE_TIMESTAMP", "message": "stale"})
    bridge.script.extend([stale] * 10)
    put(spool, "1")
    forwarder.run_once()
    assert spool_status(spool)["rejected"] == 1
    assert len(bridge.requests) == program.STALE_RETRIES + 1


def test_what_waited_long_has_a_fresh_time_and_its_own(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    put(spool, "1", time.time() - 7200)
    assert forwarder.run_once() == 1
    [event] = bridge.events
    assert event["occurred_at"] < event["timestamp"]


# -- files that no hook wrote


def test_poison_blocks_nothing(spool: Path, bridge: ScriptedBridge, forwarder: Forwarder) -> None:
    old = time.time() - 100
    outside = spool.parent / "outside"
    outside.write_text("precious")
    for name, data in {
        "1": b"",
        "2": b"not json",
        "3": b'{"cut',
        "4": b"[1]",
        "5": b"\xff\xfe",
        "6": b"[" * 100_000,
        "7": b'{"n": NaN}',
        "8": b"{}",
    }.items():
        (spool / name).write_bytes(data)
        os.utime(spool / name, (old, old))
    (spool / "9").mkdir()
    (spool / "9" / "inner").write_text("x")
    (spool / "10").symlink_to(outside)
    (spool / "11").symlink_to("/nonexistent")
    os.mkfifo(spool / "12")
    with (spool / "13").open("wb") as huge:
        huge.truncate(5 * 2**30)
    put(spool, "14", old, session_id="")
    put(spool, "15", old).chmod(0)
    put(spool, "20")
    forwarder._grace = 0.0
    for _ in range(3):
        forwarder.run_once()
    assert waiting(spool) == []
    assert "20" in prompts(bridge)
    assert outside.read_text() == "precious"
    assert spool_status(spool)["rejected"] == (14 if os.geteuid() == 0 else 15)
    assert (
        sum(path.lstat().st_size for path in (spool / "rejected").iterdir())
        <= program.REJECTED_MAX_BYTES
    )


def test_a_file_that_grows_is_waited_for(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    whole = put(spool, "1").read_bytes()
    (spool / "1").write_bytes(whole[:30])
    put(spool, "2")
    assert forwarder.run_once() == 1
    assert waiting(spool) == ["1"]
    (spool / "1").write_bytes(whole)
    assert forwarder.run_once() == 1
    assert prompts(bridge) == ["2", "1"]


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forth", "back"])
def test_a_clock_that_jumps_while_a_file_is_written_sets_nothing_aside(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, jump: float
) -> None:
    """The grace is measured from where the forwarder has seen the file last grow, whatever time the
    file and the machine have.
    """
    whole = put(spool, "1").read_bytes()
    (spool / "1").write_bytes(whole[:30])
    assert forwarder.run_once() == 0
    with time_machine.travel(time.time() + jump, tick=True):
        assert forwarder.run_once() == 0
        assert waiting(spool) == ["1"] and spool_status(spool)["rejected"] == 0
    (spool / "1").write_bytes(whole)
    assert forwarder.run_once() == 1
    assert prompts(bridge) == ["1"]


def test_a_file_from_the_future_is_not_waited_for_for_ever(
    spool: Path, bridge: ScriptedBridge
) -> None:
    forwarder = Forwarder(spool, HttpsTransport(bridge.url, lambda: TOKEN, bridge.pin), grace=0.05)
    (spool / "1").write_text("{")
    os.utime(spool / "1", (time.time() + 9999, time.time() + 9999))
    forwarder.run_once()
    time.sleep(0.06)  # the grace itself is what is tested
    forwarder.run_once()
    forwarder.close()
    assert "1" not in waiting(spool)


def test_awkward_numbers_and_bytes_arrive(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder
) -> None:
    path = put(spool, "1")
    text = (
        '{"hook_event_name":"UserPromptSubmit","session_id":"s","prompt":"p\\ud800\\u0000","big":%s,"inf":1e999,"e":1e5,"i":-7}'
        % ("9" * 5000)
    )
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert forwarder.run_once() == 1
    payload = bridge.events[0]["payload"]
    assert (payload["prompt"], payload["big"], payload["inf"], payload["e"], payload["i"]) == (
        "p\ufffd\0",
        "9" * 5000,
        "1e999",
        1e5,
        -7,
    )


def test_a_spool_over_its_bound_loses_the_oldest_and_says_so(
    spool: Path, bridge: ScriptedBridge
) -> None:
    forwarder = Forwarder(
        spool, HttpsTransport(bridge.url, lambda: TOKEN, bridge.pin), max_bytes=1_000_000
    )
    for number in range(15):
        put(
            spool,
            str(number),
            time.time() - 100 + number,
            session_id=f"s{number % 2}",
            more="x" * 99_000,
        )
    assert spool_status(spool)["bytes"] > 1_400_000
    forwarder.run_once()
    forwarder.run_once()
    forwarder.close()
    assert prompts(bridge)[-3:] == ["14", "Notification", "Notification"]
    assert prompts(bridge)[0] == "7"
    notices = [event for event in bridge.events if event["event"] == "Notification"]
    assert {notice["session_id"] for notice in notices} == {"s0", "s1"}
    assert all(
        notice["payload"]["notification_type"] == "gap"
        and "dropped" in notice["payload"]["message"]
        for notice in notices
    )


def test_a_full_spool_is_opened_again_and_the_gap_is_said(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, hook: Hook
) -> None:
    put(spool, "1")
    (spool / "full").touch()
    forwarder.run_once()
    forwarder.run_once()
    assert not (spool / "full").exists()
    assert "not recorded" in bridge.events[-1]["payload"]["message"]
    assert bridge.events[-1]["session_id"] == "s"
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
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, hook: Hook
) -> None:
    """D47: a gap is said. While the disk is full the notice cannot be written either: it is not
    forgotten, and no half of it stays.
    """
    forwarder.run_once()
    hook(fixture("Stop"))
    (spool / "lost").touch()
    (spool / "42").write_bytes(b"{")
    forwarder._grace = 0.0
    with no_room():
        assert forwarder.run_once() == 1, "what was spooled goes out all the same"
    assert (spool / "lost").exists() and not list(spool.glob(".draft-*"))
    hook(fixture("Stop"))
    put(spool, "42")  # a hook of the process id whose file was set aside
    while forwarder.run_once():
        pass
    assert waiting(spool) == [] and not (spool / "lost").exists()
    notices = sorted(
        event["payload"]["message"] for event in bridge.events if event["event"] == "Notification"
    )
    assert (
        len(notices) == 2
        and "could not be delivered" in notices[0]
        and "the disk was full" in notices[1]
    )
    assert len(bridge.events) == 5


def test_a_spool_that_was_replaced_goes_on(
    spool: Path, bridge: ScriptedBridge, forwarder: Forwarder, hook: Hook
) -> None:
    with running(forwarder):
        hook(fixture("Stop"))
        wait_until(lambda: len(bridge.events) > 0, 5, "the first event")
        spool.rename(spool.with_name("old"))
        spool.mkdir(mode=0o700)
        wait_until((spool / HOOK_SCRIPT).exists, 30, "the hook's script in the new spool")
        hook(fixture("StopFailure"))
        wait_until(lambda: len(bridge.events) == 2, 10, "the event in the new spool")


def test_a_data_directory_that_was_removed_does_not_come_back(
    tmp_path: Path, bridge: ScriptedBridge
) -> None:
    forwarder = Forwarder(
        tmp_path / "gone" / "spool", HttpsTransport(bridge.url, lambda: TOKEN, bridge.pin)
    )
    with running(forwarder):
        wait_until(lambda: forwarder.trouble != "", 5, "it noticed")
    assert not (tmp_path / "gone").exists()


def test_status_of_a_spool(spool: Path) -> None:
    assert spool_status(spool / "nowhere") == {
        "waiting": 0,
        "oldest_age_seconds": None,
        "bytes": 0,
        "rejected": 0,
        "reasons": [],
        "full": False,
    }
    put(spool, "1", time.time() - 60)
    status = spool_status(spool)
    assert (status["waiting"], status["full"]) == (1, False)
    assert status["oldest_age_seconds"] == pytest.approx(60, abs=5)
