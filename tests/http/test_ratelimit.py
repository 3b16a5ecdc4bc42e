"""What counts as one address (D16). The limits themselves: tests/conformance/test_rate_limits.py."""

from __future__ import annotations

import pytest

from bridge_project.kernel.text import network_of


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("unix", "unix", True),
    ],
)
def test_what_is_one_address(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same
