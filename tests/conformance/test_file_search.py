"""Files found by letters of their paths (D69)."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agents import begin, end
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.faults.quick import QuickBridge, bridge_of_module, with_limits
from tests.servers import wait_until

pytestmark = [pytest.mark.spec("ws.file_search"), pytest.mark.spec("ws.file_search_response")]
# the machine may be busy: what is looked at in time is another test's
bridge = bridge_of_module(first=with_limits(FILE_SEARCH_SECONDS=20.0))
FILES = ("src/main.py", "src/domain.py", "docs/MAIN.md", "out/main.log", "README", ".git/main")


@pytest.fixture
def session(bridge: Bridge, phone: Phone) -> Iterator[str]:
    for name in FILES:
        make(bridge.root / name)
    (bridge.root / ".gitignore").write_text("out\n")
    session_id = begin(bridge, phone)
    yield session_id
    end(phone, session_id)


def make(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def search(phone: Phone, session: str, query: str, **more: Any) -> dict[str, Any]:
    answer = phone.request("file_search", {"session_id": session, "query": query, **more})
    return dict(answer["payload"])


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        ("main", ["src/main.py", "docs/MAIN.md", "out/main.log", "src/domain.py"]),
        ("s/mn", ["src/main.py", "docs/MAIN.md", "src/domain.py"]),
        ("SRC do", ["src/domain.py"]),
        ("readme", ["README"]),
        ("zzz", []),
        ("\u202e", []),
        ("../", []),
    ],
)
def test_letters_in_order(phone: Phone, session: str, query: str, paths: list[str]) -> None:
    found = search(phone, session, query)
    assert found["paths"] == paths and found["more"] is False


def test_no_letters_and_a_limit(phone: Phone, session: str) -> None:
    """What lies next to the session's directory comes first."""
    found = search(phone, session, "", limit=2)
    assert found["paths"] == [".gitignore", "README"] and found["more"] is True


@pytest.mark.slow
def test_what_git_ignores_comes_last(bridge: Bridge, phone: Phone, session: str) -> None:
    subprocess.run(["git", "init", "-q", str(bridge.root)], check=True)
    wait_until(lambda: search(phone, session, "main")["paths"][-1] == "out/main.log")


def test_what_lies_outside_is_not_found(bridge: Bridge, phone: Phone, session: str) -> None:
    """Nor what a link leads to, nor a pipe, nor what may not be read."""
    outside = bridge.root.parent / "outside-main"
    make(outside / "secret-main")
    for name, target in {"link-main": outside / "secret-main", "links": outside}.items():
        if not (bridge.root / name).is_symlink():
            (bridge.root / name).symlink_to(target)
    if not (bridge.root / "pipe-main").exists():
        os.mkfifo(bridge.root / "pipe-main")
    shown = search(phone, session, "main")["paths"]
    assert "src/main.py" in shown
    assert not [path for path in shown if "link" in path or "secret" in path or "pipe" in path]


@pytest.mark.parametrize(
    "more", [{"query": "q" * 10_000}, {"query": 7}, {"query": "a", "limit": 51}, {"limit": 5}]
)
def test_bad_requests(phone: Phone, session: str, more: dict[str, Any]) -> None:
    answer = phone.request("file_search", {"session_id": session, **more})
    assert answer["payload"]["code"] == "PROTO_INVALID_MESSAGE"


def test_a_tree_of_100_000_names(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was found in time is the answer, which says that it is not all."""
    with QuickBridge(tmp_path_factory.mktemp("large")) as bridge:
        bridge.pin = bridge.pairing().pin
        for number in range(100):
            folder = bridge.root / f"folder-{number}"
            folder.mkdir()
            for each in range(1000):
                os.close(os.open(folder / f"file-{each}", os.O_CREAT | os.O_WRONLY))
        with bridge.phones(1) as (phone,):
            session_id = begin(bridge, phone)
            began = time.monotonic()
            found = search(phone, session_id, "f999zz")
            took = time.monotonic() - began
            assert found == {"session_id": session_id, "paths": [], "more": True}, took
            found = search(phone, session_id, "file")
            assert len(found["paths"]) == 50 and found["more"] is True
