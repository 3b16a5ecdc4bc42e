"""docs/conformance.md: every row of the contract has a test, every marker a row, and the page is up
to date.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import report
from tests.conformance.report import Mark
from tests.conformance.rows import ROWS


@pytest.fixture(scope="module")
def found() -> list[Mark]:
    return list(report.marks(report.test_files()))


def test_every_row_has_a_test(found: list[Mark]) -> None:
    """Issue, Shown by: the test command fails when a row has none, or a marker names no row."""
    assert report.problems(found) == []


def test_the_page_is_up_to_date(found: list[Mark]) -> None:
    """`python -m tests.conformance.report` writes it."""
    assert report.PAGE.read_text(encoding="utf-8") == report.page(found)


def test_what_is_missing_is_noticed(found: list[Mark]) -> None:
    """This check can fail: without its tests a row is reported, and so are an unknown row and a
    test that is shadowed by another.
    """
    without = [mark for mark in found if "processes" not in mark.names]
    assert any("processes" in problem for problem in report.problems(without))
    assert any(
        "no row" in problem
        for problem in report.problems([*found, Mark("tests/x.py", "test_x", ("nonsense.*",))])
    )
    twice = [*found, Mark("tests/x.py", "test_x", ()), Mark("tests/x.py", "test_x", ())]
    assert any("two tests" in problem for problem in report.problems(twice))


def test_markers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the module, on a function, among others; what is expected to fail proves nothing; what
    cannot be proven yet is matched by no pattern.
    """
    monkeypatch.setattr(report, "REPOSITORY", tmp_path)
    file = tmp_path / "tests" / "test_a.py"
    file.parent.mkdir()
    file.write_text(
        'import pytest\npytestmark = [pytest.mark.slow, pytest.mark.spec("ws.auth")]\n'
        '@pytest.mark.parametrize("a", [1])\n@pytest.mark.spec("offline.cl*", "settings")\ndef test_one(a): ...\n'
        '@pytest.mark.xfail(strict=True)\n@pytest.mark.spec("processes")\ndef test_two(): ...\n'
    )
    marks = list(report.marks(report.test_files()))
    assert marks == [
        Mark("tests/test_a.py", "", ("ws.auth",)),
        Mark("tests/test_a.py", "test_one", ("offline.cl*", "settings")),
    ]
    by_row = report.proofs(marks)
    assert [len(by_row[id_]) for id_ in ("ws.auth", "settings", "processes", "offline.client")] == [
        1,
        1,
        0,
        0,
    ]
    assert ROWS["offline.client"].later
