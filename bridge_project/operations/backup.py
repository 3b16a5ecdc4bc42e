"""Save the bridge's data in one archive while it runs, and restore it."""

import contextlib
import hashlib
import io
import os
import re
import secrets
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from django.core.management.base import CommandError
from dotenv import dotenv_values
from pydantic import BaseModel

from bridge_project import __version__
from bridge_project.composition import database_copies as copies
from bridge_project.kernel.config import Conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.kernel.own_commands import make_command
from bridge_project.kernel.private_files import sync
from bridge_project.protocol.types import parse_version

DATABASE: Final = "bridge.sqlite3"
MANIFEST: Final = "manifest.json"
# The bridge's identity and the waiting events. Not: logs, earlier copies, locks, and files that the
# next start writes again.
MEMBER: Final = re.compile(
    r"bridge\.sqlite3|manifest\.json|\.env|instance|(server|watch(-\d+)?)\.json"
    r"|(secrets|tls)/[^/]+|spool/(rejected/)?[^/]+"
)
# locks, and files that are being written
NOT_KEPT: Final = re.compile(r"(.*/)?(lock|\.draft.*|\..*\.[0-9a-f]{8})")
ASIDE: Final = "before-restore-"  # and the time: the directory of what a restore replaced
# the lock is held, the others are in no backup and not replaced
STAYS: Final = frozenset({"serve.lock", "backups", "attachments"})
DAMAGED: Final = (tarfile.TarError, zlib.error, EOFError, ValueError, KeyError)


class SavedFile(BaseModel):
    sha256: str
    mtime_ns: int  # exact, for the time of a spooled event is a part of its id


class Manifest(BaseModel):
    """Describe an archive, inside of it."""

    format: Literal[1] = 1
    version: str
    created_at: str
    migrations: list[str] = []
    files: dict[str, SavedFile] = {}


def back_up(conf: Conf, target: Path) -> Manifest:
    """Write a new archive (0600), also while the bridge runs. Raises CommandError.

    The spool is read before the database: an event that is accepted meanwhile is in both, and its
    id keeps it from being stored twice (D31); the other way round it could be in neither.
    """
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    copy = part.with_name(f"{part.name}.sqlite3")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = Manifest(version=__version__, created_at=now)
    try:
        with open_private(part) as file:
            # dereference: two names of one file are two files
            how: dict[str, Any] = {"mode": "w:gz", "compresslevel": 6, "dereference": True}
            with tarfile.open(fileobj=file, **how) as archive:
                for name in _members(conf.bridge_data_dir):
                    # one that is gone by now was sent meanwhile
                    with contextlib.suppress(FileNotFoundError):
                        _add(archive, manifest, name, conf.bridge_data_dir / name)
                if (source := sqlite_file(conf)) is not None:
                    if not source.exists() or not source.stat().st_size:
                        run = make_command(conf, "run")
                        raise CommandError(f"There is no database yet: `{run}` makes one.")
                    copies.copy_sqlite(source, copy)
                    manifest.migrations = copies.applied_migrations(copy)
                    _add(archive, manifest, DATABASE, copy)
                about = manifest.model_dump_json(indent=1).encode()
                entry = tarfile.TarInfo(MANIFEST)
                entry.size = len(about)
                archive.addfile(entry, io.BytesIO(about))
            file.flush()
            sync(file.fileno())
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
    """Add a file as it was at one moment: a hook may be writing its event still."""
    with path.open("rb") as file:
        status, source = os.fstat(file.fileno()), _Digested(file)
        entry = archive.gettarinfo(arcname=name, fileobj=file)
        entry.size = status.st_size
        archive.addfile(entry, source)
        digest = source.sha256.hexdigest()
        manifest.files[name] = SavedFile(sha256=digest, mtime_ns=status.st_mtime_ns)


class _Digested(io.RawIOBase):
    """Read a file, and digest what was read of it."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file, self.sha256 = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.sha256.update(data)
        return data


def restore(conf: Conf, file: Path) -> tuple[Manifest | None, Path | None]:
    """Put an archive, or a copy of the database alone, in place of what is there.

    Returns the archive's manifest, and where the replaced files are now: in the data directory, so
    that no device can read them (D45). Raises CommandError: the file is damaged, not ours, of a
    newer version, or not for this database. Everything is checked before anything is changed. The
    caller holds the data directory (`startup.only_server`).
    """
    directory = Path(os.path.realpath(conf.bridge_data_dir))
    try:
        with tempfile.TemporaryDirectory(prefix=".restoring-", dir=directory) as place:
            staged = Path(place)
            manifest = _stage(file, staged)
            target = _database_place(conf, staged, manifest)
            when = f"{ASIDE}{copies.now_name()}-"
            aside = Path(tempfile.mkdtemp(prefix=when, dir=directory))
            try:
                if manifest is None:
                    assert target is not None
                    _put_database(staged / DATABASE, target, aside)
                else:
                    _exchange(directory, staged, aside)
                    if target not in (None, conf.bridge_data_dir / DATABASE):
                        _put_database(directory / DATABASE, target, aside)
            finally:
                with contextlib.suppress(OSError):
                    aside.rmdir()  # if nothing was put there
    except OSError as error:
        raise CommandError(f"{file} cannot be restored ({error}).") from None
    return manifest, aside if aside.exists() else None


def _stage(file: Path, staged: Path) -> Manifest | None:
    """Write the files of an archive, or a copy of a database, and check them."""
    with file.open("rb") as found:
        is_database = found.read(16) == b"SQLite format 3\0"
    try:
        if is_database:
            copies.copy_sqlite(file, staged / DATABASE)
            manifest, migrations = None, copies.applied_migrations(staged / DATABASE)
        else:
            manifest = _unpack(file, staged)
            migrations = manifest.migrations
            if (staged / DATABASE).exists():
                with copies.opened(staged / DATABASE) as database:
                    copies.check(database)
            elif parse_version(manifest.version) > parse_version(__version__):
                text = f"{file} was written by version {manifest.version} of the bridge"
                raise CommandError(f"{text}; this is {__version__}. Update the bridge.")
    except DAMAGED as error:
        text = f"{file} is damaged, or no backup of a bridge ({type(error).__name__})."
        raise CommandError(text) from None
    except sqlite3.Error as error:
        raise CommandError(f"The database in {file} cannot be used ({error}).") from None
    if unknown := copies.unknown_migrations(migrations):
        raise copies.newer(unknown, f"{file}")
    return manifest


def _unpack(archive: Path, staged: Path) -> Manifest:
    """Write the archive's files, and check them against its manifest."""
    digests: dict[str, str] = {}
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            # Regular files with names of ours, each once: nothing else gets a path.
            ours = member.isreg() and MEMBER.fullmatch(member.name)
            if not ours or ".." in Path(member.name).parts or member.name in digests:
                raise CommandError(f"{archive} is no backup of a bridge: it holds {member.name!r}.")
            path, source = staged / member.name, members.extractfile(member)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            assert source is not None
            with source, open_private(path) as written:
                shutil.copyfileobj(source, written)
                written.flush()
                sync(written.fileno())
                written.seek(0)
                digests[member.name] = hashlib.file_digest(written, "sha256").hexdigest()
    del digests[MANIFEST]
    manifest = Manifest.model_validate_json((staged / MANIFEST).read_bytes())
    (staged / MANIFEST).unlink()
    wrong = digests.items() ^ {name: about.sha256 for name, about in manifest.files.items()}.items()
    if wrong:
        text = f"the checksum of {min(wrong)[0]!r} is not that of its manifest"
        raise CommandError(f"{archive} is damaged: {text}.")
    for name, about in manifest.files.items():
        os.utime(staged / name, ns=(about.mtime_ns, about.mtime_ns))
    return manifest


def _database_place(conf: Conf, staged: Path, manifest: Manifest | None) -> Path | None:
    """Return the settings' SQLite file. Raises CommandError if the backup has none."""
    url = conf.database_url
    if manifest is not None:  # not all of them need be right: that is for the start to say
        given = {**dotenv_values(staged / ".env"), **os.environ}
        url = given.get("DATABASE_URL") or ""
        if not url and (secret := given.get("DATABASE_URL_FILE")):
            url = Path(secret).expanduser().read_text().strip()
    place = sqlite_file(conf.model_copy(update={"database_url": url}))
    saved = (staged / DATABASE).exists()
    if place is None and saved:
        text = "The backup holds an SQLite database, but DATABASE_URL names a database server."
        raise CommandError(text)
    if place is not None and not saved:
        raise CommandError(
            "The backup holds no database, its bridge kept it in PostgreSQL:"
            " set DATABASE_URL to where you load the dump."
        )
    return place


def _exchange(directory: Path, staged: Path, aside: Path) -> None:
    """Put the old files aside and the staged in their place; undo a failure.

    STAYS are not touched. The database comes last: without it no bridge starts.
    """
    old = [path for path in directory.iterdir() if path.name not in {staged.name, *STAYS}]
    new = sorted(staged.iterdir(), key=lambda path: path.name == DATABASE)
    plan = [(path, aside / path.name) for path in old if not path.name.startswith(ASIDE)]
    plan += [(path, directory / path.name) for path in new]
    moved: list[tuple[Path, Path]] = []
    try:
        for source, target in plan:
            os.rename(source, target)
            moved.append((source, target))
    except OSError:
        for source, target in reversed(moved):
            os.rename(target, source)
        raise


def _put_database(source: Path, target: Path, aside: Path) -> None:
    """Replace the database; the old one goes aside, with its -wal."""
    # to and from another file system these are copies, which may fail half-way: not to its own name
    draft = target.with_name(f".{target.name}.restoring")
    try:
        shutil.move(source, draft)
        with draft.open("rb") as moved:
            sync(moved.fileno())
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    old = [suffix for suffix in ("", "-wal", "-shm") if os.path.exists(f"{target}{suffix}")]
    for suffix in old:
        os.rename(f"{target}{suffix}", f"{target}.old{suffix}")
    os.rename(draft, target)
    for suffix in old:
        shutil.move(f"{target}.old{suffix}", aside / f"replaced-{target.name}{suffix}")
