"""Which test proves which row: `python -m tests.conformance.report` writes docs/conformance.md.

A test says with `@pytest.mark.spec("id ...")` which rows of the contract (rows.toml) it proves.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from bridge_project.protocol.base import Payload
from bridge_project.protocol.catalogue import CATALOGUE

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "conformance.md"
HEAD = """# Conformance

Every row of the tables of the specification, in this project's own words, and the tests that prove
it. The tests of `tests/conformance/` look from outside and take from the implementation at most its
limits and names: they start the real server, over TLS, and speak to it as a producer, a phone or a
browser does; where the database matters, on SQLite and on PostgreSQL. A few rows cannot be seen
from outside and are proven beside the code. This page is written by
`python -m tests.conformance.report`; the tests fail when a row has no test, or when this page is
not up to date.
"""


class Row(NamedTuple):
    id: str
    section: str
    says: str


# what a client does by itself, and nothing else: no test proves it
OF_CLIENTS = (
    "offline.client",
    "wscode.CONN_WEBSOCKET_CLOSED",
    "wscode.SYS_INTERNAL_ERROR",
    "connerror.CONN_TLS_HANDSHAKE_FAILED",
)
CLIENT = "a client's own affair"


def _fields_of(model: type[Payload]) -> str:
    answers = f"; answered by {' or '.join(model.reply)}" if model.reply else ""
    return f"{model.type}: {', '.join(model.model_fields) or 'a timestamp'}{answers}"


def _each(rows: dict[str, str | list[str]]) -> Iterator[tuple[str, str]]:
    """The ids and what they say; `x = ["name: what it says"]` is `x.name`."""
    for id_, says in rows.items():
        if isinstance(says, str):
            yield id_, says
            continue
        for name, _, rest in (one.partition(": ") for one in says):
            yield f"{id_}.{name}", f"`{name}`: {rest}" if rest else f"`{name}`"


def _rows() -> dict[str, Row]:
    sections = tomllib.loads(Path(__file__).with_name("rows.toml").read_text(encoding="utf-8"))
    messages = {f"ws.{type_}": _fields_of(model) for type_, model in CATALOGUE.items()}
    sections["WebSocket operations"] = messages | sections["WebSocket operations"]
    found = [
        Row(id_, section, says) for section, rows in sections.items() for id_, says in _each(rows)
    ]
    rows = {row.id: row for row in found}
    assert len(rows) == len(found) and set(OF_CLIENTS) <= set(rows)
    return rows


ROWS = _rows()


class Mark(NamedTuple):
    """A test (empty: all of the module) and the ids or patterns (`git.diff.*`) it names."""

    path: str
    test: str
    names: tuple[str, ...]


def test_files() -> list[Path]:
    return sorted((REPOSITORY / "tests").rglob("test_*.py"))


def marks(paths: Iterable[Path]) -> Iterator[Mark]:
    """The markers of tests that must pass: one that is expected to fail proves nothing."""
    for path in paths:
        text, name = path.read_text(encoding="utf-8"), str(path.relative_to(REPOSITORY))
        for statement in ast.parse(text).body if "pytest.mark.spec" in text else []:
            if ast.unparse(statement).startswith("pytestmark = "):
                yield Mark(name, "", _names(statement))
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                decorators = ast.List(statement.decorator_list)
                if "pytest.mark.xfail" not in ast.unparse(decorators):
                    yield Mark(name, statement.name, _names(decorators))


def _names(node: ast.AST) -> tuple[str, ...]:
    """The rows that `pytest.mark.spec("...", ...)` names, one or several in a string."""
    found: list[str] = []
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.spec":
            found += " ".join(map(ast.literal_eval, call.args)).split()
    return tuple(found)


def proofs(all_marks: Iterable[Mark]) -> dict[str, list[Mark]]:
    """Row id → the markers that name it, for each row that something can prove."""
    every = list(all_marks)
    return {
        id_: [mark for mark in every if any(fnmatchcase(id_, name) for name in mark.names)]
        for id_ in ROWS
        if id_ not in OF_CLIENTS
    }


def problems(all_marks: list[Mark]) -> list[str]:
    named = {(name, f"{mark.path}::{mark.test}") for mark in all_marks for name in mark.names}
    by_row = proofs(all_marks)
    wrong = [
        f"{where} names {name}, which is no row"
        for name, where in sorted(named)
        if not any(fnmatchcase(row, name) for row in by_row)
    ]
    return wrong + [f"no test proves {id_}" for id_, found in by_row.items() if not found]


def page(all_marks: list[Mark]) -> str:
    by_row, lines = proofs(all_marks), [HEAD]
    for section, rows in groupby(ROWS.values(), lambda row: row.section):
        lines += [f"## {section}", "", "| Row | Tests |", "|---|---|"]
        for row in rows:
            links = [f"[{_short(mark)}](../{mark.path})" for mark in by_row.get(row.id, [])]
            lines.append(f"| {row.says} | {', '.join(links) or f'*none: {CLIENT}*'} |")
        lines.append("")
    return "\n".join(lines)


def _short(mark: Mark) -> str:
    file = Path(mark.path).stem.removeprefix("test_")
    return f"{file}: {mark.test.removeprefix('test_')}" if mark.test else file


if __name__ == "__main__":
    found = list(marks(test_files()))
    PAGE.write_text(page(found), encoding="utf-8")
    raise SystemExit("\n".join(problems(found)) or 0)
