"""The size that the bridge promises: of 10,000 files 500 changed, status under a second, a diff of all under three (D10)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from bridge_project.protocol.catalogue import encode
from tests.conformance.repositories import Repository
from tests.files.repositories import Seen

NAMES = [f"directory {number // 100}/file {number}.py" for number in range(10_000)]


@pytest.fixture
def large(repository: Repository) -> Repository:
    """Imported in one pack: ten thousand loose objects would cost the disk more than the test."""
    stream = bytearray(b"commit refs/heads/main\ncommitter A <a@b> 0 +0000\ndata 5\nLarge\n")
    for name in NAMES:
        content = "".join(f"line {line} of {name}\n" for line in range(30)).encode()
        stream += f'M 100644 inline "{name}"\ndata {len(content)}\n'.encode() + content + b"\n"
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repository.path, input=bytes(stream), check=True, timeout=100)
    repository.git("reset", "-q", "--hard")
    for name in NAMES[::20]:
        path = repository.path / name
        path.write_text(path.read_text().replace("line 15 of", "changed"))
    return repository


def fastest(what: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest of a few calls: what the machine does beside is not what is measured."""
    seconds = []
    for _ in range(times):
        started = time.monotonic()
        what()
        seconds.append(time.monotonic() - started)
    return min(seconds)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_files(large: Repository, seen: Seen) -> None:
    """To the text that is sent; all at once, and a thousand of them by name."""
    payload = seen.status()
    assert {(change.status, change.additions, change.deletions) for change in payload.changes} == {("modified", 1, 1)}
    whole = seen.diff()
    assert len(payload.changes) == len(whole.files) == 500 and whole.truncated is None
    assert all(len(file.hunks[0].lines) == 8 for file in whole.files)
    assert len(seen.diff(*NAMES[:1000]).files) == 50
    assert fastest(lambda: encode(seen.status())) < 1
    assert fastest(lambda: encode(seen.diff())) < 3
    assert fastest(lambda: encode(seen.diff(*NAMES[:1000]))) < 3
