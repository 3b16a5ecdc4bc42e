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
_KEY: Final = "hook-forwarders"


def record(address: str, report: str) -> None:
    """Store a forwarder's report of its backlog; ignore one of another form."""
    if (found := _FORM.fullmatch(report)) is None:
        return
    others = [one for one in behind() if one.address != address][-(MOST - 1) :]
    waiting, seconds = int(found[1]), int(found[2])
    one = ForwarderInfo(address=address, waiting=waiting, seconds=seconds, at=now_text())
    caches["shared"].set(_KEY, [*others, one], KEPT_SECONDS)


def behind() -> list[ForwarderInfo]:
    """Return the forwarders that lately reported to be a minute or more behind."""
    since = datetime.now(UTC) - timedelta(seconds=KEPT_SECONDS)
    return [one for one in caches["shared"].get(_KEY, []) if parse_timestamp(one.at) > since]
