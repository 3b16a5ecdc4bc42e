"""Send to the addresses of BRIDGE_NOTIFY_URLS, by Apprise (D74).

Apprise takes a second and 25 MB when it is first imported, so only a thread that sends imports it.
What it says of a failure may hold the address: only a status is taken from that.
"""

import hashlib
import logging
import re
import threading
from functools import cache
from typing import Any, Final

from django.db.models import QuerySet
from django.utils import timezone

from bridge_project import __version__
from bridge_project.kernel import limits, metrics, notify_urls
from bridge_project.kernel.config import conf
from devices_app.models import NotifyAddress
from devices_app.push.sending import Outcome
from devices_app.push.subscriptions import moment

NOT_UNDERSTOOD: Final = "Apprise does not understand this address."
TEST: Final = "A test of the bridge: it is told of here what no device has."

_hanging: dict[str, threading.Thread] = {}  # address → its call that was given up


@cache
def configured() -> dict[str, str]:
    """Return digest → address."""
    urls = dict.fromkeys(conf.bridge_notify_urls.split())
    return {hashlib.sha256(url.encode()).hexdigest(): url for url in urls}


def begin(position: int) -> None:
    """Store each new address, which begins after that row of the log."""
    for digest, url in configured().items():
        first = {"position": position, "name": notify_urls.name_of(url)[:200]}
        NotifyAddress.objects.get_or_create(first, digest=digest)


def usable() -> QuerySet[NotifyAddress]:
    return NotifyAddress.objects.filter(digest__in=configured())


def listed() -> list[NotifyAddress]:
    """Return all that are configured, also those that no bridge has begun with."""
    known = {one.digest: one for one in usable()}
    return [
        known.get(digest) or NotifyAddress(digest=digest, name=notify_urls.name_of(url))
        for digest, url in configured().items()
    ]


def is_understood(address: NotifyAddress) -> bool:
    return _service(configured()[address.digest]) is not None


def test(address: NotifyAddress) -> str:
    """Send a test, and say in words what became of it."""
    outcome = send(address, "Test", TEST)
    address.problem, address.last_at = outcome.problem, timezone.now()
    if address.pk is not None:
        address.save(update_fields=["problem", "last_at"])
    return last_word(address)


def last_word(address: NotifyAddress) -> str:
    """Say in words what became of what was sent there last."""
    if address.last_at is None:
        return "Nothing was sent there yet."
    at = moment(address.last_at)
    return f"Failed, {at}: {address.problem}" if address.problem else f"Taken, {at}."


def send(address: NotifyAddress, title: str, body: str) -> Outcome:
    """Send in a thread of the address's own, which has NOTIFY_SECONDS."""
    url = configured()[address.digest]
    if (before := _hanging.get(url)) and before.is_alive():
        return _counted(Outcome("It still has not answered what was sent before.", again_in=0))
    answers: list[Outcome] = []

    def work() -> None:
        try:
            answers.append(_send(url, title, body))
        except Exception as error:  # noqa: BLE001 - its text may hold the address
            answers.append(Outcome(f"Apprise failed ({type(error).__name__}).", again_in=0))

    thread = threading.Thread(target=work, name="address", daemon=True)
    thread.start()
    thread.join(limits.NOTIFY_SECONDS)
    if not answers:
        _hanging[url] = thread
        return _counted(Outcome(f"No answer in {limits.NOTIFY_SECONDS:g} s.", again_in=0))
    return _counted(answers[0])


def _counted(outcome: Outcome) -> Outcome:
    metrics.pushes.labels("failed" if outcome.problem else "taken").inc()
    return outcome


def _send(url: str, title: str, body: str) -> Outcome:
    from apprise import Apprise, NotifyFormat

    if (service := _service(url)) is None:
        return Outcome(NOT_UNDERSTOOD)
    messenger = Apprise(asset=_asset())
    messenger.add(service)
    result = messenger.notify(title=title, body=body or title, body_format=NotifyFormat.TEXT)
    if result:
        return Outcome()
    attempts = [attempt for one in result.results for attempt in one.attempts]
    said = " ".join(entry.message for attempt in attempts for entry in attempt.logs)
    status = re.search(r"error=(\d{3})\b", said)
    problem = f"It answered {status[1]}." if status else "It cannot be reached, or did not take it."
    return Outcome(problem, again_in=0)


def _service(url: str) -> Any:
    """Return what Apprise makes of an address, or None."""
    from apprise import Apprise

    service = Apprise.instantiate(url, asset=_asset())
    if service is not None:
        # whatever the address asks for
        service.redirects = False
        service.socket_connect_timeout = service.socket_read_timeout = limits.NOTIFY_SECONDS / 2
    return service


@cache
def _asset() -> Any:
    """Return what holds for every address; nothing is read from or written to disks."""
    from apprise import AppriseAsset, PersistentStoreMode

    # its lines have topics and addresses
    logger = logging.getLogger("apprise")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return AppriseAsset(
        app_id=f"Bridge/{__version__}",
        app_desc="Bridge",
        app_url="",
        image_url_mask="",  # else phones fetch its logo from GitHub
        image_url_logo="",
        http_redirects=False,
        async_mode=False,
        service_timeout=0,  # `send` bounds it
        storage_mode=PersistentStoreMode.MEMORY,
    )
