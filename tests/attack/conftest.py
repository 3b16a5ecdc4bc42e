"""A phone on the bridge of a file's tests."""

from collections.abc import Iterator

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone


@pytest.fixture
def phone(bridge: Bridge) -> Iterator[Phone]:
    with bridge.phones(1) as (phone,):
        yield phone
