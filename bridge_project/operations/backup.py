"""Write one archive of the bridge's data, while it runs."""

import contextlib
import hashlib
import io
import os
import re
import secrets
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from django.core.management.base import CommandError
from pydantic import BaseModel

from bridge_project import __version__
from bridge_project.kernel.config import Conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.operations.database_copies import applied_migrations, copy_sqlite

DATABASE: Final = "bridge.sqlite3"
MANIFEST: Final = "manifest.json"
# The bridge's identity and the waiting events. Not: logs, earlier copies, locks, and files that the
# next start writes again.
MEMBER: Final = re.compile(
    r"bridge\.sqlite3|manifest\.json|\.env|instance|watch(-\d+)?\.json"
    r"|(secrets|tls)/[^/]+|spool/(rejected/)?[^/]+"
)
# locks, and files that are being written
NOT_KEPT: Final = re.compile(r"(.*/)?(lock|\.draft.*|\..*\.[0-9a-f]{8})")


class SavedFile(BaseModel):
    """Describe a file of the archive.

    The time of a spooled event is a part of its id: it must be exact.
    """

    sha256: str
    mtime_ns: int


class Manifest(BaseModel):
    """Describe an archive, inside of it."""

    format: Literal[1] = 1
    version: str
    created_at: str
    migrations: list[str] = []
    files: dict[str, SavedFile] = {}


def back_up(conf: Conf, target: Path) -> Manifest:
    """Write the archive (0600) while the bridge runs. Raises CommandError.

    An existing file is never replaced. The spool is read before the database: an event that is
    accepted meanwhile is in both, and its id keeps it from being stored twice (D31); the other way
    round it could be in neither.
    """
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    copy = part.with_name(f"{part.name}.sqlite3")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = Manifest(version=__version__, created_at=now)
    try:
        with open_private(part) as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as archive:
                for name in _members(conf.bridge_data_dir):
                    # one that is gone by now was sent meanwhile
                    with contextlib.suppress(FileNotFoundError):
                        _add(archive, manifest, name, conf.bridge_data_dir / name)
                if (source := sqlite_file(conf)) is not None:
                    if not source.exists() or not source.stat().st_size:
                        text = "There is no database yet. Start the bridge: `make run`."
                        raise CommandError(text)
                    copy_sqlite(source, copy)
                    manifest.migrations = applied_migrations(copy)
                    _add(archive, manifest, DATABASE, copy)
                about = manifest.model_dump_json(indent=1).encode()
                entry = tarfile.TarInfo(MANIFEST)
                entry.size = len(about)
                archive.addfile(entry, io.BytesIO(about))
            file.flush()
            os.fsync(file.fileno())
        os.link(part, target)  # fails where something has this name already
    except FileExistsError:
        raise CommandError(f"{target} is there already.") from None
    except OSError as error:
        raise CommandError(f"{target} cannot be written ({error}).") from None
    finally:
        part.unlink(missing_ok=True)
        copy.unlink(missing_ok=True)
    return manifest


def open_private(path: Path) -> io.BufferedRandom:
    """Create a file for reading and writing that only its owner can open."""
    return open(path, "x+b", opener=lambda name, flags: os.open(name, flags, 0o600))


def _members(directory: Path) -> list[str]:
    """List what is archived, the spool first, without the database."""
    names = (path.relative_to(directory).as_posix() for path in directory.rglob("*"))
    ours = [name for name in names if MEMBER.fullmatch(name) and not NOT_KEPT.fullmatch(name)]
    kept = [name for name in ours if (directory / name).is_file() and name != DATABASE]
    return sorted(kept, key=lambda name: (not name.startswith("spool/"), name))


def _add(archive: tarfile.TarFile, manifest: Manifest, name: str, path: Path) -> None:
    with path.open("rb") as file:
        when = os.fstat(file.fileno()).st_mtime_ns
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        archive.addfile(archive.gettarinfo(arcname=name, fileobj=file), file)
        manifest.files[name] = SavedFile(sha256=digest, mtime_ns=when)
