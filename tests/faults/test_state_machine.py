"""Random producers, phones and crashes against a model of D26 to D31 (model.py)."""

import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from tests.conformance.samples import new_id
from tests.faults.model import Violation
from tests.faults.quick import QuickBridge
from tests.faults.stage import Handset, Happening, Stage, post

pytestmark = pytest.mark.slow

EXAMPLES = 8  # runs of an ordinary test
STEPS = 40
SOAK = int(os.environ.get("SOAK_EXAMPLES", "0"))
RESTARTS = 1  # of one run: they take longer than all else

# these become nothing but rows that D26 names
KINDS = ("UserPromptSubmit", "PreCompact", "SubagentStop", "SessionStart", "SessionEnd")
DEVICES = SESSIONS = st.integers(0, 2)
AGAIN = st.one_of(st.none(), st.none(), st.integers(0, 5))
EVENTS = st.builds(Happening, SESSIONS, st.sampled_from(KINDS), AGAIN)
MEANWHILE: st.SearchStrategy[list[Happening]] = st.one_of(st.just([]), st.lists(EVENTS, max_size=5))
JOINING = st.lists(SESSIONS, max_size=3, unique=True)
CHOICES = st.sampled_from(["all", "rows alone", "all but one", "ever"])

somebody_online = precondition(lambda self: self.online(0) is not None)
somebody_joined = precondition(lambda self: self.joined(0, 0) is not None)


class Delivery(Stage):
    @initialize(
        first=st.lists(EVENTS, max_size=4),
        devices=st.lists(st.tuples(DEVICES, JOINING), min_size=1, max_size=3),
    )
    def begin(self, first: list[Happening], devices: list[tuple[int, list[int]]]) -> None:
        with self.beside("begin", first):
            pass
        for device, joining in devices:
            self.connect(device, joining, [])

    @somebody_online
    @rule()
    def check(self) -> None:
        self.settle()

    # producers

    @rule(one=EVENTS)
    def post_one(self, one: Happening) -> None:
        body = self.body(one)
        with self.step(f"post {body['event']} of {one.session}"):
            self.record(body, post(self.bridge, body))

    @rule(batch=st.lists(EVENTS, min_size=1, max_size=9))
    def post_batch(self, batch: list[Happening]) -> None:
        """D32: stored in order."""
        bodies = [self.body(one) for one in batch]
        with self.step(f"post a batch: {batch}"):
            answer = post(self.bridge, bodies)
            for body, event_id in zip(bodies, answer["event_ids"], strict=True):
                self.record(body, {"event_id": event_id})

    # connections

    @rule(device=DEVICES, joining=JOINING, meanwhile=MEANWHILE)
    def connect(self, device: int, joining: list[int], meanwhile: list[Happening]) -> None:
        """A reconnect, or a connection that replaces the first (D23); it joins."""
        handset, known = self.handsets[device], self.model.log.sessions
        names = [name for name in map(self.sessions.__getitem__, joining) if name in known]
        with self.beside(f"device {device} connects, joins {joining}", meanwhile, handset.taken):
            handset.dial()
            for name in names:
                handset.join(name)

    @somebody_online
    @rule(device=DEVICES, orderly=st.booleans(), meanwhile=MEANWHILE)
    def hang_up(self, device: int, orderly: bool, meanwhile: list[Happening]) -> None:
        handset = self.online(device)
        assert handset is not None
        with self.beside(f"{handset.device.name} leaves, {orderly=}", meanwhile):
            handset.hang_up(orderly=orderly)

    # sessions

    @somebody_online
    @rule(device=DEVICES, session=SESSIONS, meanwhile=MEANWHILE)
    def join(self, device: int, session: int, meanwhile: list[Happening]) -> None:
        name, handset = self.sessions[session], self.online(device)
        assert handset is not None
        if name in self.model.log.sessions:
            with self.beside(f"{handset.device.name} joins {session}", meanwhile):
                handset.join(name)

    @somebody_joined
    @rule(device=DEVICES, session=SESSIONS, meanwhile=MEANWHILE)
    def leave(self, device: int, session: int, meanwhile: list[Happening]) -> None:
        """D22: session_end only leaves an observed session."""
        found = self.joined(device, session)
        assert found is not None
        handset, name = found
        with self.beside(f"{handset.device.name} leaves {name[:1]}", meanwhile):
            answer = handset.ask("session_end", {"session_id": name, "reason": "user_request"})
            if answer["type"] != "session_end":
                raise Violation(f"leaving a joined session: {answer}")

    # acknowledging

    @somebody_online
    @rule(
        device=DEVICES,
        choice=CHOICES,
        others=st.booleans(),
        then=st.sampled_from(["", "", "unread", "closes", "vanishes"]),
        meanwhile=MEANWHILE,
    )
    def acknowledge(
        self, device: int, choice: str, others: bool, then: str, meanwhile: list[Happening]
    ) -> None:
        """What was received, in any order, and what was not; an answer says that it was read."""
        handset = self.online(device)
        assert handset is not None
        by_id, ids = self.model.log.by_id, self._chosen(handset, choice)
        if others:
            ids += [new_id(), "nobody", *(id for id, row in by_id.items() if row.index % 3 == 0)]
        what = [str(by_id[id].seq) if id in by_id else "?" for id in ids]
        with self.beside(
            f"{handset.device.name} acknowledges the rows {' '.join(what)}; {then}", meanwhile
        ):
            self._acknowledge(handset, ids)
            if then != "unread":
                handset.check()
            if then in ("closes", "vanishes"):
                handset.hang_up(orderly=then == "closes")

    def _acknowledge(self, handset: Handset, ids: list[str]) -> None:
        self.model.acknowledged(handset.connection, ids)
        for some in (ids[:2], ids[2:]):
            handset.send("notification_ack", {"notification_ids": some})

    def _chosen(self, handset: Handset, choice: str) -> list[str]:
        """What came on this connection, or every other row that ever came."""
        assert handset.phone is not None
        by_id, received = self.model.log.by_id, handset.device.received
        ids = [message["id"] for message in handset.phone.messages[1:]]
        here = [id for id in ids if id not in handset.asked]
        return {
            "all": here[::-1],
            "rows alone": [id for id in here if id in by_id],
            "all but one": here[1:],
            "ever": [id for id, row in by_id.items() if row.index in received[row.feed]][::2],
        }[choice]

    # the bridge ends

    @precondition(lambda self: self.restarts < RESTARTS and len(self.model.log.rows) > 2)
    @rule(
        orderly=st.booleans(),
        parting=st.booleans(),
        answered=st.integers(0, 4),
        meanwhile=st.lists(EVENTS, max_size=5),
    )
    def restart(
        self, orderly: bool, parting: bool, answered: int, meanwhile: list[Happening]
    ) -> None:
        """End the bridge, maybe right after acknowledgements, while a producer posts; start it."""
        self.restarts += 1
        gone = [handset for handset in self.handsets if handset.online]
        codes: list[int] = []

        def over(_: int) -> None:
            for handset, code in zip(gone, codes, strict=True):
                handset.cut(code, orderly=orderly)
            if not orderly:
                self.model.killed()

        what = f"the bridge ends after {answered} answers, {orderly=}, {parting=}"
        with self.beside(what, meanwhile, over) as (posting, answers):
            while not posting.done() and len(answers) < answered:
                time.sleep(0.001)
            for handset in gone if parting else []:
                self._acknowledge(handset, self._chosen(handset, "rows alone"))
                handset.check()
            (self.bridge.terminate if orderly else self.bridge.kill)()
            codes += [handset.close_code() for handset in gone]
            if orderly and (code := self.bridge.ended()) != 0:
                raise Violation(f"the bridge ended with {code}")
            self.bridge.start()


@pytest.mark.timeout(600 + 30 * SOAK)
def test_each_row_comes_once_and_in_order_and_none_is_lost(tmp_path: Path) -> None:
    """Issue, done when; D22, D23, D26 to D29, D31 to D34. A soak makes other plans each time."""
    chosen = settings(
        max_examples=SOAK or EXAMPLES,
        stateful_step_count=STEPS,
        database=None,
        phases=(Phase.generate, Phase.shrink) if SOAK else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
    )
    failures: list[BaseException] = []
    with QuickBridge(tmp_path, BRIDGE_MAX_WEBSOCKETS="50") as bridge:
        playing = type("Playing", (Delivery,), {"bridge": bridge, "failures": failures})
        machine = seed(random.SystemRandom().getrandbits(32) if SOAK else 1)(playing)
        try:
            run_state_machine_as_test(machine, settings=chosen)
        except (
            Flaky
        ) as flaky:  # it does not fail in the same way each time: real processes need not
            raise failures[0] from flaky
