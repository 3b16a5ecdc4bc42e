"""Send a test event the whole way, from the hook command to a device of our own."""

import asyncio
import contextlib
import json
import subprocess
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from django.db import Error as DatabaseError
from django.db import connection
from django.utils import timezone

from bridge_project.kernel import child_environment
from bridge_project.operations.doctor.findings import Finding, broken, ok, warning
from bridge_project.operations.doctor.snapshot import Snapshot
from bridge_project.terminal.client import Client, Lost, Refused, Target, is_row
from devices_app import pairing
from devices_app.models import Device
from hooks_app.producer.shell_command import hook_command
from hooks_app.producer.spool import RESERVED
from sessions_app.models import Connection, Feed, Session
from sessions_app.observed.sessions import forget

NAME: Final = "doctor"
EVENT_SECONDS: Final = 5.0  # an event needs some hundredths of one
HOOK_SECONDS: Final = 2.0
GONE_SECONDS: Final = 1.0  # for the bridge to see that our socket was closed
USABLE: Final = timedelta(minutes=2)  # what a doctor that is killed leaves works no longer
NOTHING_SENT: Final = "No event was sent: "


class Stopped(Exception):
    """Report where the event stopped; `remedy` says what to do."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def event(seen: Snapshot, *, database_works: bool) -> Finding:
    """Send a session's start and end, and see both arrive at a device.

    Leaves no device behind, and one ended session, which the next run deletes: a phone that is
    connected now may be about to join it.
    """
    if seen.health is None or seen.recorded is None:
        return warning(f"{NOTHING_SENT}the bridge does not answer.", seen.run)
    if not database_works:
        return broken(f"{NOTHING_SENT}no device could be paired.", seen.log_tail)
    device = None
    try:
        ours: dict[str, Any] = {"name": NAME, "tokens__client_device_id__startswith": f"{NAME}-"}
        Device.objects.filter(**ours, tokens__expires_at__lt=timezone.now()).delete()
        # the sessions of earlier runs; in any other a working directory is a whole path
        ours = {"session_id__startswith": f"{NAME}-", "working_directory": NAME, "hook_count": 2}
        ended = Session.objects.filter(**ours, status=Session.Status.CLOSED)
        forget(Feed.objects.filter(session__in=ended))
        own_id = f"{NAME}-{uuid.uuid4()}"
        device, token = pairing.mint_claimed(NAME, own_id, lifetime=USABLE)
        url = seen.recorded.local_ws_url or seen.recorded.ws_url
        target = Target(url, token, seen.recorded.pin, own_id)
        return asyncio.run(RoundTrip(seen, target).go())
    except Stopped as stopped:
        return broken(str(stopped), stopped.remedy)
    except DatabaseError as error:
        return broken(f"The database cannot be used: {error}.", seen.log_tail)
    finally:
        with contextlib.suppress(DatabaseError):  # one that fails now has been reported
            _remove(device)
        connection.close()


def _remove(device: Device | None) -> None:
    """Revoke and delete the device once the bridge has let go of its connection."""
    if device is None:
        return
    until = time.monotonic() + GONE_SECONDS
    while Connection.objects.filter(device=device).exists() and time.monotonic() < until:
        time.sleep(0.02)
    pairing.revoke(device)
    device.delete()


class RoundTrip:
    """Send one session of two events, and record how far it came."""

    def __init__(self, seen: Snapshot, target: Target) -> None:
        self.seen, self.target = seen, target
        self.spool = seen.conf.bridge_data_dir / "spool"
        self.session = f"{NAME}-{uuid.uuid4()}"

    async def go(self) -> Finding:
        """Run the trip and return the finding. Raises Stopped."""
        try:
            async with asyncio.timeout(2 * EVENT_SECONDS), Client.open(self.target) as client:
                await client.auth(self.target)
                health = await client.health_check()
                for code in [] if health["ready"] else health["warnings"]:
                    await client.acknowledge_warning(code)
                took = await self._send_and_wait(client)
        except (Lost, Refused, TimeoutError) as error:
            if str(error).startswith("RATE_LIMITED"):
                more = f"BRIDGE_MAX_WEBSOCKETS={2 * self.seen.conf.bridge_max_websockets}"
                text = f"{NOTHING_SENT}no device could be tried: {error}"
                return warning(text, f"{more} {self.seen.run}")
            why = str(error) or "no answer in time"
            raise Stopped(f"A device cannot stay connected: {why}.", self.seen.log_tail) from None
        return ok(f"One went the whole way, to a device and acknowledged, in {took * 1000:.0f} ms.")

    async def _send_and_wait(self, client: Client) -> float:
        """Return the seconds from the hook command to the session's end."""
        began = time.perf_counter()
        try:
            await self.run_hook({"hook_event_name": "SessionStart", "source": "startup"})
            await self.run_hook({"hook_event_name": "SessionEnd", "reason": "other"})
            async with asyncio.timeout(EVENT_SECONDS):
                await self._receive(client)
        except TimeoutError:
            raise await asyncio.to_thread(self.where_it_stopped) from None
        finally:
            waiting = self._waiting()
            for path in waiting if len(waiting) == 2 else []:  # nothing of it was sent
                path.unlink(missing_ok=True)
        return time.perf_counter() - began

    async def _receive(self, client: Client) -> None:
        """Join the announced session; read and acknowledge until both events are here."""
        missing = {"SessionStart", "SessionEnd"}
        async for message in client:
            payload = message["payload"]
            if is_row(message):
                await client.acknowledge([message["id"]])
            if payload.get("session_id") != self.session:
                continue
            if message["type"] == "session_started":
                answer = await client.join(self.session, known=True)
                if answer["type"] != "session_ready":
                    text = f"The session of the event could not be joined: {answer['payload']}."
                    raise Stopped(text, self.seen.log_tail)
            if message["type"] == "agent_event":
                missing.discard(str(payload.get("event")))
                if not missing:
                    return

    async def run_hook(self, fields: dict[str, str]) -> None:
        """Run the agent's very command; raise Stopped unless it ends silently with 0."""
        said = {"session_id": self.session, "cwd": NAME, "source": NAME} | fields
        look = f"ls -ld '{self.spool}'"
        try:
            done = await asyncio.to_thread(
                subprocess.run,
                ["/bin/sh", "-c", hook_command(str(self.spool))],
                input=json.dumps(said).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=HOOK_SECONDS,
                env=child_environment.scrubbed(),
            )
        except subprocess.TimeoutExpired:
            text = f"The hook command did not end within {HOOK_SECONDS:g} s."
            raise Stopped(text, look) from None
        if done.returncode or done.stdout:
            text = f"The hook command ended with {done.returncode}"
            raise Stopped(f"{text} and printed {len(done.stdout)} characters.", look)

    def where_it_stopped(self) -> Stopped:
        """Find out how far the event came, by the files it left."""
        log_tail = self.seen.log_tail
        for why in (self.spool / "rejected").glob("*.why"):
            if self._is_ours(why.with_suffix("")):
                reason = json.loads(why.read_text()).get("reason")
                return Stopped(f"The bridge refused the event: {reason}.", log_tail)
        if self._waiting():
            text = "The event still waits in the spool: the forwarder does not send it."
            return Stopped(text, log_tail)
        how = "The event is neither in the spool nor in the log of this database"
        if Session.objects.filter(session_id=self.session).exists():
            how = "The event is stored, but was not delivered"
        return Stopped(f"{how} within {EVENT_SECONDS:g} s.", log_tail)

    def _waiting(self) -> list[Path]:
        """Return our own files that are still in the spool."""
        files = self.spool.iterdir() if self.spool.is_dir() else ()
        return [path for path in files if path.name not in RESERVED and self._is_ours(path)]

    def _is_ours(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                return self.session.encode() in file.read(1000)
        except OSError:
            return False
