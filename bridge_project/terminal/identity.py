"""Pair ``watch`` as a device, and keep its token in the data directory (D43, D62)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import Error as DatabaseError
from django.db import connection

from bridge_project.kernel.config import Conf
from bridge_project.kernel.private_files import make_private_dir, write_private_file
from bridge_project.network import server_address
from bridge_project.terminal.client import Lost, Refused, Target
from devices_app import pairing, tokens
from devices_app.models import Device

PLACES = 5  # several terminals at once are several devices, or each would push the other out (D23)
# the token goes into a private file, not on a screen: the bridge may be started later
CLAIM_WITHIN = timedelta(days=1)


@contextlib.contextmanager
def place(conf: Conf) -> Iterator[Path]:
    """Hold the first free of a few identities for as long as the context lasts; gives the file of
    its token. Raises Refused.
    """
    directory = make_private_dir(conf.bridge_data_dir)
    for number in range(1, PLACES + 1):
        path = directory / ("watch.json" if number == 1 else f"watch-{number}.json")
        with open(
            os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb"
        ) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield path
            return
    raise Refused(f"{PLACES} watches run with this data directory already.")


def target(conf: Conf, path: Path) -> Target:
    """Where the bridge of this machine is, and who we are there; pairs when need be. Raises Lost
    while it was never started, Refused when revoked.
    """
    here = server_address.recorded(conf)
    if here is None:
        raise Lost("the bridge has not been started with this data directory yet (make run)")
    try:
        known = _identity(path)
    except DatabaseError as error:
        raise Lost(f"the database cannot be used yet ({' '.join(str(error).split())})") from None
    finally:
        connection.close()
    return Target(
        url=here.local_ws_url or here.ws_url,
        token=known["token"],
        pin=here.pin,
        device_id=known["device_id"],
    )


def keep(path: Path, used: str, fresh: str) -> None:
    """Store a fresh token, which is used from the next connection on. Raises OSError.

    The one that was used stays beside it: the bridge takes it until the fresh one was used, and
    again when it is set back to a backup that does not know the fresh one.
    """
    known = (_read(path) or {}) | {"token": fresh, "previous": used}
    _write(path, known)


def _identity(path: Path) -> dict[str, Any]:
    known = _read(path)
    if known is not None:
        for token in (known["token"], known.get("previous", "")):
            principal = tokens.identify(token)
            if principal is not None and principal.device is not None:
                return known | {"token": token}
        device = Device.objects.filter(pk=known["device"]).first()
        if device is not None and device.revoked_at is not None:
            raise Refused(
                f"This terminal's device, {device}, was revoked. To pair it again, remove {path}."
            )
    name = f"watch on {socket.gethostname()}"[:70] + (
        "" if path.name == "watch.json" else f" ({path.stem.rpartition('-')[2]})"
    )
    device, _, plain = pairing.mint(name, ttl=CLAIM_WITHIN, lifetime=None)
    made = {"token": plain, "device": device.pk, "device_id": str(uuid.uuid4())}
    _write(path, made)
    return made


def _write(path: Path, identity: dict[str, Any]) -> None:
    write_private_file(path, json.dumps(identity, indent=2).encode() + b"\n")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        known = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return (
        known
        if isinstance(known, dict) and {"token", "device", "device_id"} <= known.keys()
        else None
    )
