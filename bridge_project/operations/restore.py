"""Replace the data directory by a backup, or the database by a copy.

Everything is checked before anything is changed. The caller holds the data directory
(`startup.only_server`).
"""

import hashlib
import os
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Final

from django.core.management.base import CommandError

from bridge_project.kernel import config
from bridge_project.kernel.config import Conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.operations import database_copies
from bridge_project.operations.backup import DATABASE, MANIFEST, MEMBER, Manifest, open_private

ASIDE: Final = "before-restore-"  # and the time: the directory of what a restore replaced
# `serve.lock` is held; the backups are no part of what a restore replaces
STAYS: Final = frozenset({"serve.lock", "backups"})
DAMAGED: Final = (tarfile.TarError, zlib.error, EOFError, ValueError, KeyError)


def restore(conf: Conf, file: Path) -> tuple[Manifest | None, Path | None]:
    """Put an archive, or a copy of the database alone, in place of what is there.

    Returns the archive's manifest, and where the replaced files are now: in the data directory, so
    that no device can read them (D45). Raises CommandError: the file is damaged, not ours, of a
    newer version, or not for this database.
    """
    directory = Path(os.path.realpath(conf.bridge_data_dir))
    try:
        with tempfile.TemporaryDirectory(prefix=".restoring-", dir=directory) as place:
            staged = Path(place)
            manifest = _stage(file, staged)
            target = _database_place(conf, staged, manifest)
            when = f"{ASIDE}{database_copies.now_name()}-"
            aside = Path(tempfile.mkdtemp(prefix=when, dir=directory))
            if manifest is None:
                assert target is not None
                _put_database(staged / DATABASE, target, aside)
            else:
                _exchange(directory, staged, aside)
                if target not in (None, conf.bridge_data_dir / DATABASE):
                    _put_database(directory / DATABASE, target, aside)
    except OSError as error:
        raise CommandError(f"{file} cannot be restored ({error}).") from None
    if any(aside.iterdir()):
        return manifest, aside
    aside.rmdir()
    return manifest, None


def _stage(file: Path, staged: Path) -> Manifest | None:
    """Write the files of an archive, or a copy of a database, and check them."""
    with file.open("rb") as opened:
        is_database = opened.read(16) == b"SQLite format 3\0"
    try:
        if is_database:
            database_copies.copy_sqlite(file, staged / DATABASE)
            manifest, migrations = None, database_copies.applied_migrations(staged / DATABASE)
        else:
            manifest = _unpack(file, staged)
            migrations = manifest.migrations
            if (staged / DATABASE).exists():
                with database_copies.opened(staged / DATABASE) as database:
                    database_copies.check(database)
    except DAMAGED as error:
        text = f"{file} is damaged, or no backup of a bridge ({type(error).__name__})."
        raise CommandError(text) from None
    except sqlite3.Error as error:
        raise CommandError(f"The database in {file} cannot be used ({error}).") from None
    if unknown := database_copies.unknown_migrations(migrations):
        raise database_copies.newer(unknown, f"{file}")
    return manifest


def _unpack(archive: Path, staged: Path) -> Manifest:
    """Write the archive's files, and check them against its manifest."""
    digests: dict[str, str] = {}
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            # Regular files with names of ours, each once: nothing else gets a path.
            ours = member.isreg() and MEMBER.fullmatch(member.name)
            if not ours or ".." in Path(member.name).parts or member.name in digests:
                text = f"{archive} is no backup of a bridge: it holds {member.name!r}."
                raise CommandError(text)
            path, source = staged / member.name, members.extractfile(member)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            assert source is not None
            with source, open_private(path) as written:
                shutil.copyfileobj(source, written)
                written.flush()
                os.fsync(written.fileno())
                written.seek(0)
                digests[member.name] = hashlib.file_digest(written, "sha256").hexdigest()
    del digests[MANIFEST]
    manifest = Manifest.model_validate_json((staged / MANIFEST).read_bytes())
    (staged / MANIFEST).unlink()
    wrong = digests.items() ^ {name: about.sha256 for name, about in manifest.files.items()}.items()
    if wrong:
        name = min(wrong)[0]
        text = f"the checksum of {name!r} is not that of its manifest."
        raise CommandError(f"{archive} is damaged: {text}")
    for name, about in manifest.files.items():
        os.utime(staged / name, ns=(about.mtime_ns, about.mtime_ns))
    return manifest


def _database_place(conf: Conf, staged: Path, manifest: Manifest | None) -> Path | None:
    """Return where the settings, restored ones included, want an SQLite database.

    Raises CommandError when they and the staged files do not mean the same kind of database.
    """
    url = conf.database_url if manifest is None else config.load(staged).database_url
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
        aside.rmdir()
        raise


def _put_database(source: Path, target: Path, aside: Path) -> None:
    """Replace the database; the old one goes aside, with its -wal."""
    # to and from another file system these are copies, which may fail half-way: not to its own name
    draft = target.with_name(f".{target.name}.restoring")
    shutil.move(source, draft)
    old = [suffix for suffix in ("", "-wal", "-shm") if os.path.exists(f"{target}{suffix}")]
    for suffix in old:
        os.rename(f"{target}{suffix}", f"{target}.old{suffix}")
    os.rename(draft, target)
    for suffix in old:
        shutil.move(f"{target}.old{suffix}", aside / f"replaced-{target.name}{suffix}")


def put_back(conf: Conf, copy: Path) -> None:
    """Replace the database, on which a migration failed, by a copy of it.

    A full disk allows it, and a kill at any moment leaves a whole database. Raises OSError.
    """
    target = sqlite_file(conf)
    assert target is not None
    for suffix in ("-wal", "-shm"):
        Path(f"{target}{suffix}").unlink(missing_ok=True)
    os.replace(copy, target)
