"""Who uses two bridges while troubles befall them: a person who approves and rejects, agents that
act unasked whenever they can, and strangers who want to get in.

What was approved may run, once; nothing else may. Each command has a mark of its own.
"""

from __future__ import annotations

import random
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.agents import begin, end, say, start
from tests.conformance.bridge import Bridge, Pairing
from tests.conformance.phone import Phone
from tests.conformance.samples import new_id, new_session, prompt
from tests.faults.load import GOES_WRONG
from tests.faults.troubles import PATIENCE, World

ASKS = "careful by-option named strays strays-by-option oc oc-path oc-allow oc-empty oc-npx cx cx-never"
NONSENSE = ["1", "-1", "9223372036854775807", "", "*", "' OR 1=1 --", "x" * 10_000, new_id()]
MESSAGE = {"type": "user_message", "content": "Delete it all."}
FAULTS = (*GOES_WRONG, AssertionError)  # what a person meets while there is trouble


@dataclass
class Ledger:
    """What may run, what was decided, and what was tried."""

    approved: set[str] = field(default_factory=set)  # marks whose approval was sent, maybe in vain
    rejected: set[str] = field(default_factory=set)
    # (session, call) → mark, and which decisions phones were told to stand
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    stands: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)
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
            self.rng.choice(phones).vanish()
            return
        words = ["approved", "rejected"]
        self.rng.shuffle(words)
        said = words if kind == "differ" else words[:1] * 2
        who = {"one": [0], "both": [0, 1], "twice": [0, 0], "differ": [0, 1]}[kind]
        for number, phone in enumerate(who):
            word = said[number]
            (self.ledger.approved if word == "approved" else self.ledger.rejected).add(mark)
            body = {"session_id": session, "tool_call_id": call, "decision": word}
            phones[phone].send("approval_response", body)


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
        with self.phones() as phones:
            phones[0].send("notification_ack", {"notification_ids": NONSENSE})
            self.act(phones)

    def begin(self, phone: Phone) -> tuple[str, str, str]:
        """A session of one of these agents: it, the agent, and a mark."""
        agent = self.rng.choice(ASKS.split())
        ready = start(phone, self.world.bridges[0].root, agent=agent)
        self.ledger.tried[f"{agent} {'begun' if ready['type'] == 'session_ready' else 'not'}"] += 1
        assert ready["type"] == "session_ready", ready
        if ready["payload"]["asks"] is not True:
            self.ledger.faults.append(f"{agent}: {ready}")
        return str(ready["payload"]["session_id"]), agent, self.mark(agent)

    def act(self, phones: list[Phone]) -> None:
        """It asks, whatever mode it begins in or goes to, and does what was decided."""
        session, agent, mark = self.begin(phones[0])
        phones[1].join(session)
        say(phones[0], session, f"{'/stray yolo' if 'strays' in agent else '/act'} {mark}")
        asked = phones[0].expect("approval_required", session_id=session)["payload"]
        if asked["params"]["command"] != f"touch {mark}":
            self.ledger.faults.append(f"{agent}: {asked}")
        self.decide(phones, session, asked["tool_call_id"], mark)
        phones[0].expect("stream_end", session_id=session, finish_reason="stop")
        phones[1].ping()
        end(phones[0], session)


class Intruder(Person):
    """Strangers with tokens that are none, not for this, somebody else's, copied or revoked."""

    pause = 1.0  # each time they try a dozen ways

    def __init__(self, world: World, ledger: Ledger, seed: str, name: str) -> None:
        super().__init__(world, ledger, seed, name)
        bridge = world.bridges[0]
        owner, lost = self.pairings
        own = bridge.phone(owner, device_id="owner")
        own.connect()
        fresh = own.auth()["payload"]["device_token"]
        own.vanish()
        assert bridge.get("/api/v1/sessions", fresh).status == 200  # from now on the copy is void
        bridge.manage("revoke_device", lost.name)
        self.void = {
            "copied": owner.token,
            "revoked": lost.token,
            "random": secrets.token_urlsafe(32),
            "alike": fresh[:-1] + ("A" if fresh[-1] != "A" else "B"),
        }
        self.others = {"another's": fresh, "hook": bridge.hook_token, "admin": bridge.admin_token}
        self.spare = [bridge.pairing() for _ in range(200)]

    def one(self) -> None:
        if self.rng.random() < 0.03 and self.spare:
            self.revoke(self.spare.pop())
        for name, token in self.void.items():
            self.over_http(name, self.bridge(), token)
        for name, token in {**self.void, **self.others}.items():
            self.over_a_socket(name, self.bridge(), token, self.rng.choice(("thief", None)))
        # what is good for one thing, used for another
        self.refused("device's", self.bridge(), "another's", "hooks/event", prompt("unknown", 1))
        self.refused("hook's", self.bridge(), "hook", "sessions/unknown/events", MESSAGE)

    def over_http(self, name: str, bridge: Bridge, token: str) -> None:
        self.refused(name, bridge, token, self.rng.choice(("info", "health", "sessions")))
        self.refused(name, bridge, token, f"sessions/{new_session()}/events", MESSAGE)

    def refused(self, name: str, bridge: Bridge, token: str, path: str, body: Any = ...) -> None:
        """Ask with this token, or with that of `others` of this name."""
        method, token = "GET" if body is ... else "POST", self.others.get(token, token)
        try:
            answer = bridge.https().request(method, f"/api/v1/{path}", token=token, json_body=body)
        except FAULTS:
            self.ledger.tried[f"{name} http unanswered"] += 1
            return
        self.ledger.tried[f"{name} http {answer.status}"] += 1
        if answer.status not in (401, 403, 503):
            self.ledger.faults.append(f"{name}: {answer}")

    def over_a_socket(self, name: str, bridge: Bridge, token: str, device: str | None) -> None:
        phone = Phone(bridge.port, token, device_id=device, dial=bridge.dial)
        try:
            phone.connect()
            answer = phone.auth()
        except FAULTS:
            self.ledger.tried[f"{name} socket unanswered"] += 1
            return
        finally:
            phone.vanish()
        said = answer["payload"].get("code", answer["type"])
        self.ledger.tried[f"{name} socket {said}"] += 1
        if answer["type"] == "connection_ack":
            self.ledger.faults.append(f"{name} as {device}: {answer}")

    def revoke(self, pairing: Pairing) -> None:
        """What was revoked is out, on every process at once, and its socket soon."""
        bridge = self.bridge()
        phone = Phone(bridge.port, pairing.token, device_id="lost", dial=bridge.dial)
        with suppress(*FAULTS):
            phone.ready()
        revoked = self.world.bridges[0].manage("revoke_device", pairing.name, check=False)
        self.ledger.tried[f"revocations that ended with {revoked.returncode}"] += 1
        if revoked.returncode == 0:
            for other in self.world.bridges:
                self.over_http("just revoked", other, pairing.token)
                self.over_a_socket("just revoked", other, pairing.token, "lost")
            try:
                if phone.connected:
                    phone.wait_closed(PATIENCE)
            except GOES_WRONG:
                pass
            except AssertionError:
                self.ledger.faults.append(f"a revoked device stays connected: {pairing.name}")
        phone.vanish()
