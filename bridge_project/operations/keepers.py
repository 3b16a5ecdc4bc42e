"""What a serving process looks after beside its requests: its recorded address, its data files."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from pathlib import Path
from typing import Final

import structlog

from bridge_project.kernel import data_files, limits
from bridge_project.kernel.config import Conf
from bridge_project.kernel.database import sqlite_file
from bridge_project.kernel.private_files import make_private_dir
from bridge_project.network import certificates, server_address
from bridge_project.operations import database_copies, startup

log = structlog.get_logger("bridge.startup")

ADDRESS_SECONDS: Final = 30.0  # a laptop that changes networks is found by the commands after this


class Keeper:
    """A task that runs while the bridge does."""

    def __init__(self, conf: Conf) -> None:
        self.conf = conf
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self.keep())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def keep(self) -> None:
        raise NotImplementedError


class AddressKeeper(Keeper):
    """Keeps the recorded address true: networks change, and certificates are renewed."""

    async def keep(self) -> None:
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
        return server_address.current(self.conf, certificates.ensure(self.conf))


class DataFilesKeeper(Keeper):
    """Stops the bridge when the database, serve.lock or the data directory was taken away (D46)."""

    files = data_files.files

    async def start(self) -> None:
        if (database := sqlite_file(self.conf)) is not None:
            await asyncio.to_thread(self.files.hold, database)
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        if (held := self.files.release()) is not None:
            await asyncio.to_thread(held.close)

    async def keep(self) -> None:
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
        """Copy what the open connection still sees; say what to do."""
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
