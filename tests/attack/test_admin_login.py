"""Flood the admin site's log-in without a token (docs/security.md)."""

import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tests.conformance.admin import PASSWORD, text_of
from tests.conformance.bridge import Bridge, query
from tests.conformance.https import Https, Response
from tests.faults.clock import ClockBridge
from tests.servers import wait_until

LOG_IN = "/admin/login/"
CSRF = "c" * 32  # who floods makes his own
RATE = 10  # tries a minute
TURNS = 30

names: list[str] = []  # of the bridge's cookies, as it sets them


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockBridge]:
    """A bridge with its limits on and an admin user."""
    settings = {"BRIDGE_RATE_LIMITS": "on", "DJANGO_SUPERUSER_PASSWORD": PASSWORD}
    with ClockBridge(tmp_path_factory.mktemp("login"), **settings) as made:
        made.manage("make_admin", "--username", "owner")
        names[:] = [made.https().get(LOG_IN).headers["set-cookie"].partition("=")[0]]
        yield made


def log_in(https: Https, name: str, password: str, *, size: int = 0, **more: Any) -> Response:
    fields = {"csrfmiddlewaretoken": CSRF, "username": name, "password": password}
    body = urllib.parse.urlencode(fields | {"next": "/admin/" + "x" * size}).encode()
    given = more.pop("headers", {})
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": f"{names[0]}={CSRF}",
        "Referer": f"https://127.0.0.1:{https.port}{LOG_IN}",
    }
    return https.post(LOG_IN, body=body, headers=headers | given, **more)


def use_up(https: Https, **more: Any) -> Response:
    """Try until refused; without a name no password is checked, but the try counts."""
    for count in range(2 * RATE + 1):  # the minute may turn once
        answer = log_in(https, "", "x", **more)
        if answer.status == 429:
            assert count >= RATE
            return answer
        assert answer.status == 200, answer
    raise AssertionError("never refused")


@pytest.mark.slow
def test_a_rate_and_no_lock(bridge: ClockBridge) -> None:
    """Past 10 tries an address gets a page that says for how long, and tries prolong nothing."""
    https = bridge.https(source="127.0.0.51")
    refused = use_up(https)
    while (wait := int(refused.headers["retry-after"])) < 30:
        time.sleep(wait + 1)  # the minute must not turn under what follows
        refused = use_up(https)
    assert wait <= 61
    assert refused.headers["content-type"].startswith("text/html")
    assert f"Try again in {wait} second" in text_of(refused.body.decode())
    for _ in range(2 * RATE):
        answer = log_in(https, "owner", PASSWORD)
        assert answer.status == 429, "the right password is not looked at either: a look is a hash"
        assert int(answer.headers["retry-after"]) <= wait
    assert log_in(bridge.https(source="127.0.0.52"), "owner", PASSWORD).status == 302
    assert bridge.get("/api/v1/health", bridge.hook_token).status == 200
    bridge.set(bridge.ahead + wait + 60)  # less is not told from the clock that was
    assert log_in(https, "owner", PASSWORD).status == 302


def test_a_wrong_password_is_logged_with_its_address(bridge: ClockBridge) -> None:
    """The line says who; the name is not in it, for some type their password there."""
    https = bridge.https(source="127.0.0.53")
    assert log_in(https, "my-secret-password", "x").status == 200
    lines = bridge.logged()
    assert "127.0.0.53" in [
        one.get("client") for one in lines if one["event"] == "admin_log_in_failed"
    ]
    assert "my-secret-password" not in str(lines)


def test_a_large_form_is_refused(bridge: ClockBridge) -> None:
    """Before it is parsed; a user name of a megabyte is none."""
    answer = log_in(bridge.https(source="127.0.0.54"), "n" * 2**20, "x")
    assert answer.status in (401, 413), answer
    https = bridge.https(source="127.0.0.54")
    chunked = {"Content-Type": "application/x-www-form-urlencoded", "Transfer-Encoding": "chunked"}
    answer = https.post(LOG_IN, body=b"3\r\na=b\r\n0\r\n\r\n", headers=chunked)
    assert answer.status == 413, answer


def rows(bridge: Bridge) -> dict[str, int]:
    file = bridge.data / "bridge.sqlite3"
    tables = query(file, "SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name: query(file, f'SELECT count(*) FROM "{name}"')[0][0] for (name,) in tables}


def test_a_stranger_writes_nothing(bridge: ClockBridge) -> None:
    """Tries with much to remember, and visits, leave no row, and the database does not grow."""
    files = [bridge.data / f"bridge.sqlite3{end}" for end in ("", "-wal")]
    before, size = rows(bridge), sum(one.stat().st_size for one in files)
    https = bridge.https(source="127.0.0.56")
    statuses = Counter[int]()
    with closing(https.open()) as connection:
        for turn in range(TURNS):
            answer = log_in(https, "owner", f"x{turn}", size=6000, connection=connection)
            statuses[answer.status] += 1
            name = names[0].replace("csrf", "session")
            cookie = {"Cookie": f"{name}={turn:032d}"}
            path = ("/admin/", LOG_IN, "/admin/logout/")[turn % 3]
            https.get(path, headers=cookie, connection=connection)
    assert set(statuses) == {200, 429} and statuses[429] >= TURNS - 2 * RATE, statuses
    assert rows(bridge) == before
    assert sum(one.stat().st_size for one in files) - size < 2**20


def test_few_passwords_are_checked_at_once(bridge: ClockBridge) -> None:
    """Of 16 from as many addresses some are sent away at once, and /health answers meanwhile."""
    together = threading.Barrier(16)

    def guess(number: int) -> Response:
        https = bridge.https(source=f"127.0.1.{number}")
        with closing(https.open()) as connection:
            together.wait(180)
            return log_in(https, f"nobody-{number}", "x", connection=connection)

    with ThreadPoolExecutor(16) as pool:
        guesses = [pool.submit(guess, number) for number in range(1, 17)]
        wait_until(lambda: any(one.done() for one in guesses), "the first is sent away")
        assert bridge.get("/api/v1/health", bridge.hook_token).status == 200
        answers = [one.result() for one in guesses]
    assert {answer.status for answer in answers} == {200, 429}
    assert any(b"Too many log-ins at once" in answer.body for answer in answers)
