"""Who uses two bridges while troubles befall them: a person who approves and rejects, agents that
act unasked whenever they can, and strangers who want to get in.

What was approved may run, once; nothing else may. Each command has a mark of its own.
"""

import random
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.agents import begin, end, say, start
from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id
from tests.faults.load import GOES_WRONG
from tests.faults.troubles import World

ASKS = (
    "careful by-option named strays strays-by-option oc oc-path oc-allow oc-empty oc-npx cx "
    "cx-never"
)
NONSENSE = ["1", "-1", "9223372036854775807", "", "*", "' OR 1=1 --", "x" * 10_000, new_id()]
FAULTS = (*GOES_WRONG, AssertionError)  # what a person meets while there is trouble


@dataclass
class Ledger:
    """What may run, what was decided, and what was tried."""

    approved: set[str] = field(default_factory=set)  # marks whose approval was sent, maybe in vain
    rejected: set[str] = field(default_factory=set)
    # (session, call) → mark, and which decisions phones were told to stand
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    stands: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    intruders: Counter[object] = field(default_factory=Counter)  # what they were answered
    faults: list[str] = field(default_factory=list)

    def told(self, phone: Phone) -> None:
        """Keep what the phone was told of decisions."""
        for message in phone.messages:
            payload = message.get("payload") or {}
            data = payload if message["type"] == "approval_recorded" else payload.get("data")
            if data and "decision" in data and "tool_call_id" in data:
                key = str(payload["session_id"]), str(data["tool_call_id"])
                self.stands.setdefault(key, set()).add(str(data["decision"]))


class Person(threading.Thread):
    """Goes on until `ending`, whatever goes wrong."""

    pause = 0.1  # seconds between two things

    def __init__(self, world: World, ledger: Ledger, seed: str, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.world, self.ledger = world, ledger
        self.rng = random.Random(f"{seed} {self.name}")
        self.pairings: list[Pairing] = [world.bridges[0].pairing() for _ in range(2)]
        self.number, self.ending = 0, threading.Event()

    def run(self) -> None:
        while not self.ending.wait(self.pause):
            try:
                self.one()
            except FAULTS:
                continue  # what became of it is in the file that its command writes
            except Exception as error:
                self.ledger.faults.append(repr(error))
                raise

    def one(self) -> None:
        raise NotImplementedError

    def mark(self, what: str) -> str:
        self.number += 1
        return f"{self.name}-{self.number}-{what}"

    def bridge(self) -> Bridge:
        return self.rng.choice(self.world.bridges)

    @contextmanager
    def phones(self) -> Iterator[list[Phone]]:
        """Both phones, each on any of the bridges."""
        with ExitStack() as leaving:
            phones = []
            for pairing in self.pairings:
                bridge = self.bridge()  # which would keep a phone of its own, and all it was told
                phone = Phone(bridge.port, pairing.token, dial=bridge.dial)
                leaving.callback(phone.vanish)
                leaving.callback(self.ledger.told, phone)
                phones.append(phone.ready())
            yield phones

    def decide(self, phones: list[Phone], session: str, call: str, mark: str) -> None:
        """One word from one phone or both, one of them maybe twice; or each its own."""
        self.ledger.calls[session, call] = mark
        kind = self.rng.choice(("one", "one", "both", "twice", "differ", "none"))
        if kind == "none":
            return phones[0].vanish()
        words = ["approved", "rejected"]
        self.rng.shuffle(words)
        said = words if kind == "differ" else words[:1] * 2
        who = {"one": [0], "both": [0, 1], "twice": [0, 0], "differ": [0, 1]}[kind]
        for number, phone in enumerate(who):
            word = said[number]
            (self.ledger.approved if word == "approved" else self.ledger.rejected).add(mark)
            body = {"session_id": session, "tool_call_id": call, "decision": word}
            phones[phone].send("approval_response", body)
        return None


class Decider(Person):
    """Has an agent ask for commands."""

    def __init__(self, world: World, ledger: Ledger, seed: str, name: str, done: Path) -> None:
        super().__init__(world, ledger, seed, name)
        self.done = done

    def one(self) -> None:
        with self.phones() as (first, second):
            sid = begin(self.world.bridges[0], first, agent="plain")
            second.join(sid)
            for _ in range(self.rng.randint(1, 4)):
                mark = self.mark("command")
                say(first, sid, f"/run echo {mark} >> '{self.done}'")
                call = first.expect("approval_required", session_id=sid)["payload"]["tool_call_id"]
                self.decide([first, second], sid, call, mark)
                first.expect("stream_end", session_id=sid, finish_reason="stop")
                for phone in (first, second):
                    phone.ping()
            end(first, sid)


class Attacker(Person):
    """Has agents act that would do so unasked (D59), and says what it was never sent (D27)."""

    def one(self) -> None:
        """It asks, whatever mode it begins in or goes to, and does what was decided."""
        agent, world = self.rng.choice(ASKS.split()), self.world
        mark = self.mark(agent)
        with self.phones() as (first, second):
            first.send("notification_ack", {"notification_ids": NONSENSE})
            ready = start(first, world.bridges[0].root, agent=agent)
            assert ready["type"] == "session_ready", ready
            session = str(ready["payload"]["session_id"])
            second.join(session)
            say(first, session, f"{'/stray yolo' if 'strays' in agent else '/act'} {mark}")
            asked = first.expect("approval_required", session_id=session)["payload"]
            if (ready["payload"]["asks"], asked["params"]["command"]) != (True, f"touch {mark}"):
                self.ledger.faults.append(f"{agent}: {ready} {asked}")
            self.decide([first, second], session, asked["tool_call_id"], mark)
            first.expect("stream_end", session_id=session, finish_reason="stop")
            second.ping()
            end(first, session)


class Intruder(Person):
    """Strangers with tokens that are none, somebody else's, copied or revoked."""

    pause = 1.0  # each time they try a dozen ways

    def __init__(self, world: World, ledger: Ledger, seed: str, name: str) -> None:
        super().__init__(world, ledger, seed, name)
        bridge, (owner, lost) = world.bridges[0], self.pairings
        own = bridge.phone(owner, device_id="owner").connect()
        fresh = own.auth()["payload"]["device_token"]
        own.vanish()
        assert bridge.get("/api/v1/sessions", fresh).status == 200  # from now on the copy is void
        bridge.manage("revoke_device", lost.name)
        alike = fresh[:-1] + ("A" if fresh[-1] != "A" else "B")
        self.void = [owner.token, lost.token, secrets.token_urlsafe(32), alike]
        self.others = [fresh, bridge.hook_token, bridge.admin_token]

    def one(self) -> None:
        for token in self.void:
            for path in (self.rng.choice(("info", "health", "sessions")), "sessions/x/events"):
                with suppress(*FAULTS):
                    method = "POST" if path.endswith("events") else "GET"
                    answer = self.bridge().https().request(method, f"/api/v1/{path}", token=token)
                    self.told(answer.status, answer.status in (401, 403, 503), token)
        for token in [*self.void, *self.others]:
            bridge, device = self.bridge(), self.rng.choice(("thief", None))
            phone = Phone(bridge.port, token, device_id=device, dial=bridge.dial)
            with ExitStack() as leaving, suppress(*FAULTS):
                leaving.callback(phone.vanish)
                answered = phone.connect().auth()["type"]
                self.told(answered, answered == "connection_error", token)

    def told(self, answer: object, refused: bool, token: str) -> None:
        self.ledger.intruders[answer] += 1
        if not refused:
            self.ledger.faults.append(f"{(self.void + self.others).index(token)}: {answer}")
