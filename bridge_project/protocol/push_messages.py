"""Define the messages about push, in both directions (D56)."""

import re
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from bridge_project.kernel import limits
from bridge_project.protocol.base import ClientPayload, Received, Sent, ServerPayload
from bridge_project.protocol.types import PushDetail, Timestamp


def _check_key(size: int, value: str) -> str:
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{{-(-size * 4 // 3)}}}={{0,2}}", value):
        raise ValueError(f"must be {size} bytes in base64url")
    return value.rstrip("=")


def _form(size: int) -> Any:
    pattern = f"^[A-Za-z0-9_-]{{{-(-size * 4 // 3)}}}={{0,2}}$"
    return Field(json_schema_extra={"pattern": pattern})


class PushKeys(Received):
    """Hold a browser's keys: ``p256dh``, its public key; ``auth``, its secret."""

    p256dh: Annotated[str, _form(65), AfterValidator(partial(_check_key, 65))]
    auth: Annotated[str, _form(16), AfterValidator(partial(_check_key, 16))]


class PushSubscription(Received):
    """Hold the result of a browser's ``PushSubscription.toJSON()``."""

    endpoint: str = Field(max_length=limits.PUSH_ENDPOINT_MAX_CHARS)
    keys: PushKeys


class _PushRequest(ClientPayload):
    queue = "push"
    reply = ("push_state",)


class PushSubscribe(_PushRequest):
    """Subscribe the device to pushes; its last subscription counts.

    It ends with the device. ``detail`` ``full``: pushes name the tool and its description;
    ``quiet``, the default: only that an agent needs somebody.
    """

    type = "push_subscribe"
    subscription: PushSubscription
    detail: PushDetail = "quiet"


class PushUnsubscribe(_PushRequest):
    """Ask for no more pushes."""

    type = "push_unsubscribe"


class PushTest(_PushRequest):
    """Send a test push; answered when the push service has answered, or is too slow."""

    type = "push_test"


class LastPush(Sent):
    """Say what became of a device's last push.

    ``at``: when the ``service`` accepted it, or failed (``problem``: how; else absent).
    ``shown_at``: when the device's own service worker has shown it.
    """

    service: str
    at: Timestamp
    problem: str | None = None
    shown_at: Timestamp | None = None


class PushState(ServerPayload):
    """Describe the device's subscription; ``detail`` is null without one.

    ``problem``: why the push service refused the last push, in words; absent if it did not.
    ``last``: what became of that push (D74).
    """

    type = "push_state"
    nullable = frozenset({"detail"})
    subscribed: bool
    detail: PushDetail | None = None
    problem: str | None = None
    last: LastPush | None = None
