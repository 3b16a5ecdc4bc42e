"""docs/conformance.md: every row of the contract has a test, every marker a row, and the page is up
to date.
"""

from __future__ import annotations

import pytest

from tests.conformance import report
from tests.conformance.report import Mark


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
    """This check can fail: without its tests a row is reported, and so is an unknown row."""
    without = [mark for mark in found if "processes" not in mark.names]
    assert any("processes" in problem for problem in report.problems(without))
    assert any(
        "no row" in problem
        for problem in report.problems([*found, Mark("tests/x.py", "test_x", ("nonsense.*",))])
    )
