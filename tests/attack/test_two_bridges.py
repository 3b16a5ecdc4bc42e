"""Two bridges on one host name: cookies know no ports (docs/security.md, number 15)."""

from collections.abc import Iterator

import pytest

from tests.conformance.admin import Admin
from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge


@pytest.fixture
def bridges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Bridge]]:
    places = [tmp_path_factory.mktemp("one-of-two") for _ in range(2)]
    with QuickBridge(places[0]) as one, QuickBridge(places[1]) as other:
        yield [one, other]


def test_one_browser_is_logged_in_to_both(bridges: list[Bridge]) -> None:
    """A browser sends each bridge the cookies of the other: neither takes them for its own."""
    one, other = (Admin(bridge, "owner") for bridge in bridges)
    for name in one.cookies:
        assert name not in other.cookies
    stranger = Admin.__new__(Admin)
    stranger.bridge, stranger.cookies, stranger.form_token = other.bridge, dict(one.cookies), ""
    assert stranger.get("/admin/").status == 302, "nobody is logged in by the other's cookie"
    shared = one.cookies | other.cookies
    for admin in (one, other, one):
        admin.cookies = shared
        assert "Log out" in admin.page("/admin/")
