"""What tests of agents share: directories of a test are inside the roots, and no process is left
behind.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge_project.kernel.config import conf
from sessions_app.agents.process import groups
from tests.agents.drive import carrying


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one allowed root; what lies beside it is outside."""
    found = tmp_path.resolve() / "root"
    found.mkdir()
    monkeypatch.setitem(conf.__dict__, "allowed_roots", (str(found),))
    return found


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After the test no process is there that it, or what it started, has started."""
    name = uuid.uuid4().hex
    monkeypatch.setattr(groups, "_instance", name)
    yield
    left = carrying(name)
    groups.reap(name)
    assert left == []
