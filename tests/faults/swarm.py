"""Sixty-four posters, five phones, and processes that are killed under them at random instants."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.phone import Message
from tests.conformance.phone import Phone as SimplePhone
from tests.conformance.samples import new_session, now
from tests.faults.clients import Phone, Poster
from tests.faults.ledger import Ledger, Wrong
from tests.faults.quick import QuickBridge
from tests.servers import PATIENCE

log = logging.getLogger("tests.faults")

POSTERS, PHONES, SESSIONS = 64, 5, 4
PHASES = ("starting", "handshakes", "under load")
EPOCH = 25  # instants, after which everything must have arrived, and is forgotten
# the longest life, in times that a process needs until it listens: one in seven never does
LIVES = 7
LONGEST_LOAD = 2.0  # seconds
# in a life: what is posted in it, and sent again in the next ones, must not grow with the length of
# a life
MOST_ANSWERS = 50
ALL_AT_ONCE = 0.15  # the share of instants that take every process
# the share of starts that are no fork: the whole of `python manage.py serve`, imports included
COLD = 0.03
TRIES = 10  # until nothing that was acknowledged comes again
# seconds until everything that is due has come, on a machine that does other things too


def pair(bridge: QuickBridge) -> list[Pairing]:
    """Devices that have been there once, and have acknowledged that the others came (D15)."""
    pairings = bridge.mint_many(
        *[("--name", f"phone {number}", "--ttl", "60m") for number in range(PHONES)]
    )
    phones = [bridge.phone(pairing).ready() for pairing in pairings]
    for number, phone in enumerate(phones):
        phone.collect(
            lambda phone=phone, number=number: len(news(phone)) == PHONES - 1 - number,  # type: ignore[misc]
            "the others were paired",
        )
        phone.ack(*news(phone))
        phone.close()
    assert bridge.stop() == 0, bridge.tail()
    bridge.process = None
    return pairings


def news(phone: SimplePhone) -> list[Message]:
    return [message for message in phone.messages if message["type"] == "notification"]


class Server:
    """One process of the bridge, as often as it is started."""

    def __init__(self, bridge: QuickBridge, opened: asyncio.Event) -> None:
        self.bridge = bridge
        self.listening = False
        self.opened = opened  # set when a process begins to listen
        self.answers = 0  # in this life
        self.cold = False
        self.born = 0.0
        # cold or not → seconds until it listens, as seen lately on this machine
        self.needs = {False: 0.2, True: 1.5}
        self._killed = True
        self._lock = asyncio.Lock()
        self._knocking: asyncio.Task[None] | None = None

    def kill(self) -> str | None:
        """SIGKILL, and what it was doing; None if it is dead already."""
        process = self.bridge.process
        if self._killed or process is None:
            return None
        self._killed = True
        phase = PHASES[2 if self.answers else 1 if self.listening else 0]
        process.send_signal(signal.SIGKILL)
        if phase == PHASES[0]:
            self._learn(at_least=True)
        self.listening = False
        return phase

    def _learn(self, *, at_least: bool) -> None:
        """How long a start takes now: this one took that long, or longer."""
        took, known = time.monotonic() - self.born, self.needs[self.cold]
        self.needs[self.cold] = max(known, took) if at_least else (known + took) / 2

    @property
    def longest_life(self) -> float:
        return min(self.needs[False] * (LIVES - 1), LONGEST_LOAD) + self.needs[self.cold]

    async def revive(self, *, cold: bool = False) -> None:
        """Start it, if it is dead; it listens some time later."""
        async with self._lock:
            if not self._killed:
                return
            if self._knocking is not None:
                self._knocking.cancel()
            if self.bridge.process is not None:
                code = await asyncio.to_thread(self.bridge.process.wait, 10)
                if code != -signal.SIGKILL:
                    raise Wrong(
                        f"the server ended with {code} before it was killed: {self.bridge.tail()}"
                    )
            self.answers, self.cold, self.born = 0, cold, time.monotonic()
            await asyncio.to_thread(self._spawn)
            self._killed = False
            self._knocking = asyncio.create_task(self._knock())

    def _spawn(self) -> None:
        if not self.cold:
            self.bridge.spawn()
            return
        with self.bridge.log.open("ab") as out:
            self.bridge.process = Bridge.popen(self.bridge, ["manage.py", "serve"], out)

    async def _knock(self) -> None:
        while not self.listening:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.bridge.port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                if not self._killed:
                    self.listening = True
                    self.opened.set()
                    self._learn(at_least=False)

    def check(self) -> None:
        if (
            not self._killed
            and self.bridge.process is not None
            and self.bridge.process.poll() is not None
        ):
            raise Wrong(
                f"the server ended by itself with {self.bridge.process.returncode}: {self.bridge.tail()}"
            )


@dataclass
class Swarm:
    """`kill(instants)` is the test; it raises Wrong when a promise was broken.

    It goes on until a process has died in each phase of its life.
    """

    bridges: Sequence[QuickBridge]
    seed: str
    count: Counter[str] = field(default_factory=Counter)
    calm: bool = False  # nobody is killed, nobody leaves: whatever is due has to come now
    renewal: int = 0
    kills: deque[str] = field(default_factory=lambda: deque(maxlen=30))  # the newest

    def __post_init__(self) -> None:
        self.hook_token = self.bridges[0].hook_token
        self.rng = random.Random(f"{self.seed} killer")
        self.ports = [bridge.port for bridge in self.bridges]
        self.opened = asyncio.Event()
        self.servers = [Server(bridge, self.opened) for bridge in self.bridges]
        self.ledger = Ledger(f"phone {number}" for number in range(PHONES))
        self.posting = asyncio.Event()
        self.sessions: list[str] = []
        self.over: list[str] = []
        self.left = 0
        self.phones: list[Phone] = []
        self.posters = [Poster(self, f"p{number}") for number in range(POSTERS)]
        # opens and ends sessions, and posts what shows that nothing else comes
        self.herald = Poster(self, "herald")

    # -- what clients ask and tell --

    async def door(self, rng: random.Random) -> int:
        """The number of a process that listens; waits for one."""
        while not (
            doors := [number for number, server in enumerate(self.servers) if server.listening]
        ):
            self.opened.clear()
            await self.opened.wait()
        return rng.choice(doors)

    def answered(self, door: int, asked: int) -> None:
        self.servers[door].answers += 1
        self.count["requests answered"] += 1
        self.count["requests sent again"] += asked - 1

    def ended(self, code: int | None) -> None:
        self.count["connections"] += 1
        if code is not None and code not in (1000, 1006):
            raise Wrong(f"the server closed a phone's connection with {code}")

    # -- the test --

    async def kill(self, instants: int) -> None:
        """The first of the bridges is running, and was never used."""
        self.phones = [
            Phone(self, view, pairing.token)
            for view, pairing in zip(self.ledger.views, pair(self.bridges[0]), strict=True)
        ]
        await asyncio.gather(*(server.revive() for server in self.servers))
        actors = []
        async with asyncio.TaskGroup() as group:
            for number, poster in enumerate(self.posters):
                actors.append(group.create_task(poster.run(number % SESSIONS)))
            actors += [group.create_task(phone.run()) for phone in self.phones]
            actors.append(group.create_task(self._watch()))
            await self._come_back()
            while instants > 0 or not self._died_in_each_phase:
                await self._epoch(max(5, min(EPOCH, instants)))
                instants -= EPOCH
            for actor in actors:
                actor.cancel()

    @property
    def _died_in_each_phase(self) -> bool:
        return all(self.count[f"killed {phase}"] for phase in PHASES)

    async def _watch(self) -> None:
        """A process that ends by itself is a fault at any time."""
        while True:
            for server in self.servers:
                server.check()
            await asyncio.sleep(0.2)

    async def _come_back(self) -> None:
        """All phones are connected once, so that their place in the log is the present."""
        self.calm = True
        self.renewal += 1
        await self._until(lambda: self._renewed, "all phones have been there")

    @property
    def _renewed(self) -> bool:
        return all(
            phone.ready and phone.renewed == self.renewal and phone.joined.issuperset(self.sessions)
            for phone in self.phones
        )

    async def _epoch(self, instants: int) -> None:
        await self._open_sessions()
        self.calm, self.left = False, instants
        self.posting.set()
        await asyncio.gather(*(self._mortal(server) for server in self.servers))
        self.posting.clear()
        self.calm = True
        await asyncio.gather(*(server.revive() for server in self.servers))
        await self._until(
            lambda: all(server.listening for server in self.servers), "every process listens again"
        )
        await self._until(
            lambda: all(poster.idle for poster in self.posters), "every poster was answered"
        )
        await self._until(
            lambda: not self.ledger.outstanding(), "every promise was kept", self.ledger.outstanding
        )
        for session_id in self.sessions:
            stored, revealed = (
                (await asyncio.to_thread(self.bridges[0].session, session_id))["hook_count"],
                sum(newest + 1 for newest in self.ledger.feeds[session_id].last.values()),
            )
            if stored != revealed:
                raise Wrong(f"{session_id}: {stored} events are stored, {revealed} were sent")
        await self._settle()
        await self._end_sessions()
        log.info("%s", self.summary())

    async def _mortal(self, server: Server) -> None:
        """The lives of one process, one after the other."""
        while self.left > 0:
            await self._live(server)
            if self.left <= 0:
                return
            victims = self.servers if self.rng.random() < ALL_AT_ONCE else [server]
            phases = {victim: phase for victim in victims if (phase := victim.kill())}
            if not phases:
                # It died together with another and is not there yet: wait until it is.
                await server.revive()
                continue
            self.left -= 1
            self.count.update(f"killed {phase}" for phase in phases.values())
            self.count["instants"] += 1
            if len(phases) > 1:
                self.count["killed all at once"] += 1
            self.kills.append(
                f"{now()}: "
                + ", ".join(
                    f"{self.servers.index(victim)} {phase}" for victim, phase in phases.items()
                )
            )
            await asyncio.gather(
                *(victim.revive(cold=self.rng.random() < COLD) for victim in victims)
            )

    async def _live(self, server: Server) -> None:
        """Until the instant at which it dies: some time after its birth, or some moments after as
        many answers as it was to give.
        """
        dies, answers = (
            time.monotonic() + self.rng.uniform(0, server.longest_life),
            self.rng.uniform(0, MOST_ANSWERS),
        )
        while self.left > 0 and server.answers < answers and (rest := dies - time.monotonic()) > 0:
            await asyncio.sleep(min(rest, self.rng.uniform(0, 0.04)))

    async def _settle(self) -> None:
        """Each phone acknowledges everything, leaves and comes back: of all that was, nothing comes
        again, now or ever.
        """
        # an acknowledgement may be lost between two connections: at least once
        for _ in range(TRIES):
            lengths, again = self.ledger.lengths(), sum(view.again for view in self.ledger.views)
            self.renewal += 1
            await self._until(lambda: self._renewed, "all phones have come back")
            for session_id in self.sessions:
                await self._proclaim(session_id, "UserPromptSubmit")
            await self._until(
                lambda: not self.ledger.outstanding(),
                "the last event has come",
                self.ledger.outstanding,
            )
            if sum(view.again for view in self.ledger.views) == again:
                break
            self.count["acknowledged and sent again"] += (
                sum(view.again for view in self.ledger.views) - again
            )
        else:
            raise Wrong(
                "what was acknowledged before an orderly end comes again on every connection"
            )
        self.ledger.settle(lengths)
        for session_id in self.over:
            self.ledger.close(session_id)
        self.over = []

    async def _open_sessions(self) -> None:
        sessions = [new_session() for _ in range(SESSIONS)]
        for session_id in sessions:
            self.ledger.open(session_id)
            await self._proclaim(session_id, "SessionStart")
        self.sessions = sessions

    async def _end_sessions(self) -> None:
        for session_id in self.sessions:
            await self._proclaim(session_id, "SessionEnd")
        await self._until(
            lambda: not self.ledger.outstanding(), "the end has come", self.ledger.outstanding
        )
        self.over, self.sessions = self.sessions, []

    async def _proclaim(self, session_id: str, event: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self.herald.post(session_id, event)
        except TimeoutError:
            raise Wrong(
                f"not within {PATIENCE} s: the {event} of {session_id} was answered"
            ) from None

    async def _until(
        self, condition: Callable[[], object], what: str, instead: Callable[[], object] = str
    ) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise Wrong(f"not within {PATIENCE} s: {what}; {instead()}")
            await asyncio.sleep(0.02)

    def summary(self) -> dict[str, int]:
        views = self.ledger.views
        return dict(self.count) | {
            "events acknowledged": self.ledger.promised,
            "rows sent": sum(view.rows for view in views),
            "rows sent again": sum(view.again for view in views),
        }
