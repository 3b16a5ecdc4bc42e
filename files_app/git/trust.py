"""Let a repository's own programs run only when they are trusted (D63)."""

import contextlib
from functools import partial
from types import TracebackType
from typing import Any

from django.utils import timezone

from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.path_jail import shown
from bridge_project.kernel.threads import readers, writers
from bridge_project.protocol.catalogue import encode
from devices_app import audit
from devices_app.models import Device
from files_app.git import programs
from files_app.git.programs import Programs, Use
from files_app.models import TrustedRepository
from sessions_app import notifications
from sessions_app.log.outbox import outbox
from sessions_app.working_directory import Repository


class Trusted:
    """Run something in a repository whose programs are trusted.

    Raises BridgeError GIT_TRUST_REQUIRED with what would run in this use. Devices are told when the
    programs are others afterwards. ``more`` is part of what is trusted.
    """

    def __init__(
        self,
        place: Repository,
        device: Device | None,
        session_id: str | None,
        given: str | None,
        use: Use,
        *more: str,
    ) -> None:
        self.place, self.device, self.session_id, self.given = place, device, session_id, given
        self.find = partial(programs.find, place, use, *more)
        self.seen: Programs | None = None

    def __enter__(self) -> "Trusted":
        self.check()
        return self

    def check(self) -> None:
        """Compare the programs with what is trusted; once more right before they run."""
        found = self.find()
        if found.programs and not readers.begin(_known, self.place, found.digest).result():
            if self.given != found.digest:
                details = {
                    "repository": shown(found.repository),
                    "digest": found.digest,
                    "programs": [one.wire() for one in found.programs],
                }
                raise BridgeError("GIT_TRUST_REQUIRED", details=details)
            writers.begin(self._keep, found).result()
        self.seen = found

    def _keep(self, found: Programs) -> None:
        store(self.place, found, self.device.name if self.device else "")
        audit.record(
            "trust",
            device=self.device,
            session_id=self.session_id or "",
            subject=shown(self.place.top),
            digest=found.digest,
            programs=", ".join(found.names)[:1000],
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.seen is None or not self.seen.programs:
            return
        with contextlib.suppress(BridgeError):  # the repository is gone
            if self.find().digest != self.seen.digest:
                writers.begin(self._tell).result()

    def _tell(self) -> None:
        title = "A repository's programs have changed"
        body = (
            f"While they ran, the programs of {shown(self.place.top)} changed; the next use asks."
        )
        about = notifications.make(
            "error", title, body, priority="high", session_id=self.session_id
        )
        with outbox() as box:
            box.append_to_all(encode(about))


def holds(place: Repository) -> bool:
    """Return whether the programs of a commit are trusted; reading runs fewer."""
    if not readers.begin(TrustedRepository.objects.exists).result():
        return False
    return readers.begin(_known, place, programs.find(place, "commit").digest).result()


def store(place: Repository, found: Programs, device: str = "") -> None:
    """Trust these programs from now on.

    ``device``: the name of the device that said so; empty: it was said at this machine.
    """
    TrustedRepository.objects.update_or_create(
        **_where(place),
        digest=found.digest,
        defaults={"programs": found.names, "device": device, "at": timezone.now()},
    )


def _known(place: Repository, digest: str) -> bool:
    return TrustedRepository.objects.filter(**_where(place), digest=digest).exists()


def _where(place: Repository) -> dict[str, Any]:
    return {"path": shown(place.top), "git_dir": shown(place.git_dir)}
