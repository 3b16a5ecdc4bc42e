"""An event sent the whole way: the hook command, the spool, the bridge's forwarder, TLS, the log,
and a socket of our own (D43).
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from django.db import Error as DatabaseError
from django.db import connection, connections
from django.utils import timezone

from bridge_project.kernel import child_environment
from bridge_project.kernel.config import Conf
from bridge_project.operations.doctor.bridge import log_tail, run
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Look
from bridge_project.terminal.client import Client, Lost, Message, Refused, Target, is_row
from devices_app import pairing
from devices_app.models import Device
from hooks_app.producer.program import RESERVED, hook_command
from sessions_app.models import Connection, Session

NAME: Final = "doctor"
SHELL: Final = "/bin/sh"
EVENT_SECONDS: Final = 5.0  # an event needs some hundredths of one
HOOK_SECONDS: Final = 2.0
GONE_SECONDS: Final = 1.0  # for the bridge to see that our socket was closed
LOCK_SECONDS: Final = 2
# a doctor that is killed leaves nothing that works for longer
USED_WITHIN: Final = timedelta(minutes=2)
ALL_TAKEN: Final = "RATE_LIMITED"


class Stopped(Exception):
    """The event got no further; the text says why, ``mend`` what to do about it."""

    def __init__(self, text: str, *mend: str) -> None:
        super().__init__(text)
        self.mend = mend


def event(seen: Look) -> list[Finding]:
    """Send a session of two events, its start and its end, and see both arrive. Leaves neither a
    device nor an open session behind.
    """
    if seen.health is None or seen.recorded is None:
        return [warning("event", "No event was sent: the bridge does not answer.", run(seen.conf))]
    _wait_briefly()
    try:
        _forget_older()
        device, _, token = pairing.mint(NAME, ttl=USED_WITHIN, lifetime=USED_WITHIN)
    except (DatabaseError, sqlite3.Error) as error:
        connection.close()
        return [
            broken(
                "event",
                f"No event was sent: no device could be paired ({' '.join(str(error).split())}).",
                log_tail(seen.conf),
            )
        ]
    try:
        target = Target(
            seen.recorded.local_ws_url or seen.recorded.ws_url,
            token,
            seen.recorded.pin,
            f"{NAME}-{uuid.uuid4()}",
        )
        return [asyncio.run(_Way(seen.conf, target).go())]
    except Stopped as stopped:
        return [broken("event", str(stopped), *stopped.mend)]
    finally:
        _remove(device)
        connection.close()


def _wait_briefly() -> None:
    """The database's patience is made for a server; here a locked or absent one is something to
    report.
    """
    options = connections["default"].settings_dict["OPTIONS"]
    if connection.vendor == "sqlite":
        options |= {
            "timeout": LOCK_SECONDS,
            "init_command": f"PRAGMA busy_timeout={LOCK_SECONDS * 1000}",
        }
    else:
        options |= {
            "connect_timeout": LOCK_SECONDS,
            "options": f"{options.get('options', '')} -c statement_timeout={LOCK_SECONDS * 1000}".strip(),
        }
    connection.close()


def _forget_older() -> None:
    """Devices of a doctor that was killed: known by the id that only it uses."""
    Device.objects.filter(
        name=NAME,
        tokens__client_device_id__startswith=f"{NAME}-",
        tokens__expires_at__lt=timezone.now(),
    ).delete()


def _remove(device: Device) -> None:
    """Revoke the device, and delete it once the bridge has let go of its connection. A database
    that fails now has been reported already.
    """
    try:
        until = time.monotonic() + GONE_SECONDS
        while Connection.objects.filter(device=device).exists() and time.monotonic() < until:
            time.sleep(0.02)
        pairing.revoke(device)
        device.delete()
    except DatabaseError:
        pass


class _Way:
    """One run: what was done so far, so that it can be said where it ended."""

    def __init__(self, conf: Conf, target: Target) -> None:
        self.conf, self.target = conf, target
        self.spool = conf.bridge_data_dir / "spool"
        self.session = f"{NAME}-{uuid.uuid4()}"
        self.started = False
        self.ended = False

    async def go(self) -> Finding:
        """Raises Stopped."""
        try:
            async with Client.open(self.target) as client:
                await self._greet(client)
                hook_ms, arrived_ms = await self._both(client)
        except (Lost, Refused, TimeoutError) as error:
            if str(error).startswith(ALL_TAKEN):
                return await self._unwatched(str(error))
            raise Stopped(
                f"A device cannot stay connected: {str(error) or f'no answer within {EVENT_SECONDS:g} s'}.",
                log_tail(self.conf),
            ) from None
        finally:
            await self._tidy()
        return ok(
            "event",
            f"One went the whole way: hook command {hook_ms:.0f} ms; through spool, TLS and log to a device and acknowledged after {arrived_ms:.0f} ms.",
        )

    async def _greet(self, client: Client) -> None:
        async with asyncio.timeout(EVENT_SECONDS):
            await client.auth(self.target)
            health = await client.health_check()
            for code in [] if health["ready"] else health["warnings"]:
                await client.acknowledge_warning(code)

    async def _both(self, client: Client) -> tuple[float, float]:
        """The start and the end of the session; milliseconds of the first: its hook command, and
        until it was here.
        """
        inbox = client.__aiter__()
        began = time.perf_counter()
        await self._hook({"hook_event_name": "SessionStart", "source": "startup"})
        self.started = True
        hook_ms = (time.perf_counter() - began) * 1000
        await self._until(client, inbox, lambda message: message["type"] == "session_started")
        answer = await client.join(self.session, known=True)
        if answer["type"] != "session_ready":
            raise Stopped(
                f"The session of the event could not be joined: {answer['payload'].get('code')} {answer['payload'].get('message')}.",
                log_tail(self.conf),
            )
        await self._until(client, inbox, _is_event("SessionStart"))
        arrived_ms = (time.perf_counter() - began) * 1000
        await self._hook({"hook_event_name": "SessionEnd", "reason": "other"})
        self.ended = True
        await self._until(client, inbox, _is_event("SessionEnd"))
        return hook_ms, arrived_ms

    async def _until(self, client: Client, inbox: Any, wanted: Callable[[Message], bool]) -> None:
        """Read and acknowledge until that message of our session is here. Raises Stopped, which
        says where it hangs.
        """
        try:
            async with asyncio.timeout(EVENT_SECONDS):
                async for message in inbox:
                    if is_row(message):
                        await client.acknowledge([message["id"]])
                    if message["payload"].get("session_id") == self.session and wanted(message):
                        return
        except TimeoutError:
            raise await asyncio.to_thread(self._where) from None

    async def _hook(self, fields: dict[str, str]) -> None:
        """Run the very command that the agent runs. Raises Stopped when it does not do what it
        must: end at once, with 0, in silence.
        """
        said = json.dumps(
            {"session_id": self.session, "cwd": NAME, "source": NAME} | fields
        ).encode()
        process = await asyncio.create_subprocess_exec(
            *[SHELL, "-c", hook_command(str(self.spool))],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=child_environment.scrubbed(),
        )
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                output, _ = await process.communicate(said)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise Stopped(
                f"The hook command did not end within {HOOK_SECONDS:g} s.", f"ls -ld '{self.spool}'"
            ) from None
        if process.returncode != 0 or output:
            raise Stopped(
                f"The hook command ended with {process.returncode} and printed {len(output)} bytes; it must end with 0 and print nothing.",
                f"ls -ld '{self.spool}'",
            )

    # -- when it does not arrive -------------------------------------------------------------------

    def _where(self) -> Stopped:
        """How far it came, told by what it left behind."""
        why = next(
            (
                path
                for path in (self.spool / "rejected").glob("*.why")
                if self._mine(path.with_suffix(""))
            ),
            None,
        )
        if why is not None:
            reason = json.loads(why.read_text()).get("reason")
            return Stopped(f"The bridge refused the event: {reason}.", log_tail(self.conf))
        if self._waiting():
            return Stopped(
                f"The event still waits in the spool after {EVENT_SECONDS:g} s: the forwarder does not send it.",
                log_tail(self.conf),
            )
        if (self.spool / "full").exists():
            return Stopped("The hook command wrote nothing: the spool is full.", run(self.conf))
        if not self.spool.is_dir():
            return Stopped(
                f"The hook command wrote nothing: {self.spool} is not there.", run(self.conf)
            )
        try:
            stored = Session.objects.filter(session_id=self.session).exists()
        except DatabaseError:
            stored = False
        how = (
            "The event is stored, but was not delivered"
            if stored
            else "The event left the spool, but is not in the log of this database"
        )
        return Stopped(f"{how} within {EVENT_SECONDS:g} s.", log_tail(self.conf))

    def _waiting(self) -> list[Path]:
        """Our own files that are still in the spool."""
        try:
            return [
                path
                for path in self.spool.iterdir()
                if path.name not in RESERVED and not path.name.startswith(".") and self._mine(path)
            ]
        except OSError:
            return []

    def _mine(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                return self.session.encode() in file.read(1000)
        except OSError:
            return False

    async def _tidy(self) -> None:
        """Take back what was not sent; a session that did start is ended, whenever the bridge hears
        of it.
        """
        waiting = self._waiting() if self.started else []
        if not self.ended and self.started and not waiting:
            await self._hook({"hook_event_name": "SessionEnd", "reason": "other"})
        for path in waiting:
            path.unlink(missing_ok=True)

    async def _unwatched(self, why: str) -> Finding:
        """All sockets are taken, which is no fault: whether the session comes and goes is read in
        the database.
        """
        for fields, status in (
            ({"hook_event_name": "SessionStart", "source": "startup"}, Session.Status.ACTIVE),
            ({"hook_event_name": "SessionEnd"}, Session.Status.CLOSED),
        ):
            await self._hook(fields)
            self.started, self.ended = True, status is Session.Status.CLOSED
            try:
                async with asyncio.timeout(EVENT_SECONDS):
                    # This happens only when no socket is to be had.
                    while not await asyncio.to_thread(  # noqa: ASYNC110 - the database tells nobody
                        Session.objects.filter(session_id=self.session, status=status).exists
                    ):
                        await asyncio.sleep(0.05)
            except TimeoutError:
                raise await asyncio.to_thread(self._where) from None
        more = f"BRIDGE_MAX_WEBSOCKETS={2 * self.conf.bridge_max_websockets} {run(self.conf)}"
        return warning("event", f"It is in the log, but no device could be tried: {why}", more)


def _is_event(name: str) -> Callable[[Message], bool]:
    return lambda message: (
        message["type"] == "agent_event" and message["payload"].get("event") == name
    )
