"""Rate limits (spec, Limits; D9, D16, D17): counted per token, or per address where there is no
valid token.

A limit's minute may turn while a test counts, so a test posts until it is refused: never before the
limit, and at the latest after two minutes' worth; and where it goes on to be refused, there is
enough left of that minute. Addresses of 127.0.0.0/8 give each test a client address of its own.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.https import Https, Response, assert_error
from tests.conformance.phone import Phone
from tests.conformance.raw import RawSocket
from tests.conformance.samples import hook, new_id, new_session, now, prompt
from tests.servers import Redis

ENOUGH = 5  # seconds


def until_refused(
    ask: Callable[[], Response], limit: int, good: tuple[int, ...] = (200,), spent: int = 0
) -> Response:
    """Ask until 429; it must come after `limit` answers at the earliest, less those that other
    tests may have spent.
    """
    for count in range(2 * limit + 1):
        answer = ask()
        if answer.status == 429:
            assert count >= limit - spent, f"refused after {count} of {limit}"
            body = assert_error(answer, 429, "RATE_LIMIT_EXCEEDED")
            assert 0 < body["retry_after"] <= 60, "whole seconds (D17)"
            return answer
        assert answer.status in good, answer
    raise AssertionError(f"{2 * limit + 1} requests without a 429")


def enough_left(refused: Callable[[], Response]) -> None:
    """Be refused in a minute that does not end under what follows."""
    while (left := refused().json()["retry_after"]) <= ENOUGH:
        time.sleep(left + 1)  # until that minute is over


def asker(
    bridge: Bridge, method: str, path: str, token: str | None, **more: object
) -> Callable[[], Response]:
    """The same request again and again over one connection."""
    https = bridge.https()
    connection = https.open()
    return lambda: https.request(method, path, token=token, connection=connection, **more)  # type: ignore[arg-type]


@pytest.mark.spec("limit.rate.event", "code.RATE_LIMIT_EXCEEDED", "auth.hardening")
def test_hooks_event(rated: Bridge) -> None:
    """Spec: 120 a minute; D2: with and without prefix are one endpoint, one count; batches have
    their own.
    """
    sid = new_session()
    https = rated.https()
    connection = https.open()
    turn = iter(range(10_000))

    def post() -> Response:
        path = ("/hooks/event", "/api/v1/hooks/event")[next(turn) % 2]
        return https.post(
            path, token=rated.hook_token, json_body=hook("Stop", sid), connection=connection
        )

    enough_left(lambda: until_refused(post, 120))
    stored = rated.session(sid)["hook_count"]
    assert post().status == 429
    assert rated.session(sid)["hook_count"] == stored, "what was refused is not stored"
    assert rated.post_batch([prompt(sid, 1)]).status == 200


@pytest.mark.spec("limit.rate.batch")
def test_hooks_batch(rated: Bridge) -> None:
    """Spec: 10 a minute."""
    until_refused(
        asker(
            rated,
            "POST",
            "/api/v1/hooks/batch",
            rated.hook_token,
            json_body={"events": [hook("Stop", new_session())]},
        ),
        10,
        spent=4,
    )


@pytest.mark.parametrize(
    ("path", "limit"),
    [("/api/v1/health", 60), ("/api/v1/files/tree?path=.", 60), ("/api/v1/sessions", 30)],
)
@pytest.mark.spec("limit.rate.status", "limit.rate.sessions", "limit.rate.files")
def test_each_endpoint_has_its_limit(rated: Bridge, path: str, limit: int) -> None:
    """Spec, Limits; D17: per token: another device is not held up by this one."""
    first, second = rated.device_token(), rated.device_token()
    until_refused(asker(rated, "GET", path, first), limit)
    assert rated.get(path, second).status == 200


@pytest.mark.spec("limit.rate.sessions")
def test_sessions_are_one_group(rated: Bridge) -> None:
    """Spec: /sessions/*: one session and all of them share 30 a minute."""
    rated.post_batch([prompt("grouped", 1)])
    token, turn = rated.device_token(), iter(range(10_000))
    https = rated.https()
    connection = https.open()
    paths = ("/api/v1/sessions", "/api/v1/sessions/grouped", "/api/v1/sessions/unknown")
    until_refused(
        lambda: https.get(paths[next(turn) % 3], token=token, connection=connection), 30, (200, 404)
    )


def test_admin(rated: Bridge) -> None:
    """D17: /admin/*: 10 a minute."""
    until_refused(asker(rated, "POST", "/api/v1/admin/reload-hooks", rated.admin_token), 10)


def test_upgrades(rated: Bridge) -> None:
    """D17: /ws upgrades: 30 a minute per address, refused with HTTP 429; another address is not."""

    def upgrade() -> Response:
        with closing(RawSocket(rated.port, source="127.0.0.21")) as socket:
            return socket.upgrade()

    until_refused(upgrade, 30, (101,))
    other = RawSocket(rated.port, source="127.0.0.22")
    assert other.upgrade().status == 101
    other.close()


@pytest.mark.spec("wscode.RATE_LIMITED")
def test_websocket_messages(rated: Bridge) -> None:
    """D17: 1,200 a minute per connection, heartbeats and notification_ack aside, then error
    RATE_LIMITED, recoverable, the message not acted on.
    """
    phone = Phone(rated.port, rated.device_token(), rated.pin, source="127.0.0.31").ready()
    for _ in range(50):
        phone.send_raw(json.dumps({"type": "heartbeat_ping", "timestamp": now()}))
        phone.send("notification_ack", {"notification_ids": [new_id()]})
    health = {"timestamp": now(), "client_nonce": "n", "client_capabilities": []}
    sent = [phone.send("health_check", health) for _ in range(2450)]
    phone.collect(
        lambda: (
            sum(message["type"] in ("health_status", "error") for message in phone.messages) >= 2451
        ),
        "2450 answers",
        60,
    )
    answers = {
        str(message["id"]): message
        for message in phone.messages
        if message["type"] != "heartbeat_pong"
    }
    refused = [index for index, id_ in enumerate(sent) if answers[id_]["type"] == "error"]
    assert refused and refused[0] >= 1190, "1,200 a minute, the few of getting ready aside"
    payload = answers[sent[refused[0]]]["payload"]
    assert isinstance(payload, dict)
    assert payload["code"] == "RATE_LIMITED"
    assert payload["recoverable"] is True
    phone.ping()
    phone.close()


def guess(bridge: Bridge, source: str, forwarded_for: str = "") -> Response:
    """Ask with a wrong token from an address, or as a proxy there passes the request on."""
    if not forwarded_for:
        return bridge.https(source=source).get("/api/v1/health", token="wrong")
    https = Https(int(bridge.settings["BRIDGE_PLAIN_PORT"]), plain=True, source=source)
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": forwarded_for}
    return https.get("/api/v1/health", token="wrong", headers=headers)


def locked_out(bridge: Bridge, source: str, forwarded_for: str = "") -> None:
    """Fail from an address until it is refused."""
    enough_left(lambda: until_refused(lambda: guess(bridge, source, forwarded_for), 10, (401,)))


@pytest.mark.spec("auth.lockout", "connerror.RATE_LIMITED")
def test_failed_authentication(rated: Bridge) -> None:
    """D16: after 10 failures in a minute the address gets 429, on every endpoint and over the
    WebSocket; a correct token from there still works.
    """
    source = "127.0.0.41"
    locked_out(rated, source)
    assert_error(guess(rated, "127.0.0.43"), 401, "AUTH_INVALID_TOKEN")
    https = rated.https(source=source)
    assert_error(
        https.post("/api/v1/hooks/event", token="wrong", json_body={}), 429, "RATE_LIMIT_EXCEEDED"
    )
    assert_error(https.get("/api/v1/sessions"), 429, "RATE_LIMIT_EXCEEDED")
    assert https.get("/api/v1/info", token=rated.hook_token).status == 200
    assert https.get("/api/v1/files/tree?path=.", token=rated.device_token()).status == 200
    assert https.post(
        "/api/v1/hooks/batch", token=rated.hook_token, json_body={"events": []}
    ).status in (200, 429)
    phone = Phone(rated.port, rated.device_token(), rated.pin, source=source).ready()
    phone.ping()
    phone.close()
    thief = Phone(rated.port, "wrong", rated.pin, source=source)
    thief.connect()
    answer = thief.auth()
    assert answer["type"] == "connection_error"
    assert answer["payload"]["code"] == "RATE_LIMITED"
    assert thief.wait_closed() == 4429


def test_failures_over_the_websocket_count(rated: Bridge) -> None:
    """D16: the same count on both ways in."""
    codes: list[str] = []
    while "RATE_LIMITED" not in codes and len(codes) < 21:
        phone = Phone(rated.port, "wrong", rated.pin, source="127.0.0.44")
        phone.connect()
        codes.append(phone.auth()["payload"]["code"])
        phone.close()
    assert codes[-1] == "RATE_LIMITED"
    assert set(codes[:-1]) == {"AUTH_FAILED"} and len(codes) > 10
    assert_error(guess(rated, "127.0.0.44"), 429, "RATE_LIMIT_EXCEEDED")


def test_failures_of_other_kinds_count(rated: Bridge) -> None:
    """D16, D18: a wrong Authorization on the upgrade is a failure too, and so is a device's token
    at the hooks.
    """
    https, token = rated.https(source="127.0.0.47"), rated.device_token()
    until_refused(lambda: https.post("/hooks/event", token=token, json_body={}), 10, (401,))

    def upgrade() -> Response:
        with closing(RawSocket(rated.port, source="127.0.0.45")) as socket:
            return socket.upgrade(headers={"Authorization": "Bearer wrong"})

    until_refused(upgrade, 10, (401,))


def test_behind_a_proxy_each_client_has_its_address(rated: Bridge) -> None:
    """D16, D19: the client address is the rightmost hop that is not a trusted proxy: a made-up hop
    on the left is no escape.
    """
    locked_out(rated, "127.0.0.1", "203.0.113.5")
    forged = guess(rated, "127.0.0.1", "198.51.100.77, 203.0.113.5")
    assert_error(forged, 429, "RATE_LIMIT_EXCEEDED")
    other = guess(rated, "127.0.0.1", "203.0.113.5, 203.0.113.6")
    assert_error(other, 401, "AUTH_INVALID_TOKEN")


def test_processes_share_a_count_in_redis(
    make_bridge: Callable[..., Bridge], tmp_path: Path
) -> None:
    """D46: what one has refused the other refuses; without Redis each counts by itself."""
    redis = Redis(tmp_path)
    redis.start()
    more = {"redis_url": redis.url, "BRIDGE_RATE_LIMITS": "on"}
    one = make_bridge("counting", **more)
    two = make_bridge("counting too", BRIDGE_HOOK_TOKEN=one.hook_token, **more)

    def post(bridge: Bridge) -> Response:
        return bridge.post_batch([])

    try:
        enough_left(lambda: until_refused(lambda: post(one), 10))
        assert post(two).status == 429
    finally:
        redis.stop()
    for bridge in (one, two):
        until_refused(lambda bridge=bridge: post(bridge), 10)  # type: ignore[misc]
        bridge.stop()


def test_ipv6_addresses_count_by_64(rated: Bridge) -> None:
    """D16: IPv6: per /64."""
    turn = iter(range(1000))

    def ask() -> Response:
        return guess(rated, "127.0.0.1", f"2001:db8:1:1:{next(turn):x}:1:2:3")

    until_refused(ask, 10, (401,))
    assert guess(rated, "127.0.0.1", "2001:db8:1:2:1:1:2:3").status == 401


def test_a_limit_is_told_to_a_client_that_sends_much(rated: Bridge) -> None:
    """D9, D17: a 429 reaches a client that sends a large body."""
    source = "127.0.0.46"
    locked_out(rated, source)
    try:
        answer = rated.https(source=source).post(
            "/api/v1/hooks/event", token="wrong", body=b"x" * (9 * 1024 * 1024)
        )
    except (ConnectionError, ssl.SSLError) as error:
        raise AssertionError("cut off before the answer") from error
    assert_error(answer, 429, "RATE_LIMIT_EXCEEDED")
