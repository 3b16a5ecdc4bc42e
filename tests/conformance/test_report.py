"""Every row of the contract has a test, every marker a row, and docs/conformance.md says so."""

from tests.conformance import report


def test_every_row_has_a_test_and_every_marker_a_row() -> None:
    """`python -m tests.conformance.report` writes the page."""
    found = list(report.marks(report.test_files()))
    assert report.problems(found) == []
    assert report.PAGE.read_text(encoding="utf-8") == report.page(found)
