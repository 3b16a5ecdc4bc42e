"""Send a test event from the hook command to a device that doctor pairs."""

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
from bridge_project.terminal.client import Client, Lost, Message, Refused, Target, converse
from devices_app import pairing
from devices_app.models import Device
from hooks_app.producer.shell_command import hook_command
from hooks_app.producer.spool import spool_status
from sessions_app.models import Connection, Feed, Session
from sessions_app.observed.sessions import forget

NAME: Final = "doctor"
EVENT_SECONDS: Final = 5.0  # an event needs some hundredths of one
HOOK_SECONDS: Final = 2.0
DISCONNECT_SECONDS: Final = 1.0  # for the bridge to see that our socket was closed
USABLE: Final = timedelta(minutes=2)  # what a doctor that is killed leaves works no longer


class Stopped(Exception):
    """Report where the event stopped."""


def event(seen: Snapshot) -> Finding:
    """Send a session's start and end, and see both arrive at a device.

    Leaves the ended session to the next run to delete: a phone may be about to join it.
    """
    if seen.health is None or seen.recorded is None:
        return warning("No event was sent: the bridge does not answer.", seen.start())
    device, session = None, f"{NAME}-{uuid.uuid4()}"
    try:
        ours: dict[str, Any] = {"name": NAME, "tokens__client_device_id__startswith": f"{NAME}-"}
        Device.objects.filter(**ours, tokens__expires_at__lt=timezone.now()).delete()
        # the sessions of earlier runs; in any other a working directory is a whole path
        ours = {"session_id__startswith": f"{NAME}-", "working_directory": NAME, "hook_count": 2}
        ended = Session.objects.filter(**ours, status=Session.Status.CLOSED)
        forget(Feed.objects.filter(session__in=ended))
        device, token = pairing.mint_claimed(NAME, session, lifetime=USABLE)
        url = seen.recorded.local_ws_url or seen.recorded.ws_url
        target = Target(url, token, seen.recorded.pin, session)
        took = asyncio.run(_send(target, seen.conf.bridge_data_dir / "spool", session))
    except (Lost, Refused) as error:
        if str(error).startswith("RATE_LIMITED"):
            more = seen.start(BRIDGE_MAX_WEBSOCKETS=str(2 * seen.conf.bridge_max_websockets))
            return warning(f"No event was sent: no device could be tried: {error}", more)
        return broken(f"A device cannot stay connected: {error}.", seen.log_tail)
    except (Stopped, DatabaseError, subprocess.TimeoutExpired) as error:
        return broken(str(error), seen.log_tail)
    finally:
        with contextlib.suppress(DatabaseError):  # one that fails now has been reported
            _remove(device)
        connection.close()
    shown = f'Phones list its session, "{NAME}", as ended.'
    return ok(f"One went to a device and was acknowledged, in {took * 1000:.0f} ms. {shown}")


def _remove(device: Device | None) -> None:
    """Revoke and delete the device once the bridge has let go of its connection."""
    if device is None:
        return
    until = time.monotonic() + DISCONNECT_SECONDS
    while Connection.objects.filter(device=device).exists() and time.monotonic() < until:
        time.sleep(0.02)
    pairing.revoke(device)
    device.delete()


async def _send(target: Target, spool: Path, session: str) -> float:
    """Return the seconds from hook command to device. Raises Lost, Refused or Stopped."""
    arrived: asyncio.Queue[Message] = asyncio.Queue()

    async def talk(client: Client) -> float:
        await client.get_ready(target, _accept)
        began = time.perf_counter()
        for fields in (
            {"hook_event_name": "SessionStart", "source": "startup"},
            {"hook_event_name": "SessionEnd", "reason": "other"},
        ):
            about = {"session_id": session, "cwd": NAME, "source": NAME}
            await asyncio.to_thread(_run_hook, spool, json.dumps(about | fields))
        await _receive(client, arrived, session)
        return time.perf_counter() - began

    try:
        async with asyncio.timeout(EVENT_SECONDS):
            return await converse(target, arrived.put_nowait, talk)
    except TimeoutError:
        waiting = spool_status(spool)["waiting"]
        where = f"({waiting} events wait in the spool)"
        await asyncio.to_thread(_remove_events, spool, session)
        raise Stopped(f"The event did not arrive within {EVENT_SECONDS:g} s {where}.") from None


def _remove_events(spool: Path, session: str) -> None:
    """Remove the two events from the spool unless one was sent: no device needs them."""
    with contextlib.suppress(OSError):  # one was sent just now
        files = [path for path in spool.iterdir() if path.is_file()]
        ours = [path for path in files if session in path.read_text(errors="replace")]
        for path in ours if len(ours) == 2 else []:
            path.unlink()


async def _accept(_warning: str) -> None:
    """Accept every warning: this device is gone in a moment."""


def _run_hook(spool: Path, event: str) -> None:
    """Run the agent's very command; raise Stopped unless it ends silently with 0."""
    done = subprocess.run(
        ["/bin/sh", "-c", hook_command(str(spool))],
        input=event.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=HOOK_SECONDS,
        env=child_environment.scrubbed(),
        check=False,
    )
    if done.returncode or done.stdout:
        printed = f"and printed {len(done.stdout)} characters"
        raise Stopped(f"The hook command ended with {done.returncode} {printed}.")


async def _receive(client: Client, arrived: asyncio.Queue[Message], session: str) -> None:
    """Join the announced session; return when both events are here."""
    missing = {"SessionStart", "SessionEnd"}
    while missing:
        message = await arrived.get()
        payload = message["payload"]
        if payload.get("session_id") == session:
            if message["type"] == "session_started":
                await client.join(session)
            if message["type"] == "agent_event":
                missing.discard(str(payload["event"]))
