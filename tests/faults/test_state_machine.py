"""Random producers, phones, acknowledgements, joins, reconnects, replacements and crashes against a
model of D26 to D31 (model.py).

SOAK_EXAMPLES, when set, is how many runs are played on each bridge, other ones every time.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from tests.conformance.samples import new_id
from tests.faults.accepted import Message, Violation
from tests.faults.phones import Handset
from tests.faults.quick import QuickBridge
from tests.faults.stage import BAD, Happening, Stage, World
from tests.servers import Postgres, Redis

EXAMPLES = 2  # runs of an ordinary test on each bridge
STEPS = 40
SOAK = int(os.environ.get("SOAK_EXAMPLES", "0"))
FEW = 6  # messages kept of each session, on the bridge that has to discard some
RESTARTS = 1  # of one run: they take longer than all else

# these become nothing but rows that D26 names
KINDS = ("UserPromptSubmit", "PreCompact", "SubagentStop", "SessionStart", "SessionEnd")
DEVICES = SESSIONS = st.integers(0, 2)
PROCESSES = st.integers(0, 1)
AGAIN = st.one_of(st.none(), st.none(), st.integers(0, 5))
EVENTS = st.builds(Happening, SESSIONS, st.sampled_from(KINDS), AGAIN)
MEANWHILE: st.SearchStrategy[list[Happening]] = st.one_of(st.just([]), st.lists(EVENTS, max_size=5))
JOINING = st.lists(SESSIONS, max_size=3, unique=True)
CHOICES = st.one_of(
    st.sampled_from(["all", "rows alone", "all but one", "first half"]),
    st.lists(st.integers(0, 15), min_size=1, max_size=6, unique=True),
)

MORE = {"BRIDGE_MAX_WEBSOCKETS": "50"}

somebody_online = precondition(lambda self: self.online() is not None)
somebody_ready = precondition(lambda self: self.online(ready=True) is not None)
somebody_joined = precondition(lambda self: self.joined() is not None)
not_idle = precondition(lambda self: self.idle < 3)


class Delivery(Stage):
    """What producers, phones and processes do."""

    @initialize(
        first=st.lists(EVENTS, max_size=4),
        devices=st.lists(st.tuples(DEVICES, PROCESSES, JOINING), min_size=1, max_size=3),
    )
    def begin(self, first: list[Happening], devices: list[tuple[int, int, list[int]]]) -> None:
        with self.beside("begin", first):
            pass
        for device, process, joining in devices:
            self.connect(device, process, True, joining, [])

    @not_idle
    @somebody_online
    @rule()
    def check(self) -> None:
        self.settle()

    # producers

    @not_idle
    @rule(one=EVENTS, id=st.sampled_from(["own", "none", "nonsense", "capitals"]))
    def post(self, one: Happening, id: str) -> None:
        fresh = {
            "own": new_id(),
            "none": None,
            "nonsense": "not-a-uuid",
            "capitals": new_id().upper(),
        }[id]
        body = self.body(one, fresh)
        with self.step(
            f"post {body['event']} of {one.session} #{self.count}, id {body.get('event_id')}",
            idle=True,
        ):
            listening = self.model.listening(body["session_id"])
            answer = self.producer.post("event", body)
            known = answer["event_id"] in self.model.log.accepted
            self.record(body, answer)
            if not known and answer["broadcast_count"] not in listening:
                raise Violation(
                    f"broadcast_count is {answer['broadcast_count']}, {listening} listen (D33)"
                )

    @not_idle
    @rule(
        batch=st.lists(
            st.tuples(EVENTS, st.sampled_from(["", "", "", "", *BAD])), min_size=1, max_size=9
        )
    )
    def post_batch(self, batch: list[tuple[Happening, str]]) -> None:
        """D32: the good ones are stored in order, the others named."""
        bodies = self.bodies([one for one, _ in batch], [bad for _, bad in batch])
        good = [body for body, (_, bad) in zip(bodies, batch, strict=True) if not bad]
        with self.step(
            f"post a batch: {[(one.kind, one.session, bad) for one, bad in batch]}, up to #{self.count}",
            idle=True,
        ):
            answer = self.producer.post("batch", {"events": bodies})
            wrong = [index for index, (_, bad) in enumerate(batch) if bad]
            if (answer["accepted"], [error["index"] for error in answer["errors"]]) != (
                len(good),
                wrong,
            ):
                raise Violation(f"{bodies} was answered with {answer}")
            for body, event_id in zip(good, answer["event_ids"], strict=True):
                self.record(body, {"event_id": event_id})

    # connections

    @rule(
        device=DEVICES,
        process=PROCESSES,
        ready=st.sampled_from([True, True, True, False]),
        joining=JOINING,
        meanwhile=MEANWHILE,
    )
    def connect(
        self, device: int, process: int, ready: bool, joining: list[int], meanwhile: list[Happening]
    ) -> None:
        """A new device, a reconnect, or a second connection that replaces the first (D23); it joins
        sessions at once, or none.
        """
        handset = self.handsets[device]
        names = [
            self.sessions[session]
            for session in joining
            if ready and self.sessions[session] in self.model.log.sessions
        ]
        # its pairing is announced: among other rows for all nobody would know where
        if not handset.device.known:
            known = self.model.log.sessions
            meanwhile = [
                Happening(one.session, "PreCompact")
                for one in meanwhile
                if self.sessions[one.session] in known
            ]
        over = " over its connection" if handset.online else ""
        joins = f", joins {', '.join(name[:1] for name in names)}" if names else ""
        with self.beside(f"device {device} connects{over}{joins}", meanwhile, handset.taken):
            handset.dial(process)
            if ready:
                handset.check_health()
            for name in names:
                handset.join(name)
        self.mark()

    @precondition(
        lambda self: any(handset.online and not handset.ready for handset in self.handsets)
    )
    @rule()
    def become_ready(self) -> None:
        handset = next(handset for handset in self.handsets if handset.online and not handset.ready)
        with self.step(f"{handset.device.name} becomes ready"):
            handset.check_health()

    @somebody_online
    @rule(device=DEVICES, orderly=st.booleans(), meanwhile=MEANWHILE)
    def hang_up(self, device: int, orderly: bool, meanwhile: list[Happening]) -> None:
        handset = self.online(device)
        assert handset is not None
        with self.beside(f"{handset.device.name} {'closes' if orderly else 'vanishes'}", meanwhile):
            handset.hang_up(orderly=orderly)

    # sessions

    @somebody_ready
    @rule(device=DEVICES, session=SESSIONS, meanwhile=MEANWHILE)
    def join(self, device: int, session: int, meanwhile: list[Happening]) -> None:
        name, handset = self.sessions[session], self.online(device, ready=True)
        assert handset is not None
        if name in self.model.log.sessions:
            with self.beside(f"{handset.device.name} joins {session}", meanwhile):
                handset.join(name)
        else:
            with self.step(
                f"{handset.device.name} would resume session {session}, which is unknown"
            ):
                answer = handset.ask(
                    "session_start",
                    {"agent": "a", "session_id": name, "working_directory": "/", "resume": True},
                )
                if answer["payload"].get("code") != "SESS_NOT_FOUND":
                    raise Violation(f"D7: {answer}")

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

    @somebody_joined
    @rule(
        device=DEVICES,
        session=SESSIONS,
        back=st.integers(0, 8),
        how=st.sampled_from(["after", "since", "unknown"]),
        meanwhile=MEANWHILE,
    )
    def replay(
        self, device: int, session: int, back: int, how: str, meanwhile: list[Happening]
    ) -> None:
        """D29: what came after a message, or since a moment."""
        found = self.joined(device, session)
        assert found is not None
        handset, name = found
        request, first = self._replay_from(name, back, how)

        def compare(committed: int) -> None:
            if answer["type"] != "replay_buffer" or (not first and answer["payload"]["complete"]):
                raise Violation(f"replay_request {request}: {answer}")
            if first:
                self.model.replayed(name, answer["payload"], first, committed)

        with self.beside(
            f"{handset.device.name} asks for a replay of {name[:1]}: {request}", meanwhile, compare
        ):
            answer = handset.ask("replay_request", {"session_id": name} | request)

    def _replay_from(self, session: str, back: int, how: str) -> tuple[Message, range]:
        """What to ask for, and the possible indices of the first row that this means."""
        rows = self.model.log.feeds[session]
        known = [row for row in rows if row.message is not None]
        if how == "after" and known:
            row = known[-1 - back % len(known)]
            assert row.message is not None
            return {"after_id": row.message["id"]}, range(row.index + 1, row.index + 2)
        if how == "since" and self.marks:
            committed, moment = self.marks[-1 - back % len(self.marks)]
            # marks have milliseconds, rows more
            earliest = max((count for count, mark in self.marks if mark < moment), default=0)
            return {"since": moment}, range(
                self.model.log.before(session, earliest),
                self.model.log.before(session, committed) + 1,
            )
        return {"after_id": new_id()}, range(0)

    # acknowledging

    @somebody_online
    @rule(
        device=DEVICES,
        choice=CHOICES,
        more=st.sampled_from(["", "", "unknown", "others'"]),
        at_once=st.sampled_from([100, 100, 2, 1]),
        then=st.sampled_from(["", "", "unread", "closes", "vanishes"]),
        meanwhile=MEANWHILE,
    )
    def acknowledge(
        self,
        device: int,
        choice: str | list[int],
        more: str,
        at_once: int,
        then: str,
        meanwhile: list[Happening],
    ) -> None:
        """notification_ack of what the device received, in any order, and of what it did not; the
        pong says that it was read. Some go at once.
        """
        handset = self.online(device)
        assert handset is not None
        ids = self._chosen(handset, choice)
        ids += {
            "unknown": [new_id(), "nobody", ""],
            "others'": [id for id, row in self.model.log.by_id.items() if row.index % 3 == 0],
        }.get(more, [])
        what = [
            str(self.model.log.by_id[id].seq) if id in self.model.log.by_id else "?" for id in ids
        ]
        with self.beside(
            f"{handset.device.name} acknowledges the rows {' '.join(what)}, {at_once} at once; {then}",
            meanwhile,
        ):
            self._acknowledge(handset, ids, at_once)
            if then != "unread":
                handset.ping()
            if then in ("closes", "vanishes"):
                handset.hang_up(orderly=then == "closes")

    def _acknowledge(self, handset: Handset, ids: list[str], at_once: int) -> None:
        self.model.acknowledged(handset.connection, ids)
        for start in range(0, len(ids), at_once):
            handset.send("notification_ack", {"notification_ids": ids[start : start + at_once]})

    def _chosen(self, handset: Handset, choice: str | list[int]) -> list[str]:
        assert handset.phone is not None
        here = [
            message["id"]
            for message in handset.phone.messages[1:]
            if "id" in message and message["id"] not in handset.asked
        ]
        ever = [
            row.message["id"]
            for row in self.model.log.rows
            if row.message and row.index in handset.device.received[row.feed]
        ]
        if isinstance(choice, list):
            return (
                list(dict.fromkeys(ever[-1 - pick % len(ever)] for pick in choice)) if ever else []
            )
        rows = [id for id in here if id in self.model.log.by_id]
        return {
            "all": here[::-1],
            "rows alone": rows,
            "all but one": here[1:],
            "first half": here[: len(here) // 2],
        }[choice]

    @somebody_online
    @rule(device=DEVICES)
    def heartbeat(self, device: int) -> None:
        """A ping soon after another proves nothing (D27)."""
        handset = self.online(device)
        assert handset is not None
        with self.step(f"{handset.device.name} pings"):
            handset.ping()

    # the bridge ends

    @precondition(lambda self: self.restarts < RESTARTS and len(self.model.log.rows) > 2)
    @rule(
        process=PROCESSES,
        orderly=st.booleans(),
        parting=st.booleans(),
        answered=st.integers(0, 4),
        meanwhile=st.lists(EVENTS, max_size=5),
    )
    def restart(
        self, process: int, orderly: bool, parting: bool, answered: int, meanwhile: list[Happening]
    ) -> None:
        """kill -9 or SIGTERM, maybe right after acknowledgements, while a producer posts who tries
        again until he is answered; then a start.
        """
        self.restarts += 1
        bridge = self.bridges[process % len(self.bridges)]
        gone = [handset for handset in self.handsets if handset.online and handset.bridge is bridge]
        codes: list[int] = []

        def over(_: int) -> None:
            for producer in self.producers:
                producer.hang_up()
            for handset, code in zip(gone, codes, strict=True):
                handset.cut(code, orderly=orderly)
            self.model.restarted(bridge, killed=not orderly)

        with self.beside(
            f"the bridge {'stops' if orderly else 'is killed'} after {answered} answers{' and acknowledgements' if parting else ''}",
            meanwhile,
            over,
        ) as posting:
            while posting is not None and posting.is_alive() and len(posting.answers) < answered:
                posting.join(0.001)
            for handset in gone if parting else []:
                self._acknowledge(handset, self._chosen(handset, "rows alone"), 5)
                handset.ping()
            (bridge.terminate if orderly else bridge.kill)()
            codes += [handset.close_code() for handset in gone]
            if orderly and (code := bridge.ended()) != 0:
                raise Violation(f"the bridge ended with {code}")
            bridge.start()


def play(world: World, number: int, examples: int = EXAMPLES) -> None:
    """The ordinary run makes the same plans every time and stops at what it finds; a longer one is
    another each time, and makes what fails small.
    """
    for bridge in world.bridges:
        bridge.pin = bridge.pairing().pin
    phases = (Phase.generate, Phase.shrink) if SOAK else (Phase.generate,)
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    options: dict[str, Any] = {
        "phases": phases,
        "suppress_health_check": checks,
        "deadline": None,
        "print_blob": False,
        "report_multiple_bugs": False,
    }
    chosen = settings(
        max_examples=SOAK or examples, stateful_step_count=STEPS, database=None, **options
    )
    machine = seed(random.SystemRandom().getrandbits(32) if SOAK else number)(
        type("Playing", (Delivery,), {"world": world})
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Flaky as flaky:  # it does not fail in the same way each time: real processes need not
        raise world.failures[0] from flaky


@pytest.mark.timeout(600 + 30 * SOAK)
def test_each_row_comes_once_and_in_order_and_none_is_lost(tmp_path: Path) -> None:
    """Issue, done when; D22, D23, D26 to D29, D31 to D34."""
    with QuickBridge(tmp_path, **MORE) as bridge:
        play(World([bridge], kept=10_000), 1)


@pytest.mark.timeout(600 + 30 * SOAK)
def test_what_is_discarded_is_said(tmp_path: Path) -> None:
    """The same where few messages are kept (D29, D30): the others come, or are said to be gone."""
    with QuickBridge(tmp_path, BRIDGE_QUEUE_MAX=str(FEW), **MORE) as bridge:
        play(World([bridge], kept=FEW), 2)


@pytest.mark.timeout(600 + 60 * SOAK)
def test_two_processes_are_one_bridge(
    tmp_path: Path, postgres_server: Postgres, redis_server: Redis
) -> None:
    """The same with two processes on PostgreSQL and Redis, of which devices take now one, now the
    other (D46).
    """
    url = postgres_server.create_database()
    stores = {"database_url": url, "redis_url": redis_server.url}
    with (
        QuickBridge(tmp_path / "first", **stores, **MORE) as first,
        first.beside(tmp_path / "second", **MORE) as second,
    ):
        play(World([first, second], kept=10_000), 3, EXAMPLES // 2)
