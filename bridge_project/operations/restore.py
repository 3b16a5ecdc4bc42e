"""Replace the data directory by a backup, or the database by a copy.

Everything is checked before anything is changed. The caller holds the data directory
(`startup.only_server`).
"""

import gzip
import hashlib
import os
import secrets
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Final

from django.core.management.base import CommandError
from dotenv import dotenv_values

from bridge_project import __version__
from bridge_project.kernel.config import Conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.operations import backup, database_copies
from bridge_project.protocol.types import parse_version

ASIDE: Final = "before-restore-"  # and the time: the directory of what a restore replaced
# `serve.lock` is held; the backups are no part of what a restore replaces
STAYS: Final = frozenset({"serve.lock", "backups"})
ELSEWHERE: Final = (
    "database-elsewhere"  # in that directory, where DATABASE_URL names an SQLite file
)
# what a command leaves in a data directory that no bridge has used
FRESH: Final = frozenset({"secrets", "secrets/django_secret", ELSEWHERE})
CHUNK: Final = 2**20
DAMAGED: Final = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError)


def restore(conf: Conf, archive: Path) -> tuple[backup.Manifest, Path | None]:
    """Replace the data directory's files by an archive's; keep the old ones in it.

    No device can read them there (D45). Returns where they are now, None when they were not worth
    keeping. Raises CommandError: the archive is damaged, not ours, of a newer version, or not for
    this database.
    """
    directory = Path(os.path.realpath(conf.bridge_data_dir))
    try:
        with tempfile.TemporaryDirectory(prefix=".restoring-", dir=directory) as place:
            staged = Path(place)
            manifest = _unpack(archive, staged)
            target = _database_place(conf, staged, manifest)
            aside = _exchange(directory, staged)
        if target is not None and target != conf.bridge_data_dir / backup.DATABASE:
            elsewhere = aside / ELSEWHERE  # what is put aside may have a file of the same name
            elsewhere.mkdir(mode=0o700)
            _put_database(directory / backup.DATABASE, target, elsewhere)
    except OSError as error:
        raise CommandError(f"{archive} cannot be restored ({error}).") from None
    if {path.relative_to(aside).as_posix() for path in aside.rglob("*")} <= FRESH:
        shutil.rmtree(aside)
        return manifest, None
    return manifest, aside


def _unpack(archive: Path, staged: Path) -> backup.Manifest:
    """Write the archive's files, and check them against its manifest."""
    digests: dict[str, str] = {}
    try:
        with gzip.open(archive) as whole, tarfile.open(fileobj=whole, mode="r:") as members:
            for member in members:
                # Regular files with names of ours, each once: nothing else gets a path.
                ours = member.isreg() and backup.MEMBER.fullmatch(member.name)
                if not ours or ".." in Path(member.name).parts or member.name in digests:
                    text = f"{archive} is no backup of a bridge: it holds {member.name!r}."
                    raise CommandError(text)
                path = staged / member.name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                source = members.extractfile(member)
                assert source is not None
                with source, backup.open_private(path) as file:
                    shutil.copyfileobj(source, file, CHUNK)
                    file.flush()
                    os.fsync(file.fileno())
                    file.seek(0)
                    digests[member.name] = hashlib.file_digest(file, "sha256").hexdigest()
            while whole.read(CHUNK):
                pass  # to its end, where the sum over everything stands
        manifest = backup.Manifest.model_validate_json((staged / backup.MANIFEST).read_bytes())
        version = parse_version(manifest.version)
    except FileNotFoundError as error:
        text = f"{archive} is not there, or damaged: {error.filename} is missing."
        raise CommandError(text) from None
    except DAMAGED as error:
        text = f"{archive} is damaged, or no backup of a bridge ({type(error).__name__})."
        raise CommandError(text) from None
    (staged / backup.MANIFEST).unlink()
    expected = {name: about.sha256 for name, about in manifest.files.items()}
    digests.pop(backup.MANIFEST)
    for name in sorted({*digests, *expected}):
        if digests.get(name) != expected.get(name):
            text = f"the checksum of {name!r} is not that of its manifest."
            raise CommandError(f"{archive} is damaged: {text}")
    if manifest.format != backup.FORMAT or version > parse_version(__version__):
        raise database_copies.newer([f"version {manifest.version}"], f"{archive}")
    if unknown := database_copies.unknown_migrations(manifest.migrations):
        raise database_copies.newer(unknown, f"{archive}")
    for name, about in manifest.files.items():
        os.utime(staged / name, ns=(about.mtime_ns, about.mtime_ns))
    return manifest


def _database_place(conf: Conf, staged: Path, manifest: backup.Manifest) -> Path | None:
    """Return where the settings want an SQLite database; check the archive's.

    Raises CommandError when archive and settings do not mean the same kind of database.
    """
    given = {**dotenv_values(staged / ".env"), **os.environ}
    url = given.get("DATABASE_URL") or ""
    if not url and (file := given.get("DATABASE_URL_FILE")):
        url = Path(file).expanduser().read_text().strip()
    place = sqlite_file(conf.model_copy(update={"database_url": url}))
    saved = staged / backup.DATABASE
    if place is None and saved.exists():
        text = "The backup holds an SQLite database, but DATABASE_URL names a database server."
        raise CommandError(text)
    if place is None:
        return None
    if not saved.exists():
        raise CommandError(
            "The backup holds no database, its bridge kept it in PostgreSQL:"
            " set DATABASE_URL to where you load the dump."
        )
    try:
        with database_copies.opened(saved) as database:
            database_copies.check(database)
    except sqlite3.Error as error:
        text = f"The database in the backup cannot be used ({error})."
        raise CommandError(text) from None
    return place


def _make_aside(directory: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{ASIDE}{database_copies.now_name()}-", dir=directory))


def _exchange(directory: Path, staged: Path) -> Path:
    """Put the old files aside and the staged in their place; undo a failure.

    STAYS are not touched. The database comes last: without it no bridge starts.
    """
    old = [path for path in directory.iterdir() if path.name not in {staged.name, *STAYS}]
    new = sorted(staged.iterdir(), key=lambda path: path.name == backup.DATABASE)
    aside = _make_aside(directory)
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
        aside.rmdir()
        raise
    return aside


def _put_database(source: Path, target: Path, aside: Path) -> None:
    """Replace the database; the old one goes aside, with its -wal."""
    # by renaming first: on another file system a copy may fail half-way
    old = [suffix for suffix in ("", "-wal", "-shm") if os.path.exists(f"{target}{suffix}")]
    for suffix in old:
        os.rename(f"{target}{suffix}", f"{target}.old{suffix}")
    shutil.move(source, target)
    for suffix in old:
        shutil.move(f"{target}.old{suffix}", aside / f"{target.name}{suffix}")


def devices(conf: Conf, *, revoked: bool) -> dict[tuple[int, str], str] | None:
    """Return (number, time of creation) → name of devices; None: they cannot be read."""
    file = sqlite_file(conf)
    try:
        if file is None:
            return None
        with database_copies.opened(file) as database:
            found = database.execute(
                "SELECT id, created_at, name FROM devices_app_device"
                " WHERE (revoked_at IS NOT NULL) = ?",
                [revoked],
            )
            return {(number, made): name for number, made, name in found}
    except sqlite3.Error:
        return None


def is_database(file: Path) -> bool:
    """Return whether a file is an SQLite database and not an archive."""
    try:
        with file.open("rb") as found:
            return found.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def restore_database(conf: Conf, copy: Path) -> Path | None:
    """Replace only the database by a copy; keep the old one.

    Returns where the replaced database is now, None when there was none. Raises CommandError.
    """
    target = sqlite_file(conf)
    if target is None:
        text = f"{copy} is an SQLite database, but DATABASE_URL names a database server."
        raise CommandError(text)
    staged = target.with_name(f".{target.name}.restoring-{secrets.token_hex(4)}")
    try:
        database_copies.copy_sqlite(copy, staged)
        with database_copies.opened(staged) as database:
            applied = database_copies.applied_migrations(database)
            if unknown := database_copies.unknown_migrations(applied):
                raise database_copies.newer(unknown, f"{copy}")
        aside = _make_aside(conf.bridge_data_dir)
        _put_database(staged, target, aside)
        if any(aside.iterdir()):
            return aside
        aside.rmdir()
        return None
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"{copy} cannot be restored ({error}).") from None
    finally:
        staged.unlink(missing_ok=True)


def put_back(conf: Conf, copy: Path) -> None:
    """Replace the database, on which a migration failed, by a copy of it.

    A full disk allows it, and a kill at any moment leaves a whole database. Raises OSError.
    """
    target = sqlite_file(conf)
    assert target is not None
    for suffix in ("-wal", "-shm"):
        Path(f"{target}{suffix}").unlink(missing_ok=True)
    os.replace(copy, target)
