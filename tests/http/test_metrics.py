"""GET /metrics: every figure is documented, and some are what they say."""

from contextlib import closing

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.conformance.bridge import REPOSITORY, Bridge, query
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import bridge_of_module

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


def test_every_name_is_documented(bridge: Bridge) -> None:
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    answer = bridge.get("/metrics", bridge.admin_token)  # who may: test_errors_http.py
    assert answer.headers["cache-control"] == "no-store"
    text = answer.body.decode()
    names = {family.name for family in parse(text)}
    assert len(names) > 20
    own = {name for name in names if not name.startswith("process_")}
    assert not [name for name in own if not name.startswith("bridge_") or f"`{name}" not in page]


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
    """Also when rows have been dropped; each event is counted once, whatever became of it."""
    before, sid = scrape(bridge), new_session()
    bridge.accept(*[prompt(sid, number) for number in range(QUEUE_MAX + 2)])
    found = scrape(bridge)
    accepted = ("bridge_events_accepted_total", "UserPromptSubmit")
    assert found[accepted] - before.get(accepted, 0) == QUEUE_MAX + 2
    assert found["bridge_queue_rows",] - before["bridge_queue_rows",] <= QUEUE_MAX + 1
    counted = "SELECT count(*), sum(size) FROM sessions_app_logrow"
    (held,) = query(bridge.data / "bridge.sqlite3", counted)
    assert held == (found["bridge_queue_rows",], found["bridge_queue_bytes",])
