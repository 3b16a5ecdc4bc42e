"""One archive of what a bridge is, taken while it runs, and the way back from there.

What is restored is checked before anything is touched; the caller holds the data directory
meanwhile (``startup.only_server``).
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import sqlite3
import tarfile
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

from django.db import connection
from dotenv import dotenv_values

from bridge_project import __version__
from bridge_project.kernel.config import Conf
from bridge_project.operations.database_copies import (
    MaintenanceError,
    applied_migrations,
    check,
    copy_sqlite,
    newer,
    now_name,
    sqlite_path,
    unknown_migrations,
)

FORMAT: Final = 1  # of the archive
DATABASE: Final = "bridge.sqlite3"
MANIFEST: Final = "manifest.json"
ASIDE: Final = "before-restore-"  # and the time: what a restore replaced
# What an archive may hold: the database, what makes the bridge this one (secrets, certificates,
# identity, settings), and what waits to be posted. Not: logs, earlier copies, locks, and what the
# next start writes anew.
MEMBER: Final = re.compile(
    r"bridge\.sqlite3|\.env|instance|watch(-\d+)?\.json|(secrets|tls)/[^/]+|spool/(rejected/)?[^/]+"
)
# locks, and files that are being written
NOT_KEPT: Final = re.compile(r"(.*/)?(lock|\.draft.*|\..*\.[0-9a-f]{8})")
# what a command leaves in a data directory that no bridge has used
FRESH: Final = frozenset({"secrets", "secrets/django_secret", "serve.lock"})
CHUNK: Final = 2**20

# -- backup ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Saved:
    """An archive that was written. ``database``: whether the database is in it (SQLite) or its
    server's business.
    """

    path: Path
    files: int
    size: int
    database: bool


def back_up(conf: Conf, target: Path) -> Saved:
    """Write the archive (0600) while the bridge runs; an existing file is never replaced. Raises
    MaintenanceError.

    The spool is read before the database: an event that is accepted meanwhile is in both, and its
    id keeps it from being stored twice (D31); the other way round it could be in neither.
    """
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    copy = part.with_name(f"{part.name}.sqlite3")
    try:
        with open(
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
        ) as file:
            with tarfile.open(
                fileobj=file, mode="w:gz", compresslevel=6, format=tarfile.PAX_FORMAT
            ) as archive:
                manifest = _fill(archive, conf, copy)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, target)  # fails where something has this name already
        return Saved(
            target, len(manifest["files"]), target.stat().st_size, DATABASE in manifest["files"]
        )
    except FileExistsError:
        raise MaintenanceError(f"{target} is there already.") from None
    except OSError as error:
        raise MaintenanceError(f"{target} cannot be written ({error}).") from None
    finally:
        part.unlink(missing_ok=True)
        copy.unlink(missing_ok=True)


def _fill(archive: tarfile.TarFile, conf: Conf, copy: Path) -> dict[str, Any]:
    files: dict[str, dict[str, Any]] = {}
    for name in _members(conf.bridge_data_dir):
        _add(archive, name, conf.bridge_data_dir / name, files)
    source, applied = sqlite_path(), []
    if source is not None:
        if not source.exists() or not source.stat().st_size:
            raise MaintenanceError("There is no database yet. Start the bridge once: `make run`.")
        copy_sqlite(source, copy)
        with contextlib.closing(sqlite3.connect(copy)) as database:
            applied = applied_migrations(database)
        _add(archive, DATABASE, copy, files)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = {
        "format": FORMAT,
        "version": __version__,
        "created_at": created,
        "database": connection.vendor,
        "migrations": applied,
        "files": files,
    }
    text = json.dumps(manifest, indent=1).encode()
    archive.addfile(_entry(MANIFEST, len(text)), io.BytesIO(text))
    return manifest


def _members(directory: Path) -> list[str]:
    """What of a data directory goes into the archive, the spool first; the database apart, which is
    copied by itself.
    """
    found = [path.relative_to(directory).as_posix() for path in directory.glob("*")]
    found += [
        path.relative_to(directory).as_posix()
        for part in ("spool", "spool/rejected", "secrets", "tls")
        for path in directory.glob(f"{part}/*")
    ]
    kept = [
        name
        for name in found
        if MEMBER.fullmatch(name)
        and not NOT_KEPT.fullmatch(name)
        and name != DATABASE
        and (directory / name).is_file()
    ]
    return sorted(kept, key=lambda name: (not name.startswith("spool/"), name))


def _add(archive: tarfile.TarFile, name: str, path: Path, files: dict[str, dict[str, Any]]) -> None:
    """Add a file with its checksum; one that is gone by now (an event that was posted meanwhile) is
    left out.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        archive.addfile(_entry(name, status.st_size), file)
    # The archive's own times are less exact, and the time is a part of what makes the id of a
    # spooled event.
    files[name] = {"sha256": digest, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o600, int(datetime.now(UTC).timestamp())
    return entry


# -- restore ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restored:
    """``aside``: where the replaced data directory is now; None when it held nothing worth
    keeping.
    """

    directory: Path
    aside: Path | None
    files: int
    created_at: str
    database: bool


def restore(conf: Conf, archive: Path) -> Restored:
    """Put an archive's files in the place of the data directory, which is kept aside. Whoever calls
    holds ``serve.lock``.

    Everything is checked before anything is touched. Raises MaintenanceError: damaged, not ours, of
    a newer version, not for this database.
    """
    directory, stamp = Path(os.path.realpath(conf.bridge_data_dir)), now_name()
    # a volume, or a directory that was given to this user
    within = os.path.ismount(directory) or not os.access(directory.parent, os.W_OK)
    staged = (directory / "any" if within else directory).with_name(
        f".{directory.name}.restoring-{secrets.token_hex(4)}"
    )
    try:
        staged.mkdir(mode=0o700)
        manifest = _unpack(archive, staged)
        elsewhere = _place_of_database(staged, manifest)
        aside = _exchange(directory, staged, stamp) if within else _swap(directory, staged, stamp)
        if elsewhere is not None:
            _move_database(directory / DATABASE, elsewhere, stamp)
        return Restored(
            directory,
            aside,
            len(manifest["files"]),
            str(manifest["created_at"]),
            DATABASE in manifest["files"],
        )
    except OSError as error:
        raise MaintenanceError(f"{archive} cannot be restored ({error}).") from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _unpack(archive: Path, staged: Path) -> dict[str, Any]:
    """Write the archive's files, nothing but regular ones with names of ours, and hold them against
    its manifest.
    """
    digests: dict[str, str] = {}
    try:
        with gzip.open(archive) as whole, tarfile.open(fileobj=whole, mode="r:") as opened:
            for member in opened:
                if not _is_ours(member) or member.name in digests:
                    raise MaintenanceError(
                        f"{archive} is no backup of a bridge: it holds {member.name!r}."
                    )
                source = opened.extractfile(member)
                assert source is not None
                digests[member.name] = _write(staged / member.name, source)
            while whole.read(CHUNK):
                pass  # to its end, where the sum over everything stands
        manifest = json.loads((staged / MANIFEST).read_bytes())
        expected = {name: about["sha256"] for name, about in manifest["files"].items()}
        times = {name: int(about["mtime_ns"]) for name, about in manifest["files"].items()}
        version = _numbers(manifest["version"])
    except (
        tarfile.TarError,
        gzip.BadGzipFile,
        EOFError,
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise MaintenanceError(
            f"{archive} is damaged, or no backup of a bridge ({error.__class__.__name__})."
        ) from None
    except FileNotFoundError as error:
        raise MaintenanceError(
            f"{archive} is not there, or damaged: {error.filename} is missing."
        ) from None
    del digests[MANIFEST]
    (staged / MANIFEST).unlink()
    if wrong := sorted(
        name for name in {*digests, *expected} if digests.get(name) != expected.get(name)
    ):
        raise MaintenanceError(
            f"{archive} is damaged: the checksum of {wrong[0]!r} is not that of its manifest."
        )
    if manifest.get("format") != FORMAT or version > _numbers(__version__):
        raise newer([f"version {manifest['version']}"], f"{archive}")
    if unknown := unknown_migrations(map(str, manifest.get("migrations", ()))):
        raise newer(unknown, f"{archive}")
    for name, moment in times.items():
        os.utime(staged / name, ns=(moment, moment))
    return dict(manifest)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _is_ours(member: tarfile.TarInfo) -> bool:
    return (
        member.isreg()
        and (member.name == MANIFEST or MEMBER.fullmatch(member.name) is not None)
        and ".." not in PurePosixPath(member.name).parts
    )


def _write(path: Path, source: IO[bytes]) -> str:
    """Write a file (0600) through to the disk; its checksum."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
    ) as file:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _place_of_database(staged: Path, manifest: dict[str, Any]) -> Path | None:
    """Where the settings want an SQLite database if not in the data directory; checks that the
    archive and the settings mean the same kind.
    """
    given = {**dotenv_values(staged / ".env"), **os.environ}
    url = given.get("DATABASE_URL") or ""
    if not url and (file := given.get("DATABASE_URL_FILE")):
        url = Path(file).expanduser().read_text().strip()
    parts = urlsplit(url)
    if parts.scheme in ("", "sqlite"):
        if DATABASE not in manifest["files"]:
            raise MaintenanceError(
                "The backup holds no database, its bridge kept it in PostgreSQL: set DATABASE_URL to where you load the dump."
            )
        try:
            with contextlib.closing(sqlite3.connect(staged / DATABASE)) as database:
                check(database)
        except sqlite3.Error as error:
            raise MaintenanceError(
                f"The database in the backup cannot be used ({error})."
            ) from None
        return Path(unquote(parts.path)) if parts.scheme else None
    if DATABASE in manifest["files"]:
        raise MaintenanceError(
            "The backup holds an SQLite database, but DATABASE_URL names a database server."
        )
    return None


def _swap(directory: Path, staged: Path, stamp: str) -> Path | None:
    """Two renames; the new directory is locked as the old one is, before it is in place."""
    aside = directory.with_name(f"{directory.name}.{ASIDE}{stamp}")
    unused = {path.relative_to(directory).as_posix() for path in directory.rglob("*")} <= FRESH
    with open(
        os.open(staged / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb"
    ) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(directory, aside)
        try:
            os.rename(staged, directory)
        except OSError:
            os.rename(aside, directory)
            raise
    if not unused:
        return aside
    shutil.rmtree(aside)
    return None


def _exchange(directory: Path, staged: Path, stamp: str) -> Path:
    """The same where the directory itself must stay: what is in it goes to a directory in it.
    Whatever fails is undone.
    """
    aside, moved = directory / f"{ASIDE}{stamp}", []
    aside.mkdir(mode=0o700)
    stays = (aside.name, staged.name, "serve.lock")
    plan = [
        (path, aside / path.name)
        for path in directory.iterdir()
        if path.name not in stays and not path.name.startswith(ASIDE)
    ]
    plan += [(path, directory / path.name) for path in staged.iterdir()]
    try:
        for source, target in plan:
            os.rename(source, target)
            moved.append((source, target))
    except OSError:
        for source, target in reversed(moved):
            os.rename(target, source)
        aside.rmdir()
        raise
    return aside


def _move_database(source: Path, target: Path, stamp: str) -> Path:
    """Put a database in its place. What was there is renamed together with its -wal; its new
    path.
    """
    aside = target.with_name(f"{target.name}.{ASIDE}{stamp}")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{target}{suffix}", f"{aside}{suffix}")
    shutil.move(source, target)
    return aside


def is_database(file: Path) -> bool:
    """Whether a file is an SQLite database and not an archive."""
    try:
        with file.open("rb") as opened:
            return opened.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def restore_database(copy: Path) -> Path | None:
    """Put a copy of the database in its place, and keep the copy. Whoever calls holds
    ``serve.lock``.

    Returns where the replaced database is now, None when there was none. Raises MaintenanceError.
    """
    target = sqlite_path()
    if target is None:
        raise MaintenanceError(
            f"{copy} is an SQLite database, but DATABASE_URL names a database server."
        )
    staged = target.with_name(f".{target.name}.restoring-{secrets.token_hex(4)}")
    try:
        copy_sqlite(copy, staged)
        with contextlib.closing(sqlite3.connect(staged)) as database:
            if unknown := unknown_migrations(applied_migrations(database)):
                raise newer(unknown, f"{copy}")
        aside = _move_database(staged, target, now_name())
        return aside if aside.exists() else None
    except (sqlite3.Error, OSError) as error:
        raise MaintenanceError(f"{copy} cannot be restored ({error}).") from None
    finally:
        staged.unlink(missing_ok=True)
