"""Notice when database, serve.lock or data directory are removed while in use.

A file is identified by device and inode, noted when it was opened and compared with those that stat
now gives for its path. The database is never opened for a check: closing any descriptor of it would
drop the POSIX locks that SQLite holds for the whole process.
"""

import os
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any, Final

from bridge_project.kernel.path_walk import Identity, identity

# sysexits.h calls it EX_CONFIG. The units in docs/deploy do not restart a bridge that ends with it:
# started again, it would go on with a wrong database, or with none.
NEEDS_A_PERSON: Final = 78


class NotInPlace(sqlite3.OperationalError):
    """Report that the database's file is gone, or is not the one opened."""


class DataFiles:
    """Remember what this process has open in the data directory, with its path."""

    def __init__(self) -> None:
        self.fault = ""  # what happened, once the bridge stops because of it
        self.connection: sqlite3.Connection | None = None  # see `keep_open`
        self._lock = threading.Lock()
        # the file itself first; what commits are checked by
        self._database: dict[str, Identity] = {}
        self.others: dict[str, Identity] = {}  # serve.lock and the directory, while they are open

    def note_database(self, path: str) -> None:
        """Remember the file just opened; raise NotInPlace if it is another one."""
        with self._lock:
            self._database = {path: identity(os.stat(path))} | self._database
        self.check()

    def forget_database(self) -> None:
        """Forget the database's file, so that the next connection may open another one."""
        with self._lock:
            self._database = {}

    def keep_open(self, database: str) -> None:
        """Keep a connection open so that SQLite keeps its files. Raises sqlite3.Error."""
        opened = sqlite3.connect(_address(database), uri=True, timeout=20, check_same_thread=False)
        opened.execute("SELECT count(*) FROM sqlite_master").fetchall()  # opens -wal and -shm
        self.note_database(database)
        beside = [os.path.realpath(database) + suffix for suffix in ("-wal", "-shm")]
        there = {path: identity(os.stat(path)) for path in beside if os.path.exists(path)}
        with self._lock:
            self._database = self._database | there
            self.connection = opened

    def release(self) -> sqlite3.Connection | None:
        """Forget -wal and -shm, which may go from now on; return `keep_open`'s connection."""
        with self._lock:
            self._database = dict(list(self._database.items())[:1])
            opened, self.connection = self.connection, None
        return opened

    def check(self, *, beside: bool = True) -> None:
        """Raise NotInPlace unless the database's files are those that were opened.

        `beside`: -wal and -shm as well. Each file costs one call of stat, some microseconds.
        """
        if self.fault:
            raise NotInPlace(self.fault)
        for path, noted in self._database.items():
            if what := _difference(path, noted):
                raise NotInPlace(f"{path} {what}")
            if not beside:
                return

    def difference(self) -> tuple[str, str] | None:
        """Return the first path that was changed, and what happened to it."""
        for path, noted in (*self.others.items(), *self._database.items()):
            if what := _difference(path, noted):
                return path, what
        return None

    def unhealthy(self) -> str | None:
        """Return what /health reports of the files."""
        return self.fault or " ".join(self.difference() or ()) or None

    def is_database(self, path: str) -> bool:
        """Return whether a path is the database's, or its -wal's or -shm's."""
        return path in self._database

    def put_wal_aside(self) -> None:
        """Rename the -wal of a replaced database, and remove its -shm.

        SQLite would write what is in it into the file that is there now.
        """
        (database, its), *others = self._database.items()
        if not os.path.exists(database) or not _difference(database, its):
            return
        for path, noted in others:
            if not _difference(path, noted):
                os.replace(path, f"{path}.taken") if path.endswith("-wal") else os.unlink(path)


files = DataFiles()


class GuardedConnection(sqlite3.Connection):
    """Connect to the database file that this process knows; never make a file.

    It checks the file's place before each transaction and each statement outside of one. It checks
    again before a commit, so that nothing is stored elsewhere, and after it, before anybody is
    told: an event written to a removed file is not acknowledged.
    """

    def __init__(self, database: str, **options: Any) -> None:
        if not os.path.exists(database):
            raise NotInPlace(f"There is no database at {database}")
        super().__init__(_address(database), **options | {"uri": True})
        try:
            files.note_database(database)
        except (OSError, NotInPlace) as error:
            self.close()
            raise NotInPlace(str(error)) from None

    def cursor(self, *args: Any, **options: Any) -> Any:
        if not self.in_transaction:
            files.check(beside=False)
        return super().cursor(*args, **options)

    def commit(self) -> None:
        files.check()
        super().commit()
        files.check()


def _address(database: str) -> str:
    return f"{Path(database).absolute().as_uri()}?mode=rw"


def _difference(path: str, noted: Identity) -> str:
    """Return what happened to the file at a path; "" while it is unchanged."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "was removed"
    except OSError as error:
        return f"cannot be reached ({error.strerror})"
    kind = "directory" if stat.S_ISDIR(status.st_mode) else "file"
    return "" if identity(status) == noted else f"was replaced by another {kind}"
