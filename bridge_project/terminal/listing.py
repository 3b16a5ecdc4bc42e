"""Answers as lines for a terminal: pure, and safe whatever a repository or a file holds."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from bridge_project.terminal.render import plain

Message = dict[str, Any]

LINE_CHARS = 1000
_SIGNS = {"context": " ", "added": "+", "removed": "-"}


def clean(text: object) -> str:
    """One line as it is, tabs included, without what could move a cursor or change colours."""
    shown = str("" if text is None else text).rstrip("\r\n")
    safe = "".join(
        c if c == "\t" or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}"
        for c in shown[:LINE_CHARS]
    )
    return safe + ("…" if len(shown) > LINE_CHARS else "")


def sessions(known: Mapping[str, str], current: str | None) -> list[str]:
    return [
        f"{'*' if id_ == current else ' '} {number}  {clean(id_)}  {plain(title, 80)}".rstrip()
        for number, (id_, title) in enumerate(known.items(), 1)
    ]


def approvals(asked: Sequence[Message]) -> list[str]:
    lines = []
    for number, one in enumerate(asked, 1):
        lines += [
            f"{number}  [{clean(one.get('risk_level'))}] {plain(one.get('description'), 300)}",
            f"   {plain(json.dumps(one.get('params')), 300)}",
        ]
    return lines


def status(answer: Message) -> list[str]:
    ways = [f"{word} {answer[word]}" for word in ("ahead", "behind") if answer.get(word)]
    head = f"{clean(answer['branch'])}{', ' if ways else ''}{', '.join(ways)}" + (
        ", clean" if answer["is_clean"] else ""
    )
    return [
        head,
        *(
            f"  {one['status']:<9} +{one['additions']:<5} -{one['deletions']:<5} {clean(one['path'])}"
            for one in answer["changes"]
        ),
    ]


def commit(answer: Message) -> list[str]:
    made = answer.get("commit") or {}
    what = f"{made.get('files_changed')} files, +{made.get('additions')} -{made.get('deletions')}"
    return [
        f"{clean(made.get('hash'))[:12]}  {clean(made.get('summary'))}  ({what})",
        *status(answer),
    ]


def diff(answer: Message) -> list[str]:
    lines: list[str] = []
    for file in answer["files"]:
        renamed = f" (was {clean(file['old_path'])})" if file["status"] == "renamed" else ""
        lines.append(
            f"{file['status']}: {clean(file['path'])}{renamed}  +{file['additions']} -{file['deletions']}"
        )
        for hunk in file["hunks"]:
            lines.append(clean(hunk["header"]))
            lines += [_SIGNS[line["type"]] + clean(line["content"]) for line in hunk["lines"]]
        lines += ["(cut: the file's diff is longer)"] if file.get("truncated") else []
    return lines + (["(cut: there are more files)"] if answer.get("truncated") else [])


def entries(answer: Message) -> list[str]:
    lines = [
        f"{'' if one['type'] == 'directory' else one.get('size', '')!s:>12}  {clean(one['name'])}{'/' if one['type'] == 'directory' else ''}"
        for one in answer["entries"]
    ]
    return [
        clean(answer["path"]),
        *lines,
        *(["(cut: there are more)"] if answer.get("truncated") else []),
    ]


def content(answer: Message, offset: int) -> list[str]:
    if answer.get("encoding") == "base64":
        return [f"{clean(answer['path'])}: binary, {answer['size']} bytes"]
    return [
        f"{number:>6}  {clean(line)}"
        for number, line in enumerate(answer["content"].splitlines(), offset + 1)
    ]
