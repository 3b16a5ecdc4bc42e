"""Many large bodies at once: their memory has a bound, and the ordinary event passes by (D30)."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.conformance.bridge import Bridge
from tests.conformance.https import Https, assert_error
from tests.conformance.samples import hook, prompt

MB = 2**20
AT_ONCE = 20


def test_bodies_of_ten_megabytes(make_bridge: Callable[..., Bridge], sid: str) -> None:
    """Whole events, read, parsed and refused for their age. Unbounded they cost over 250 MB."""
    bridge = make_bridge("bodies")
    payload = {"reason": "x" * (10 * MB - 400)}
    body = json.dumps(hook("Stop", sid, payload, timestamp="2020-01-01T00:00:00Z")).encode()
    assert 9 * MB < len(body) < 10 * MB
    bridge.accept(prompt(sid, 0))
    before = most = bridge.memory()
    over = threading.Event()
    waits: list[float] = []

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, bridge.memory())

    def ordinary() -> None:
        while not over.wait(0.05):
            began = time.monotonic()
            bridge.accept(prompt(sid, len(waits)))
            waits.append(time.monotonic() - began)

    def large(_: int) -> None:
        client = Https(bridge.port, bridge.pin, timeout=120)
        answer = client.post("/api/v1/hooks/event", token=bridge.hook_token, body=body)
        assert_error(answer, 400, "HOOK_STALE_TIMESTAMP")

    with ThreadPoolExecutor(AT_ONCE + 2) as threads:
        beside = [threads.submit(watch), threads.submit(ordinary)]
        try:
            list(threads.map(large, range(AT_ONCE)))
        finally:
            over.set()
        for one in beside:
            one.result(180)
    assert most - before < 200 * MB, f"{(most - before) // MB} MB for {AT_ONCE} bodies"
    assert len(waits) > 3 and statistics.median(waits) < 10, waits
    assert bridge.session(sid)["hook_count"] == 1 + len(waits)
