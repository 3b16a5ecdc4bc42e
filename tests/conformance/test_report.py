"""Every row of the contract has a test, every marker a row, and docs/conformance.md says so."""

from __future__ import annotations

import pytest

from tests.conformance import report
from tests.conformance.report import Mark


@pytest.fixture(scope="module")
def found() -> list[Mark]:
    return list(report.marks(report.test_files()))


def test_every_row_has_a_test_and_every_marker_a_row(found: list[Mark]) -> None:
    assert report.problems(found) == []


def test_the_page_is_up_to_date(found: list[Mark]) -> None:
    """`python -m tests.conformance.report` writes it."""
    assert report.PAGE.read_text(encoding="utf-8") == report.page(found)
