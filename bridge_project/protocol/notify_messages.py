"""Define the messages about what a device is told, and when (D74)."""

from functools import cache
from typing import Annotated, Final, Self
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, model_serializer, model_validator
from pydantic import SerializerFunctionWrapHandler as Write

from bridge_project.kernel import limits
from bridge_project.protocol.base import ClientPayload, Received, Sent, ServerPayload
from bridge_project.protocol.types import NotificationType, PushDetail, SessionId

_zones: Final = cache(available_timezones)


def _check_zone(name: str) -> str:
    if name not in _zones():
        raise ValueError("must be a time zone of the IANA database, as Europe/Berlin")
    return name


Time = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class QuietHours(Received):
    """Hold quiet hours, by the clock of a zone; an earlier ``to`` is of the next day."""

    from_: Time = Field(alias="from")
    to: Time
    zone: Annotated[str, Field(max_length=64), AfterValidator(_check_zone)]

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if self.from_ == self.to:
            raise ValueError("`from` and `to` must differ")
        return self


class NotifySet(ClientPayload):
    """Choose what this device is told; a field that is absent stays as it is.

    It governs pushes, and what a client raises itself, never the log.

    ``kinds``: the types of notifications that are pushed. ``muted``: sessions of which nothing is.
    ``reminder_minutes``: after so many an approval that still waits is pushed again, at most three
    times; 0, the default: never. ``quiet``: meanwhile nothing is pushed; an approval that still
    waits is, when they end; null: none. ``detail``: as of ``push_subscribe``. Approvals of high and
    critical risk pass ``muted`` and ``quiet``.
    """

    type = "notify_set"
    reply = ("notify_state",)
    kinds: list[NotificationType] | None = None
    muted: Annotated[list[SessionId], Field(max_length=limits.NOTIFY_MUTED_MAX)] | None = None
    reminder_minutes: Annotated[int, Field(ge=0, le=1440)] | None = None
    quiet: QuietHours | None = None
    detail: PushDetail | None = None


class Notify(Sent):
    """Hold what a device has chosen to be told (D74)."""

    nullable = frozenset({"quiet"})
    kinds: list[NotificationType]
    muted: list[str]
    reminder_minutes: int
    quiet: QuietHours | None = None
    detail: PushDetail

    @model_serializer(mode="wrap")
    def _with_null(self, write: Write):  # type: ignore[no-untyped-def]
        return dict.fromkeys(self.nullable) | write(self)


class NotifyState(ServerPayload, Notify):
    """Say what this device is told; each of its fields is described at ``notify_set``."""

    type = "notify_state"
