"""The size that the bridge promises: of 10,000 files 500 changed, status under a second, a diff of
all under three (D10).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import pytest

from bridge_project.protocol.catalogue import encode
from tests.conformance.repositories import Repository
from tests.files.repositories import Seen, import_files

NAMES = [f"directory {number // 100}/file {number}.py" for number in range(10_000)]


@pytest.fixture
def large(repository: Repository) -> Repository:
    import_files(
        repository,
        {name: "".join(f"line {line} of {name}\n" for line in range(30)) for name in NAMES},
    )
    for name in NAMES[::20]:
        path = repository.path / name
        path.write_text(path.read_text().replace("line 15 of", "changed"))
    return repository


def median(name: str, what: Callable[[], object], times: int = 5) -> float:
    """Seconds that a call takes, the one in the middle; what the machine does beside moves the
    slowest. All are printed.
    """
    took = []
    for _ in range(times):
        started = time.monotonic()
        what()
        took.append(time.monotonic() - started)
    sys.stdout.write(f"\n{name}: {' '.join(f'{seconds:.2f}' for seconds in sorted(took))} s\n")
    return statistics.median(took)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_files(large: Repository, seen: Seen) -> None:
    """To the text that is sent; all at once, and a thousand of them by name."""
    payload = seen.status()
    assert {(change.status, change.additions, change.deletions) for change in payload.changes} == {
        ("modified", 1, 1)
    }
    whole = seen.diff()
    assert len(payload.changes) == len(whole.files) == 500 and whole.truncated is None
    assert all(len(file.hunks[0].lines) == 8 for file in whole.files)
    assert len(seen.diff(*NAMES[:1000]).files) == 50
    assert median("status", lambda: encode(seen.status())) < 1
    assert median("diff of all", lambda: encode(seen.diff())) < 3
    assert median("diff of 1,000 by name", lambda: encode(seen.diff(*NAMES[:1000]))) < 3
