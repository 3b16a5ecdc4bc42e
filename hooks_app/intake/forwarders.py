"""Remember which forwarders on other machines still have events to send (D47)."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from django.core.cache import caches

from bridge_project.protocol.http import ForwarderInfo
from bridge_project.protocol.types import now_text, parse_timestamp

# Events that wait, at most 500, and the seconds of the oldest: "312 95".
HEADER: Final = "X-Hook-Behind"
KEPT_SECONDS: Final = 180  # a forwarder that is behind says so with every request
MOST: Final = 20
_FORM: Final = re.compile(r"([0-9]{1,6}) ([0-9]{1,9})")
_KEYS: Final = [f"hook-forwarder-{number}" for number in range(MOST)]


def record(address: str, report: str) -> None:
    """Store a forwarder's report of its backlog.

    One of another form is ignored, and one more forwarder than MOST.
    Each forwarder has a key of its own. It takes a free one by `add`, which only one of two that
    report at once is granted.
    """
    if (found := _FORM.fullmatch(report)) is None:
        return
    waiting, seconds = int(found[1]), int(found[2])
    one = ForwarderInfo(address=address, waiting=waiting, seconds=seconds, at=now_text())
    cache = caches["shared"]
    for key in _KEYS:
        known = cache.get(key)
        if known is not None and known.address == address:
            cache.set(key, one, KEPT_SECONDS)
            return
        if known is None and cache.add(key, one, KEPT_SECONDS):
            return


def behind() -> list[ForwarderInfo]:
    """Return the forwarders that lately reported to be a minute or more behind."""
    since = datetime.now(UTC) - timedelta(seconds=KEPT_SECONDS)
    found = caches["shared"].get_many(_KEYS).values()
    latest = {one.address: one for one in sorted(found, key=lambda one: one.at)}
    return [one for one in latest.values() if parse_timestamp(one.at) > since]
