"""One data directory, and two versions of the bridge for it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.samples import new_session, prompt
from tests.faults.quick import QuickBridge, nursery
from tests.servers import stop_process

NEXT = {"DJANGO_SETTINGS_MODULE": "tests.attack.next_version.settings"}
EVENTS = 3  # that the old version has taken


class Versions:
    """`next` has two migrations more; the second fails while the file `fail` is there."""

    def __init__(self, directory: Path) -> None:
        self.old = QuickBridge(directory)
        self.next = QuickBridge(directory, **self.old.settings | NEXT)
        self.backups, self.fail = self.old.data / "backups", self.old.data / "fail"
        self.session_id = new_session()

    def run_old(self, events: int) -> None:
        """Start the version that works, let it take events, stop it."""
        self.old.start()
        self.old.accept(*[prompt(self.session_id, number) for number in range(events)])
        assert self.old.stop() == 0

    def start_next(self) -> Bridge:
        Bridge.spawn(self.next)
        return self.next.wait_ready()

    def copies(self) -> list[Path]:
        return sorted(self.backups.glob("before-*.sqlite3"))


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versions]:
    """Both at a directory that the old version has used."""
    made = Versions(tmp_path_factory.mktemp("versions"))
    made.run_old(EVENTS)
    shutil.copytree(made.old.data, made.old.directory / "as it was")
    yield made
    for bridge in (made.old, made.next):
        nursery.forget(bridge.environment)


@pytest.fixture
def versions(used: Versions) -> Iterator[Versions]:
    """The same; each test begins with that directory."""
    shutil.rmtree(used.old.data)
    shutil.copytree(used.old.directory / "as it was", used.old.data)
    yield used
    for bridge in (used.old, used.next):
        if bridge.process is not None:
            stop_process(bridge.process)


def applied(file: Path) -> int:
    """How many migrations of the next version's application a database has."""
    asked = "SELECT count(*) FROM django_migrations WHERE app = 'next_version'"
    with closing(sqlite3.connect(file)) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(opened.execute(asked).fetchone()[0])
