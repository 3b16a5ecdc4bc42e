"""Queue the spool's events in the order in which they are sent (D47).

Events of a session go by time, at a tie SessionStart first and SessionEnd last. Sessions in which
the agent waits for a person go first, so that nobody waits behind another session's backlog.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hooks_app.producer.shell_command import SPOOL_MAX_BYTES
from hooks_app.producer.spool import NOBODY, NOTICE, File, Spool
from hooks_app.producer.translate import Event, NeverAnEvent, iso, translate

GRACE_SECONDS = 10.0  # a file that neither parses nor grows for this long was cut short
SEND_MAX_BYTES = 8 * 2**20  # at once; the bridge takes 10
STALE_RETRIES = 5
GAPS_REPORTED = 50  # sessions to which one loss is reported


Young = tuple[File, float, str]


@dataclass(eq=False)
class Item:
    """Describe a whole waiting file: session and event, without its text."""

    file: File
    session: str
    kind: str
    event_id: str
    stale: int = 0  # how often its time was refused

    @property
    def asks(self) -> bool:
        return self.kind == "PermissionRequest"

    @property
    def order(self) -> tuple[int, int, File]:
        edge = {"SessionStart": -1, "SessionEnd": 1}.get(self.kind, 0)
        return self.file.mtime_ns, edge, self.file


def seconds_behind(waiting: Sequence[Item]) -> float:
    """Return how long the oldest has waited; 0 when none waits."""
    return max((time.time() - item.file.mtime_ns / 1e9 for item in waiting), default=0.0)


class SpoolQueue:
    """Queue a spool's events; move files that stay invalid to ``rejected/``."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.items: list[Item] = []
        # name → a file that is no JSON, or not yet; since when it is as it is (monotonic); why
        self.young: dict[str, Young] = {}
        # (session, kind, what became of them) → events of which no notice has told yet
        self._untold: Counter[tuple[str, str, str]] = Counter()

    def read_new(self) -> None:
        """Queue new files in order; drop the oldest over the bound.

        Raises OSError when the spool is gone.
        """
        known = {item.file.name for item in self.items} | self.spool.stuck
        before, self.young = self.young, {}
        files = self.spool.files(known)
        if new := [item for file in files if (item := self._read(file, before.get(file.name)))]:
            new += self._read_young_again(before)
            ordered = sorted([*self.items, *new], key=lambda item: item.order)
            asked = {item.session for item in ordered if item.asks}
            self.items = sorted(ordered, key=lambda item: item.session not in asked)
        self._keep_bound()
        newest = max(self.items, key=lambda item: item.file, default=None)
        self.spool.report_unwritten(newest.session if newest else NOBODY)

    def _read_young_again(self, before: Mapping[str, Young]) -> list[Item]:
        """Read again what was not whole; return what is by now.

        It may be older than one that was read after it, and must not come behind that.
        """
        found = []
        for name, (file, _, _) in list(self.young.items()):
            del self.young[name]
            if (item := self._read(file, None)) is not None:
                found.append(item)
            elif name in self.young:
                self.young[name] = before.get(name, self.young[name])  # as long as it is unchanged
        return found

    def _read(self, file: File, before: Young | None) -> Item | None:
        """Read a file for the queue; None when it is not whole, or never will be.

        A file that is not JSON may still be being written: it is kept until it has not changed for
        a while, by this process's clock and not by the file's time.
        """
        since, why = time.monotonic(), ""
        try:
            if file.odd:
                raise NeverAnEvent(file.odd)
            if before and before[0] == file:
                _, since, why = before
            else:
                whole, raw, note = self.spool.read(file.name)
                session, kind = raw.get("session_id"), str(raw.get("hook_event_name"))
                known = session if isinstance(session, str) else ""
                return Item(whole, known, kind, self.spool.event_id(whole, raw, note))
        except FileNotFoundError:  # somebody has removed it
            return None
        except NeverAnEvent as reason:
            self.refuse(file, str(reason))
            return None
        except ValueError:
            why = "not JSON" if file.size else "empty: the disk was full, or the hook was killed"
        except OSError as error:
            why = f"not readable: {error.strerror}"
        if time.monotonic() - since < GRACE_SECONDS:
            self.young[file.name] = file, since, why
        else:
            self.refuse(file, why)
        return None

    def _keep_bound(self) -> None:
        """Drop the oldest files over the bound, and report each session's gap."""
        total = sum(item.file.size for item in self.items)
        if total <= SPOOL_MAX_BYTES * 19 // 20:
            return
        lost: dict[str, list[Item]] = {}
        for item in sorted(self.items, key=lambda item: item.order):
            if total <= SPOOL_MAX_BYTES * 9 // 10:
                break
            total -= item.file.size
            lost.setdefault(item.session, []).append(item)
        for session, items in list(lost.items())[:GAPS_REPORTED]:
            first, last = (iso(item.file.mtime_ns / 1e9) for item in (items[0], items[-1]))
            what = f"from {first} to {last} were dropped: the spool was full."
            self._untold[session, "gap", what] = len(items)
        self.report()  # before they are gone; what a full disk refuses is reported later
        dropped = {item for items in lost.values() for item in items}
        for item in dropped:
            self.spool.drop(item.file.name)
        self.items = [item for item in self.items if item not in dropped]

    def take(self, most: int, clock_offset: float) -> list[tuple[Item, Event]]:
        """Take the next events, under 8 MB of JSON together."""
        taken: list[tuple[Item, Event]] = []
        room, now, passed = SEND_MAX_BYTES, time.time(), 0
        for item in self.items:
            if len(taken) == most:
                break
            if (event := self._event(item, now, clock_offset)) is not None:
                if taken and room < len(event.body):
                    break
                room -= len(event.body) + 1
                taken.append((item, event))
            passed += 1
        del self.items[:passed]
        return taken

    def _event(self, item: Item, now: float, clock_offset: float) -> Event | None:
        """Translate an event; None when its file is gone or was set aside."""
        try:
            _, raw, note = self.spool.read(item.file.name)
            when = item.file.mtime_ns / 1e9
            event = translate(raw, now=now, mtime=when, event_id=item.event_id, offset=clock_offset)
            if event is not None:
                return event._replace(process=note)
            self.spool.drop(item.file.name)
        except FileNotFoundError:
            pass
        except (ValueError, OverflowError, RecursionError, OSError) as reason:
            self.refuse(item.file, str(reason), item.session)
        return None

    def refuse(self, file: File, reason: str, session: str = "") -> None:
        """Set a file aside for good."""
        self.spool.set_aside(file, reason)
        if len(session) > 256 or not session.strip() or not session.isprintable():
            session = NOBODY  # or its notice would be refused too
        if not file.name.startswith(NOTICE):  # a notice about a notice would never end
            self._untold[session, "hook_rejected", f"could not be delivered: {reason}"] += 1

    def report(self) -> None:
        """Spool one notice for each session and reason, not for each file."""
        for (session, kind, what), count in list(self._untold.items()):
            events = "1 hook event" if count == 1 else f"{count} hook events"
            if self.spool.notice(session, kind, f"{events} {what}"):
                del self._untold[session, kind, what]
