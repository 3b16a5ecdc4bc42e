"""What a check found: a mark, a sentence and the commands that mend it; as lines for a person, as
JSON for a machine, never with a secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import unquote, urlsplit

from bridge_project.kernel.config import Conf
from bridge_project.terminal.render import plain

TEXT_CHARS: Final = 500
HIDDEN: Final = "[hidden]"
SECRETS: Final = ("hook_token", "admin_token", "django_secret")
SECRET_MIN_CHARS: Final = 6  # a shorter password would be found in half of the words


class Level(StrEnum):
    """``broken`` makes the exit code 1; a ``warning`` is something to know, or that will break."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


MARKS: Final = {Level.OK: "✓", Level.WARNING: "!", Level.BROKEN: "✗"}


@dataclass(frozen=True, slots=True)
class Finding:
    """``check``: the part that was looked at, one word; ``mend``: shell commands, in order; what a
    ``#`` begins is for the reader.
    """

    check: str
    level: Level
    text: str
    mend: tuple[str, ...] = ()


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, *mend: str) -> Finding:
    return Finding(check, Level.WARNING, text, mend)


def broken(check: str, text: str, *mend: str) -> Finding:
    return Finding(check, Level.BROKEN, text, mend)


def read_secret(conf: Conf, name: str) -> str:
    """A secret from the settings or its file; empty when there is none. Unlike ``conf.secret`` it
    makes nothing.
    """
    given: str = getattr(conf, f"bridge_{name}", "")
    try:
        return given or conf.secret_path(name).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def cleaned(conf: Conf, findings: Iterable[Finding]) -> list[Finding]:
    """The findings with every secret of this bridge taken out, each text one line that cannot move
    a terminal's cursor.
    """
    urls = [urlsplit(url).password or "" for url in (conf.database_url, conf.redis_url) if url]
    values = {*(read_secret(conf, name) for name in SECRETS), *urls, *map(unquote, urls)}
    secrets = sorted(
        (value for value in values if len(value) >= SECRET_MIN_CHARS), key=len, reverse=True
    )

    def hide(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def command(text: str) -> str:  # its spaces may be a path's
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in hide(text))

    return [
        Finding(
            one.check, one.level, plain(hide(one.text), TEXT_CHARS), tuple(map(command, one.mend))
        )
        for one in findings
    ]


def worst(findings: Sequence[Finding]) -> Level:
    levels = {one.level for one in findings}
    return next((level for level in (Level.BROKEN, Level.WARNING) if level in levels), Level.OK)


def as_lines(findings: Sequence[Finding]) -> list[str]:
    """A line for each finding, its commands indented below it, and one line in the end that sums
    up.
    """
    width = max((len(one.check) for one in findings), default=0)
    lines = []
    for one in findings:
        lines.append(f"{MARKS[one.level]} {one.check:<{width}}  {one.text}")
        lines += [f"  {'':<{width}}    {command}" for command in one.mend]
    count = {level: sum(one.level is level for one in findings) for level in Level}
    said = (
        "Everything works."
        if worst(findings) is Level.OK
        else f"{count[Level.BROKEN]} broken, {count[Level.WARNING]} to look at."
    )
    return [*lines, "", said]


def as_json(findings: Sequence[Finding]) -> str:
    """``{status, checks: [{check, level, text, mend}]}``."""
    return json.dumps(
        {"status": worst(findings), "checks": [asdict(one) for one in findings]},
        ensure_ascii=False,
        indent=2,
    )
