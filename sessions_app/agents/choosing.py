"""Give the choice of an option to a session's agent, and return the answer (D69)."""

import asyncio
import time
from contextlib import suppress

from bridge_project.kernel import limits
from bridge_project.kernel.errors import BridgeError
from bridge_project.kernel.threads import readers, writers
from bridge_project.protocol import jsontext
from bridge_project.protocol.server_messages import SessionOptions
from devices_app import audit
from devices_app.models import Device
from sessions_app.agents import inbox, offers, prompts
from sessions_app.agents.driver import NotOffered, NotTaken
from sessions_app.agents.host.client import HostedDriver
from sessions_app.log.outbox import outbox
from sessions_app.models import Command, Session

POLL_SECONDS = 0.05  # the agent may run in another process, which sets no event here


async def choose(
    session_pk: int, option_id: str, value: str, device: Device | None
) -> SessionOptions:
    """Have the session's agent take a value, and return what it offers then.

    Raises PROTO_INVALID_MESSAGE for what it does not offer, AGENT_ERROR when it does not take it,
    SESS_CLOSED, SESS_NOT_ACTIVE.
    """
    command_pk = await writers.run(_queue, session_pk, option_id, value, device)
    # one choice may have to wait for the one before it
    until = time.monotonic() + 2 * limits.AGENT_OPTION_SECONDS
    while (answer := await readers.run(_answer_to, command_pk)) is None:
        if time.monotonic() > until:
            raise BridgeError("AGENT_ERROR", "The agent did not answer in time.")
        await asyncio.sleep(POLL_SECONDS)
    code, why = jsontext.loads(answer)
    if code:
        raise BridgeError(code, why)
    return await readers.run(options_of, session_pk)


def _queue(session_pk: int, option_id: str, value: str, device: Device | None) -> int:
    """Queue the choice for the agent, and return the command's key."""
    with outbox():
        session = prompts.active(session_pk)
        if offers.from_text(session.offers).find(option_id, value) is None:
            raise BridgeError("PROTO_INVALID_MESSAGE", offers.NOT_OFFERED)
        about = {"session_id": session.session_id, "subject": option_id, "value": value}
        audit.record("session_set", device=device, **about)
        return inbox.add(session, inbox.Kind.SET, option_id=option_id, value=value)


def _answer_to(command_pk: int) -> str | None:
    """Return the answer to a choice, None as long as there is none.

    Raises AGENT_ERROR when the agent has gone, and its waiting commands with it.
    """
    found = Command.objects.filter(pk=command_pk).values_list("answer").first()
    if found is None:
        raise BridgeError("AGENT_ERROR", "The agent ended before it took the choice.")
    answer: str | None = found[0]
    return answer


def options_of(session_pk: int) -> SessionOptions:
    """Return what a session's agent offers, as devices are told."""
    session = Session.objects.only("session_id", "offers").get(pk=session_pk)
    known = offers.from_text(session.offers)
    return SessionOptions(
        session_id=session.session_id, options=[*known.options], commands=[*known.commands]
    )


async def choose_again(driver: HostedDriver, session: Session) -> None:
    """Have a resumed agent take what stood before, where it still offers that.

    One after the other: another model may have another effort, or none.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(limits.AGENT_OPTION_SECONDS):
            for one in offers.from_text(session.offers).options:
                now = driver.offers.find(one.id, one.value)
                if one.value and now and now.value != one.value:
                    with suppress(NotOffered, NotTaken):
                        await driver.choose(one.id, one.value)
