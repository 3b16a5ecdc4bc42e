"""Keep server.json current; stop the server when its files are gone (D46)."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from bridge_project.composition import database_copies, startup
from bridge_project.kernel import limits
from bridge_project.kernel.background_task import background_task
from bridge_project.kernel.config import conf
from bridge_project.kernel.data_files import files
from bridge_project.kernel.database import sqlite_file
from bridge_project.kernel.private_files import make_private_dir
from bridge_project.network import certificates, server_address

log = structlog.get_logger("bridge.startup")

ADDRESS_SECONDS: Final = 30.0  # a laptop that changes networks is found by the commands after this


async def follow_address() -> None:
    """Record the bridge's address again when network or certificate change."""
    while True:
        await asyncio.sleep(ADDRESS_SECONDS)
        try:
            certificate = await asyncio.to_thread(certificates.load_or_renew, conf)
            now = await asyncio.to_thread(server_address.current, conf, certificate)
            before = server_address.recorded(conf)
            if before is not None:
                now = replace(now, arguments=before.arguments)
            if now != before:
                server_address.record(conf, now)
            if before is not None and now.pin != before.pin:
                text = "the certificate has another key: devices that check it must be paired again"
                log.warning(text, file=str(certificate.key))
            if before is None or now.base_url != before.base_url:
                log.info("the address changed", address=now.base_url)
        except (OSError, ValueError) as error:
            # a full disk, a certificate that was damaged: the next round tries again
            log.warning("the address could not be recorded", error=str(error))


@asynccontextmanager
async def guard_data_files() -> AsyncIterator[None]:
    """Stop the bridge when its database, lock or directory is taken away (D46)."""
    if (database := sqlite_file(conf)) is not None:
        await asyncio.to_thread(files.keep_open, os.fspath(database))
    async with background_task(_watch):
        yield
    if (opened := files.release()) is not None:
        await asyncio.to_thread(opened.close)


async def _watch() -> None:
    before, now = None, None
    while before is None or now is None:  # two checks in a row must differ
        await asyncio.sleep(limits.DATA_FILES_POLL_SECONDS)
        before, now = now, await asyncio.to_thread(files.difference)
    path, what = now
    # Nothing is stored from here on.
    files.fault = f"{path} {what} while the bridge ran, so it stops."
    files.fault += f" {await asyncio.to_thread(_rescue, path)}"
    log.critical("data_files_taken", reason=files.fault)
    signal.raise_signal(signal.SIGTERM)


def _rescue(path: str) -> str:
    """Copy what the open connection still sees; return what to do."""
    if path == str(conf.bridge_data_dir):
        return "Put it back, and start the bridge again."
    if not files.is_database(path):
        return "Nothing is lost: start the bridge again."
    assert files.connection is not None  # it was opened before the database's path was noted
    try:
        files.put_wal_aside()
        directory = make_private_dir(conf.bridge_data_dir / "backups")
        copy: Path = directory / f"rescued-{database_copies.now_name()}.sqlite3"
        database_copies.copy_open(files.connection, copy)
    except (sqlite3.Error, OSError) as error:
        text = f"What the database held could not be copied ({error})."
        return f"{text} Put it back, or restore a backup, and start the bridge again."
    command = startup.restore_command(conf, copy)
    return f"What it held was copied: `{command}` brings it back; then start the bridge again."
