"""Keep the recorded address current; stop when the bridge's files are gone (D46)."""

import asyncio
import os
import signal
import sqlite3
from pathlib import Path
from typing import Final

import structlog

from bridge_project.kernel import data_files, limits
from bridge_project.kernel.background_task import BackgroundTask
from bridge_project.kernel.config import Conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.kernel.private_files import make_private_dir
from bridge_project.network import certificates, server_address
from bridge_project.operations import database_copies, startup

log = structlog.get_logger("bridge.startup")

ADDRESS_SECONDS: Final = 30.0  # a laptop that changes networks is found by the commands after this


class AddressUpdater(BackgroundTask):
    """Record the bridge's address again when network or certificate change."""

    def __init__(self, conf: Conf) -> None:
        super().__init__(self._repeat)
        self.conf = conf

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(ADDRESS_SECONDS)
            try:
                now = await asyncio.to_thread(self._now)
                if now != server_address.recorded(self.conf):
                    server_address.record(self.conf, now)
                    log.info("the address changed", address=now.base_url)
            except (OSError, ValueError) as error:
                # a full disk, a certificate that was damaged: the next round tries again
                log.warning("the address could not be recorded", error=str(error))

    def _now(self) -> server_address.Address:
        return server_address.current(self.conf, certificates.load_or_renew(self.conf))


class DataFilesMonitor(BackgroundTask):
    """Stop the bridge when its database, lock or directory is taken away (D46)."""

    files = data_files.files

    def __init__(self, conf: Conf) -> None:
        super().__init__(self._watch)
        self.conf = conf

    async def start(self) -> None:
        if (database := sqlite_file(self.conf)) is not None:
            await asyncio.to_thread(self.files.hold, os.fspath(database))
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        if (held := self.files.release()) is not None:
            await asyncio.to_thread(held.close)

    async def _watch(self) -> None:
        before, now = None, None
        while before is None or now is None:  # two looks in a row must differ
            await asyncio.sleep(limits.DATA_FILES_LOOK_SECONDS)
            before, now = now, await asyncio.to_thread(self.files.difference)
        path, what = now
        # Nothing is stored from here on.
        self.files.taken = f"{path} {what} while the bridge ran, so it stops."
        self.files.taken += f" {await asyncio.to_thread(self._rescue, path)}"
        log.critical("data_files_taken", reason=self.files.taken)
        signal.raise_signal(signal.SIGTERM)

    def _rescue(self, path: str) -> str:
        """Copy what the open connection still sees; return what to do."""
        if path == str(self.conf.bridge_data_dir):
            return "Put it back, and start the bridge again."
        if not self.files.is_database(path):
            return "Nothing is lost: start the bridge again."
        assert self.files.held is not None  # it was opened before the database's path was noted
        try:
            self.files.put_wal_aside()
            directory = make_private_dir(self.conf.bridge_data_dir / "backups")
            copy: Path = directory / f"rescued-{database_copies.now_name()}.sqlite3"
            database_copies.copy_open(self.files.held, copy)
        except (sqlite3.Error, OSError) as error:
            text = f"What the database held could not be copied ({error})."
            return f"{text} Put it back, or restore a backup, and start the bridge again."
        command = startup.restore_command(self.conf, copy)
        return f"What it held was copied: `{command}` brings it back; then start the bridge again."
