"""GET /metrics: who may read it, and that every figure is what it says."""

import sqlite3
from contextlib import closing

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.https import assert_error
from tests.conformance.samples import hook, new_id, new_session, prompt
from tests.faults.quick import bridge_of_module
from tests.servers import wait_until

Samples = dict[tuple[str, ...], float]
QUEUE_MAX = 4  # rows of a session

bridge = bridge_of_module(BRIDGE_QUEUE_MAX=str(QUEUE_MAX))


def scrape(bridge: Bridge) -> Samples:
    """(name, label value …) → value."""
    answer = bridge.get("/metrics", bridge.admin_token)
    assert answer.status == 200
    return {
        (one.name, *one.labels.values()): one.value
        for family in parse(answer.body.decode())
        for one in family.samples
    }


def test_only_the_admin_token_reads_them(bridge: Bridge) -> None:
    assert_error(bridge.get("/metrics"), 401, "AUTH_INVALID_TOKEN")
    for token in (bridge.hook_token, bridge.device_token()):
        assert_error(bridge.get("/metrics", token), 403, "AUTH_INSUFFICIENT_SCOPE")
    by_admin = {
        method: bridge.https().request(method, "/metrics", token=bridge.admin_token)
        for method in ("GET", "HEAD", "OPTIONS", "POST")
    }
    assert by_admin["GET"].headers["content-type"].startswith("text/plain; version=")
    assert by_admin["GET"].headers["cache-control"] == "no-store"
    assert (by_admin["HEAD"].status, by_admin["HEAD"].body) == (200, b"")
    assert (by_admin["OPTIONS"].status, by_admin["OPTIONS"].body) == (204, b"")
    assert by_admin["OPTIONS"].headers["allow"] == "GET, HEAD, OPTIONS"
    assert_error(by_admin["POST"], 405, "METHOD_NOT_ALLOWED")


def test_every_name_is_documented(bridge: Bridge) -> None:
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    text = bridge.get("/metrics", bridge.admin_token).body.decode()
    names = {family.name for family in parse(text)}
    assert len(names) > 20
    own = {name for name in names if not name.startswith("process_")}
    assert not [name for name in own if not name.startswith("bridge_") or f"`{name}" not in page]


def test_accepted_events_by_name_and_once(bridge: Bridge) -> None:
    before, sid = scrape(bridge), new_session()
    bridge.accept(prompt(sid, 1), prompt(sid, 2), hook("SessionEnd", sid))
    again = prompt(sid, 3, event_id=new_id())
    for _ in range(2):
        assert bridge.post_batch([again]).status == 200
    assert bridge.post_hook({}).status == 400
    after = scrape(bridge)
    for name, count in {"UserPromptSubmit": 3, "SessionEnd": 1}.items():
        key = ("bridge_events_accepted_total", name)
        assert after[key] - before.get(key, 0) == count
    commits = after["bridge_commit_seconds_count",] - before["bridge_commit_seconds_count",]
    assert commits == 4, "a transaction that appended nothing is none of these"


@pytest.mark.spec("severity.warning")
def test_errors_by_code(bridge: Bridge) -> None:
    with bridge.phones(1) as (phone,):
        before = scrape(bridge)
        bridge.get("/api/v1/health")
        bridge.post_hook({})
        bridge.get("/nowhere", bridge.hook_token)
        phone.request("git_status_request", {"session_id": new_session()})
        with closing(bridge.phone()) as stranger:
            stranger.connect().auth(token="wrong")
        after = scrape(bridge)
    expected = [
        ("http", "AUTH_INVALID_TOKEN"),
        ("http", "HOOK_INVALID_EVENT_TYPE"),
        ("http", "NOT_FOUND"),
        ("websocket", "SESSION_NOT_FOUND"),
        ("websocket", "AUTH_FAILED"),
    ]
    for over, code in expected:
        name = f"bridge_{over}_errors_total"
        assert after[name, code] == before.get((name, code), 0) + 1, code


def test_the_queue_is_what_the_log_holds(bridge: Bridge) -> None:
    """Also when rows have been dropped."""
    before, sid = scrape(bridge), new_session()
    bridge.accept(*[prompt(sid, number) for number in range(QUEUE_MAX + 2)])
    found = scrape(bridge)
    assert found["bridge_queue_rows",] - before["bridge_queue_rows",] <= QUEUE_MAX + 1
    with closing(sqlite3.connect(bridge.data / "bridge.sqlite3")) as database:
        held = database.execute("SELECT count(*), sum(size) FROM sessions_app_logrow").fetchone()
    assert held == (found["bridge_queue_rows",], found["bridge_queue_bytes",])


def test_a_devices_lag_shrinks_as_it_acknowledges(bridge: Bridge) -> None:
    pairing, unused, sids = bridge.pairing(), bridge.pairing(), (new_session(), new_session())
    bridge.accept(prompt(sids[0], 0))
    phone = bridge.phone(pairing).ready()
    phone.close()

    def lag(name: str = pairing.name) -> list[float]:
        return [value for key, value in scrape(bridge).items() if name in key]

    assert lag() == [0], "it starts at the present (D28)"
    bridge.accept(*[prompt(sids[0], 1), *[prompt(sids[1], number) for number in (1, 2, 3)]])
    assert lag() == [5], "four events, and the new session's announcement"
    with closing(phone.ready()):
        phone.ack(*phone.wait_numbers(sids[1], [1, 2, 3])[:2])
        wait_until(lambda: lag() == [3], "two are stored as received")
        phone.ack(*[one for one in phone.messages if "id" in one])
        wait_until(lambda: lag() == [0], "all are")
    assert lag(unused.name) == []
    bridge.manage("revoke_device", pairing.name)
    assert lag() == []
