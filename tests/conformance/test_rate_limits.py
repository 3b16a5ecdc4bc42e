"""Rate limits (spec, Limits; D9, D16, D17): per token, or per address where no token is valid.

A limit's minute may turn while a test counts, so a test asks until it is refused: never before the
limit, and at the latest after two minutes' worth; and where it goes on to be refused, there is
enough left of that minute. Addresses of 127.0.0.0/8 give each test a client address of its own.
"""

import itertools
import json
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import Response, assert_error
from tests.conformance.raw import upgraded
from tests.conformance.samples import hook, new_id, new_session, now, prompt
from tests.servers import Postgres, Redis, own, running

ENOUGH = 15  # seconds


def until_refused(
    ask: Callable[[], Response], limit: int, good: tuple[int, ...] = (200,), spent: int = 0
) -> Response:
    """Ask until 429, after `limit` answers at the earliest, less those that other tests spent."""
    answers = [ask()]
    while answers[-1].status in good and len(answers) <= 2 * limit:
        answers.append(ask())
    body = assert_error(answers[-1], 429, "RATE_LIMIT_EXCEEDED")
    assert 0 < body["retry_after"] <= 60, "whole seconds (D17)"
    assert len(answers) > limit - spent, f"refused after {len(answers) - 1} of {limit}"
    return answers[-1]


def enough_left(refused: Callable[[], Response]) -> None:
    """Be refused in a minute that does not end under what follows."""
    while (left := refused().json()["retry_after"]) <= ENOUGH:
        time.sleep(left + 1)  # until that minute is over


def asker(
    bridge: Bridge, method: str, *paths: str, token: str, body: object = ...
) -> Callable[[], Response]:
    """Asks for one path after the other, again and again, over one connection."""
    https = bridge.https()
    connection, turns = https.open(), itertools.cycle(paths)
    return lambda: https.request(
        method, next(turns), token=token, json_body=body, connection=connection
    )


@pytest.mark.slow
@pytest.mark.spec("limit.rate.event limit.rate.batch code.RATE_LIMIT_EXCEEDED auth.hardening")
def test_hooks_and_admin(rated: Bridge) -> None:
    """D2: with and without prefix are one endpoint, one count; batches and admin have their own."""
    sid = new_session()
    paths, body = ("/hooks/event", "/api/v1/hooks/event"), hook("Stop", sid)
    post = asker(rated, "POST", *paths, token=rated.hook_token, body=body)
    enough_left(lambda: until_refused(post, 120))
    stored = rated.session(sid)["hook_count"]
    assert post().status == 429
    assert rated.session(sid)["hook_count"] == stored, "what was refused is not stored"
    assert rated.post_batch([prompt(sid, 1)]).status == 200
    until_refused(lambda: rated.post_batch([hook("Stop", new_session())]), 10, spent=4)
    admin = asker(rated, "POST", "/api/v1/admin/reload-hooks", token=rated.admin_token)
    until_refused(admin, 10)


LIMITS = {"health": 60, "files/tree?path=.": 60, "sessions sessions/grouped sessions/unknown": 30}


@pytest.mark.parametrize("of", LIMITS)
@pytest.mark.spec("limit.rate.status", "limit.rate.sessions", "limit.rate.files")
def test_each_endpoint_has_its_limit(rated: Bridge, of: str) -> None:
    """D17: per token: another device is not held up by this one."""
    paths = [f"/api/v1/{path}" for path in of.split()]
    until_refused(asker(rated, "GET", *paths, token=rated.device_token()), LIMITS[of], (200, 404))
    assert rated.get(paths[0], rated.device_token()).status == 200


@pytest.mark.slow
@pytest.mark.spec("limit.rate.attachments")
def test_uploads_and_downloads_have_their_own(rated: Bridge) -> None:
    """D70: none of them takes from the others, nor from the other endpoints of sessions."""
    place, token = f"/api/v1/sessions/{new_session()}/attachments", rated.device_token()
    until_refused(asker(rated, "POST", place, token=token, body="x"), 30, (404,))
    until_refused(asker(rated, "GET", f"{place}/{new_id()}", token=token), 300, (404,))
    assert rated.get("/api/v1/sessions", token).status == 200


def test_scraping_refuses_no_health(rated: Bridge) -> None:
    """D17: /metrics has a count of its own."""
    until_refused(asker(rated, "GET", "/metrics", token=rated.admin_token), 60)
    assert rated.get("/api/v1/health", rated.admin_token).status == 200


def test_an_event_counts_once_in_an_outage(make_bridge: Callable[..., Bridge]) -> None:
    """D46, D17: its 503 is one of the 120."""
    with running(Postgres) as postgres:
        url = postgres.create_database()
        bridge = make_bridge("outage", database_url=url, BRIDGE_RATE_LIMITS="on")
        body = hook("Stop", new_session())
        bridge.accept(body)
        postgres.stop()
        post = asker(bridge, "POST", "/hooks/event", token=bridge.hook_token, body=body)
        until_refused(post, 120, (503,), spent=1)
        bridge.stop()


def test_upgrades(rated: Bridge) -> None:
    """D17: 30 a minute per address, refused with HTTP 429; another address is not."""
    until_refused(lambda: upgraded(rated.port, source="127.0.0.21"), 30, (101,))
    assert upgraded(rated.port, source="127.0.0.22").status == 101


@pytest.mark.spec("wscode.RATE_LIMITED")
def test_websocket_messages(rated: Bridge) -> None:
    """D17: 1,200 a minute per connection, heartbeats and notification_ack aside."""
    phone = rated.phone(source="127.0.0.31").ready()
    for _ in range(50):
        phone.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()}))
        phone.send("notification_ack", {"notification_ids": [new_id()]})
    health = {"timestamp": now(), "client_nonce": "n", "client_capabilities": []}
    sent = [phone.send("health_check", health) for _ in range(2450)]
    answers = [phone.until(lambda m, id_=id_: m.get("id") == id_, "an answer") for id_ in sent]  # type: ignore[misc]
    refused = [index for index, answer in enumerate(answers) if answer["type"] == "error"]
    assert refused and refused[0] >= 1190, "1,200 a minute, the few of getting ready aside"
    payload = answers[refused[0]]["payload"]
    assert (payload["code"], payload["recoverable"]) == ("RATE_LIMITED", True)
    phone.ping()
    phone.close()


def guess(bridge: Bridge, source: str) -> Response:
    return bridge.https(source=source).get("/api/v1/health", token="wrong")


@pytest.mark.spec("auth.lockout", "connerror.RATE_LIMITED")
def test_failed_authentication(rated: Bridge) -> None:
    """D16: 429 on every endpoint, the WebSocket, large bodies (D9); a correct token works."""
    source = "127.0.0.41"
    enough_left(lambda: until_refused(lambda: guess(rated, source), 10, (401,)))
    https = rated.https(source=source)
    for body in (b"{}", b"x" * (9 * 1024 * 1024)):
        answer = https.post("/api/v1/hooks/event", token="wrong", body=body)
        assert_error(answer, 429, "RATE_LIMIT_EXCEEDED")
    assert_error(https.get("/api/v1/sessions"), 429, "RATE_LIMIT_EXCEEDED")
    assert https.get("/api/v1/info", token=rated.hook_token).status == 200
    assert https.get("/api/v1/files/tree?path=.", token=rated.device_token()).status == 200
    with closing(rated.phone(source=source).ready()) as phone:
        phone.ping()
    thief = rated.phone(source=source).connect()
    told = thief.auth(token="wrong")
    assert (told["type"], told["payload"]["code"]) == ("connection_error", "RATE_LIMITED")
    assert thief.wait_closed() == 4429


def test_failures_over_the_websocket_count(rated: Bridge) -> None:
    """D16: the same count on both ways in."""
    codes: list[str] = []
    while "RATE_LIMITED" not in codes and len(codes) < 21:
        with closing(rated.phone(source="127.0.0.44").connect()) as phone:
            codes.append(phone.auth(token="wrong")["payload"]["code"])
    assert codes[-1] == "RATE_LIMITED"
    assert set(codes[:-1]) == {"AUTH_FAILED"} and len(codes) > 10
    answer = guess(rated, "127.0.0.44")
    if answer.status == 401:  # the minute has turned
        answer = until_refused(lambda: guess(rated, "127.0.0.44"), 9, (401,))
    assert_error(answer, 429, "RATE_LIMIT_EXCEEDED")


def test_failures_of_other_kinds_count(rated: Bridge) -> None:
    """D16, D18: a wrong Authorization on the upgrade, and a device's token at the hooks."""
    https, token = rated.https(source="127.0.0.47"), rated.device_token()
    until_refused(lambda: https.post("/hooks/event", token=token, json_body={}), 10, (401,))
    until_refused(
        lambda: upgraded(rated.port, source="127.0.0.45", Authorization="Bearer wrong"), 10, (401,)
    )


redis_server = own(Redis)


@pytest.mark.slow
def test_processes_share_counts(make_bridge: Callable[..., Bridge], redis_server: Redis) -> None:
    """D46: what one has refused the other refuses; without Redis each counts by itself."""
    more = {"redis_url": redis_server.create_database(), "BRIDGE_RATE_LIMITS": "on"}
    one = make_bridge("counting", **more)
    two = make_bridge("counting too", BRIDGE_HOOK_TOKEN=one.hook_token, **more)
    enough_left(lambda: until_refused(lambda: one.post_batch([]), 10))
    assert two.post_batch([]).status == 429
    redis_server.stop()
    try:
        for bridge in (one, two):
            until_refused(lambda bridge=bridge: bridge.post_batch([]), 10)  # type: ignore[misc]
            bridge.stop()
    finally:
        redis_server.start()


def test_the_pairing_page(rated: Bridge) -> None:
    """D17: 30 a minute for an address; another address is served."""
    until_refused(lambda: rated.https(source="127.0.0.21").get("/pair"), 30)
    assert rated.https(source="127.0.0.22").get("/pair").status == 200
