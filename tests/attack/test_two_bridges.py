"""Two bridges on one host name: cookies know no ports (docs/security.md)."""

from tests.conformance.admin import Admin
from tests.conformance.bridge import Bridge
from tests.faults.quick import bridge_of_module

one, other = bridge_of_module(), bridge_of_module()


def test_one_browser_is_logged_in_to_both(one: Bridge, other: Bridge) -> None:
    """A browser sends each bridge the cookies of the other: neither takes them for its own."""
    admins = here, there = Admin(one, "owner"), Admin(other, "owner")
    assert not here.cookies.keys() & there.cookies.keys()
    stranger = Admin.__new__(Admin)
    stranger.bridge, stranger.cookies, stranger.form_token = other, dict(here.cookies), ""
    assert stranger.get("/admin/").status == 302, "nobody is logged in by the other's cookie"
    shared = here.cookies | there.cookies
    for admin in (*admins, here):
        admin.cookies = shared
        assert "Log out" in admin.page("/admin/")
