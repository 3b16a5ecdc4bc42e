"""What uses the bridge while it is killed: posters that send an event until it is answered, and
phones that come back, acknowledge or forget to.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.conformance.samples import PAYLOADS, hook, new_id, now
from tests.faults.ledger import ALL, View, Wrong
from tests.faults.links import GONE, Http, Message, Socket

if TYPE_CHECKING:
    from tests.faults.swarm import Swarm

THINK_SECONDS = 0.5  # between two requests of a poster, on average
RETRY_SECONDS = 0.03  # at most, before something that failed is tried again
BATCHES = 0.1  # the share of requests that are batches
# what comes next where no call is open: nine events of ten are a call's
MIX = {"PreToolUse": 0.83, "UserPromptSubmit": 0.1, "Stop": 0.05, "SessionStart": 0.02}
# session_started; session_end and its notification, that of Stop (D13)
ANNOUNCED = {"SessionStart": 1, "SessionEnd": 2, "Stop": 1}
BROUGHT = {"PreToolUse": "tool_call", "PostToolUse": "tool_result"}
# of a connection: at once, some now and some later, never
ACK_STYLES = {"all": 0.5, "some": 0.35, "none": 0.15}
LEAVES = 0.15  # the share of connections that the phone gives up by itself


class Poster:
    """Posts numbered events, each with an event_id of its own; what is not answered is sent again,
    here or at another process (D31).
    """

    def __init__(self, swarm: Swarm, name: str) -> None:
        self.swarm, self.name = swarm, name
        self.rng = random.Random(f"{swarm.seed} {name}")
        self.idle = True
        self.http: Http | None = None
        self.door = -1
        self.numbers: dict[str, int] = {}  # session → the next event's number
        self.calls: dict[str, str] = {}  # session → the call that is open
        token = f"Authorization: Bearer {swarm.hook_token}\r\nContent-Type: application/json\r\n"
        self.heads = {
            what: f"POST /api/v1/hooks/{what} HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}".encode()
            for what in ("event", "batch")
        }

    async def run(self, session: int) -> None:
        while True:
            await self.swarm.posting.wait()
            self.idle = False
            session_id = self.swarm.sessions[session]
            many = self.rng.random() < BATCHES
            await self.post(session_id, *[""] * (self.rng.randint(2, 6) if many else 1))
            self.idle = True
            await asyncio.sleep(self.rng.expovariate(1 / THINK_SECONDS))

    async def post(self, session_id: str, *asked: str) -> None:
        """Return when all are acknowledged; more than one go as a batch. "": what comes next."""
        events: list[str] = []
        bodies, names = [], []
        for kind in asked:
            event = kind or self._next(session_id)
            events.append(event)
            number = self.numbers.get(session_id, 0)
            self.numbers[session_id] = number + 1
            name, event_id = f"{self.name}-{number}", new_id()
            payload = PAYLOADS[event] | {"number": name}
            brings = ""
            if row := BROUGHT.get(event):
                call = self.calls.pop(session_id, name)
                if event == "PreToolUse":
                    self.calls[session_id] = call
                payload |= {"tool_use_id": call, "params": {"command": f"echo {call}"}}
                brings = f"{row} {call}"
            bodies.append(hook(event, session_id, payload, event_id=event_id))
            names.append(name)
            self.swarm.ledger.sending(session_id, name, event_id, brings)
        what, body = ("event", bodies[0]) if len(bodies) == 1 else ("batch", {"events": bodies})
        answer = await self._until_answered(what, json.dumps(body).encode())
        given = answer["event_ids"] if what == "batch" else [answer["event_id"]]
        if given != [one["event_id"] for one in bodies]:
            raise Wrong(f"{self.name}: {names} were answered with other event_ids: {answer}")
        for event, name in zip(events, names, strict=True):
            self.swarm.ledger.promise(session_id, name, announced=ANNOUNCED.get(event, 0))

    def _next(self, session_id: str) -> str:
        if session_id in self.calls:
            return "PostToolUse"
        return self.rng.choices(list(MIX), list(MIX.values()))[0]

    async def _until_answered(self, what: str, body: bytes) -> Message:
        asked = 0
        while True:
            try:
                if self.http is None:
                    self.door = await self.swarm.door(self.rng)
                    self.http = await Http.open(self.swarm.ports[self.door])
                asked += 1
                status, text = await self.http.post(self.heads[what], body)
            except GONE:
                self.leave()
                await asyncio.sleep(self.rng.uniform(0, RETRY_SECONDS))
                continue
            if status == 200:
                self.swarm.answered(self.door, asked)
                return dict(json.loads(text))
            raise Wrong(f"{self.name}: {status} {text[:600]!r}")

    def leave(self) -> None:
        if self.http is not None:
            self.http.abort()
        self.http = None


class Phone:
    """A device that reconnects for ever. On each connection it acknowledges everything, some or
    nothing, and joins sessions at once or late.
    """

    def __init__(self, swarm: Swarm, view: View, token: str) -> None:
        self.swarm, self.view, self.token = swarm, view, token
        self.rng = random.Random(f"{swarm.seed} {view.device}")
        self.socket: Socket | None = None
        self.ready = False
        self.joined: set[str] = set()
        self.pongs = 0
        self.renewed = 0  # how often it has acknowledged everything, left and come back
        self._asked: dict[str, tuple[str, str]] = {}  # request → type of its answer, session

    async def run(self) -> None:
        while True:
            door = await self.swarm.door(self.rng)
            self.ready, self.joined, self._asked = False, set(), {}
            try:
                self.socket = await Socket.open(self.swarm.ports[door])
                try:
                    await self._talk(self.socket)
                finally:
                    self.socket.abort()
            except GONE:
                pass
            await asyncio.sleep(self.rng.uniform(0, RETRY_SECONDS))

    async def _talk(self, socket: Socket) -> None:
        self.view.connected()
        auth = {"token": self.token, "client_version": "1.2.3", "platform": "ios"}
        await self._ask("auth", auth, "connection_ack")
        await self._ask(
            "health_check",
            {"timestamp": now(), "client_nonce": new_id(), "client_capabilities": ["health_v1"]},
            "health_status",
        )
        self.ready = True
        async with asyncio.TaskGroup() as both:
            life = both.create_task(self._live(socket))
            try:
                while True:
                    self._take(await socket.take())
            except GONE:
                life.cancel()
                self.swarm.ended(socket.code)

    async def _ask(self, type_: str, payload: Message, answer: str, session_id: str = "") -> None:
        """Send a request; where it names no session, wait for its answer too."""
        assert self.socket is not None
        request = await self.socket.say(type_, payload)
        self._asked[request] = (answer, session_id)
        while not session_id and request in self._asked:
            self._take(await self.socket.take())

    def _take(self, message: Message) -> None:
        """Raises Wrong when it is not what has to come."""
        type_, payload = message["type"], message.get("payload", {})
        if type_ == "heartbeat_pong":
            self.pongs += 1
        elif message["id"] in self._asked:
            expected, session_id = self._asked.pop(message["id"])
            if type_ != expected or payload.get("ready") is False:
                raise Wrong(f"{self.view.device}: {expected} was due, {message} came")
            if session_id:
                self.joined.add(session_id)
        elif type_ == "agent_event":
            self.swarm.ledger.sent(
                self.view,
                payload["session_id"],
                message["id"],
                payload["payload"]["number"],
                payload["event_id"],
            )
        elif type_ in BROUGHT.values():
            row = f"{type_} {payload['tool_call_id']}"
            self.view.arrived(payload["session_id"], message["id"], row)
        elif type_ in ("session_started", "session_end") or (
            type_ == "notification" and payload["notification_type"] == "task_complete"
        ):
            self.view.arrived(ALL, message["id"], f"{type_} {payload['session_id']}")
        elif type_ != "session_update":  # a view, which comes whenever it likes
            raise Wrong(f"{self.view.device} did not expect {message}")

    # -- what it does by itself --

    async def _live(self, socket: Socket) -> None:
        """Join, acknowledge, send heartbeats and perhaps leave, until the connection ends."""
        rng, began = self.rng, asyncio.get_running_loop().time()
        style = rng.choices(list(ACK_STYLES), list(ACK_STYLES.values()))[0]
        late = rng.uniform(0, 0.3) if rng.random() < 0.3 else 0.0
        leaves = rng.uniform(0, 0.6) if rng.random() < LEAVES else None
        renewed = self.renewed
        try:
            while True:
                here = asyncio.get_running_loop().time() - began
                if self.swarm.renewal > self.renewed:
                    return await self._renew(socket)
                if self.swarm.calm or here >= late:
                    await self._join(self.swarm.sessions)
                if style != "none" and (len(self.view.unacknowledged) > 20 or rng.random() < 0.2):
                    await self._acknowledge(
                        socket,
                        [
                            message_id
                            for message_id in self.view.unacknowledged
                            if style == "all" or rng.random() < 0.7
                        ],
                    )
                if (
                    leaves is not None
                    and here > leaves
                    and not self.swarm.calm
                    and renewed == self.renewed
                ):
                    return socket.abort() if rng.random() < 0.5 else await socket.close()
                # who has never acknowledged an event would prove by it that he has received them
                # all
                if self.renewed > 1 and rng.random() < 0.1:
                    await socket.say("heartbeat_ping")
                await asyncio.sleep(0.05)
        except GONE:
            return None  # whoever reads from the socket sees the end too

    async def _join(self, sessions: Iterable[str]) -> None:
        asked = {session_id for _, session_id in self._asked.values()}
        for session_id in [one for one in sessions if one not in self.joined and one not in asked]:
            await self._ask(
                "session_start",
                {"agent": "", "session_id": session_id, "working_directory": "/", "resume": True},
                "session_ready",
                session_id,
            )

    async def _acknowledge(self, socket: Socket, message_ids: list[str]) -> None:
        if message_ids:
            await socket.say("notification_ack", {"notification_ids": message_ids})
            self.view.acknowledge(message_ids)

    async def _renew(self, socket: Socket) -> None:
        """Acknowledge everything, see by a pong that it was read, leave in order; the next
        connection must bring nothing again.
        """
        await self._acknowledge(socket, list(self.view.unacknowledged))
        pongs = self.pongs
        await socket.say("heartbeat_ping")
        while self.pongs == pongs:
            await asyncio.sleep(0.01)
        self.renewed = self.swarm.renewal
        await socket.close()
