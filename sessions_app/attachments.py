"""Keep the pictures and files of sessions in the data directory (D70)."""

import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes

import structlog
from django.db import transaction
from django.db.models import Sum

from bridge_project.kernel import limits, picture_files
from bridge_project.kernel.config import conf
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.picture_files import Picture
from bridge_project.kernel.private_files import make_private_dir, write_private_file
from bridge_project.kernel.text import printable
from bridge_project.protocol import http, resources
from sessions_app.models import Attachment, Session

log = structlog.get_logger("bridge.attachments")

_PLACE = "attachments"
_ANY_TYPE = "application/octet-stream"
_EXTENSION_BYTES = 20  # a longer one is a part of the name


def path_of(session_pk: int, attachment_id: str) -> Path:
    return conf.bridge_data_dir / _PLACE / str(session_pk) / attachment_id


def body_of(attachment: Attachment) -> dict[str, object]:
    """Return what an upload answers."""
    names = http.Attachment.model_fields
    return {name: getattr(attachment, name) for name in names}


def name_of(header: str, media_type: str) -> str:
    """Return a usable name from an X-File-Name: UTF-8, percent-encoded or as it is.

    Without directories, controls and characters that turn text round, of at most 255 bytes.
    """
    text = unquote_to_bytes(header.encode("latin-1", "replace")).decode("utf-8", "replace")
    text = " ".join(printable(text.replace("\\", "/").rpartition("/")[2]).split())
    if text.strip(".") == "":
        text = f"picture{picture_files.EXTENSIONS[media_type]}" if media_type else "file"
    stem, extension = os.path.splitext(text)
    if len(extension.encode()) > _EXTENSION_BYTES:
        stem, extension = text, ""
    room = limits.ATTACHMENT_NAME_BYTES - len(extension.encode())
    return stem.encode()[:room].decode("utf-8", "ignore") + extension


def give(session: Session, attachment_ids: Sequence[str]) -> list[dict[str, object]]:
    """Describe the attachments of a prompt, and how the session's agent is given them.

    Raises PROTO_INVALID_MESSAGE when one is not there: nothing is given then.
    """
    rows = Attachment.objects.filter(session=session, attachment_id__in=attachment_ids)
    found = {
        row.attachment_id: row for row in rows if path_of(session.pk, row.attachment_id).exists()
    }
    missing = [
        {
            "field": f"attachments[{place}]",
            "constraint": "an attachment of this session",
            "received": one,
        }
        for place, one in enumerate(attachment_ids)
        if one not in found
    ]
    if missing:
        words = "An attachment is not there: upload it to this session again."
        raise BridgeError("PROTO_INVALID_MESSAGE", words, violations=missing)
    return [_given(session, found[one]) for one in dict.fromkeys(attachment_ids)]


def _given(session: Session, row: Attachment) -> dict[str, object]:
    about = {name: getattr(row, name) for name in ("attachment_id", "name", "type", "size")}
    if row.type == _ANY_TYPE:
        return about | {"given": "file"}
    if not row.whole:
        return about | {"given": None, "reason": "The picture is cut off."}
    is_small = row.size <= session.picture_bytes
    if is_small:
        data = path_of(session.pk, row.attachment_id).read_bytes()
        is_small = max(picture_files.sides_of(data)) <= limits.PICTURE_SIDE_PIXELS
    return about | {"given": "picture" if is_small else "file"}


def sent_before(session_pk: int, client_id: str, data: bytes) -> Attachment | None:
    """Return what the same sender has sent before under the same id, with these bytes."""
    if not client_id:
        return None
    digest = hashlib.sha256(data).hexdigest()
    found = Attachment.objects.filter(session=session_pk, client_id=client_id, sha256=digest)
    return found.first()


def write(session_pk: int, data: bytes, attachment_id: str = "") -> str:
    """Write a file before its row, and return its id. Raises STORAGE_UNAVAILABLE."""
    path = path_of(session_pk, attachment_id or str(uuid.uuid4()))
    try:
        make_private_dir(conf.bridge_data_dir, _PLACE, str(session_pk))
        write_private_file(path, data)
    except OSError as error:
        words = f"The file could not be stored ({error.strerror})."
        raise BridgeError("STORAGE_UNAVAILABLE", words) from error
    return path.name


def record(
    session: Session, attachment_id: str, data: bytes, *, name: str, client_id: str = ""
) -> Attachment:
    """Record a file that ``write`` wrote, in an outbox; the oldest make room for it."""
    made = Attachment.objects.create(
        session=session,
        attachment_id=attachment_id,
        name=name,
        type=picture_files.media_type_of(data) or _ANY_TYPE,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        whole=picture_files.is_whole(data),
        client_id=client_id,
    )
    _make_room(limits.ATTACHMENTS_SESSION_BYTES, session=session)
    _make_room(limits.ATTACHMENTS_TOTAL_BYTES)
    return made


def write_pictures(session_pk: int, pictures: Iterable[Picture]) -> None:
    """Write the files of an agent's pictures, so that ``keep`` need not do it."""
    for picture in pictures:
        if not path_of(session_pk, picture.attachment_id).exists():
            try:
                write(session_pk, picture.data, picture.attachment_id)
            except BridgeError as error:  # what the agent says counts more
                log.warning("picture_not_kept", session=session_pk, error=error.message)


def keep(session: Session, pictures: Sequence[Picture]) -> list[resources.Picture]:
    """Keep an agent's pictures, inside an outbox; return what stands in their place."""
    ids = {one.attachment_id: one for one in pictures}
    known = Attachment.objects.filter(session=session, attachment_id__in=ids) if ids else ()
    new = ids.keys() - {row.attachment_id for row in known}
    write_pictures(session.pk, ids.values())
    for attachment_id in sorted(new):
        one = ids[attachment_id]
        record(session, attachment_id, one.data, name=one.name)
    return [resources.Picture(**one.block()) for one in ids.values()]


def _make_room(most: int, **which: Session) -> None:
    """Remove the oldest attachments that exceed a bound; the newest fits within any."""
    rows = Attachment.objects.filter(**which)
    excess = (rows.aggregate(bytes=Sum("size"))["bytes"] or 0) - most
    for oldest in rows.order_by("pk") if excess > 0 else ():
        if excess <= 0:
            break
        excess -= oldest.size
        oldest.delete()
        remove(oldest.session_id, oldest.attachment_id)


def remove(session_pk: int, attachment_id: str = "") -> None:
    """Remove a file, or all of a session, once the caller's transaction commits."""
    path = path_of(session_pk, attachment_id)
    if attachment_id:
        transaction.on_commit(lambda: path.unlink(missing_ok=True))
    else:
        transaction.on_commit(lambda: shutil.rmtree(path, ignore_errors=True))


def remove_leftovers() -> int:
    """Remove files without a row; return how many.

    A crash, or an older database that was restored, leaves such.
    """
    before = time.time() - limits.ATTACHMENT_LEFTOVER_SECONDS
    files = (conf.bridge_data_dir / _PLACE).glob("*/*")
    old = [path for path in files if path.stat().st_mtime < before]
    rows = Attachment.objects.values_list("session_id", "attachment_id") if old else ()
    known = {(str(session_pk), name) for session_pk, name in rows}
    left = [path for path in old if (path.parent.name, path.name) not in known]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)
