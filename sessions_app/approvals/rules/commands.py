"""Tell what a shell command does, as far as the tables know it (D68).

Only plain words are understood: letters and quoted text, joined by ``&&``, ``||``, ``;`` and ``|``,
with output sent nowhere or to the other stream. What the shell would expand, substitute, redirect
or run beside is not: such a command asks. Pure but for ``Place``, which looks at files.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from sessions_app.approvals.rules import tables
from sessions_app.approvals.rules.places import is_sensitive
from sessions_app.approvals.rules.tables import Row

COMMAND_CHARS: Final = 4000
READS, BUILDS, CHANGES = "reads", "builds", "changes"
# Bare text has no character that a shell gives a meaning: no pattern, brace, escape, variable,
# history, comment, no tilde or equals sign where a word or a part of it begins, and no caret there.
# In some shells a backslash at the end of quoted text takes the quote with it.
_TOKEN = re.compile(
    r"""(?P<space>[ ]+)
    |(?P<joint>&&|\|\||;|\|)
    |(?P<nowhere>(?:2>&1|[12]?>[ ]?/dev/null)(?=[ ;|]|$))
    |(?P<word>(?:'[^']*(?<!\\)'|"[^"\\$`!]*"|(?<![ ;|&=:])~|[A-Za-z0-9_@%+,./:-]
      |(?<![ ;|&])[=^])+)""",
    re.VERBOSE,
)
_QUOTES = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_SET_FOR_IT = re.compile(
    r"(?:CI|NODE_ENV|NO_COLOR|FORCE_COLOR|LANG|LC_ALL|TZ|PYTHONDONTWRITEBYTECODE)=[\w.:-]*"
)
_SYSTEM_PLACES = ("/bin/", "/usr/bin/")
_OWN_PLACES = re.compile(r"(?:\./)?(?:\.?venv/bin|node_modules/\.bin)/(?=[\w.-]+$)")
_PYTHON = re.compile(r"python3?(?:\.\d+)?")
_MOST_WORDS_OF_A_NAME = 3


class Places(Protocol):
    """Answer whether the words of a command are files that a rule may cover."""

    def moved(self, word: str) -> "Places | None":
        """Return the places as seen from a directory, None if no rule covers it."""

    def is_covered(self, word: str, *, contents: bool = False, follows: bool = False) -> bool:
        """Return whether a word is a path below the session's directory, not sensitive.

        ``contents``: nor is a file below it; ``follows``: and no link below it leads out.
        """

    def has_program(self, name: str) -> bool:
        """Return whether the project's own environment has a program."""

    def is_top_of_repository(self) -> bool:
        """Return whether git works here with the repository of the session's directory."""


def understand(command: str, places: Places) -> set[str] | None:
    """Return what a command does, None if any of it is not understood."""
    found: set[str] = set()
    here = places
    for number, (words, joint) in enumerate(_parts(command)):
        if any(map(is_sensitive, words[1:])):
            return None
        if words[:1] == ["cd"]:  # only to go on from there
            goes_on = number == 0 and joint == "&&" and len(words) == 2
            # a name alone may be looked up elsewhere (CDPATH)
            if not goes_on or not re.match(r"\.?\.?/", f"{words[1]}/"):
                return None
            if (to := places.moved(words[1])) is None:
                return None
            here = to
        elif kinds := _kinds(words, here):
            found |= kinds
        else:
            return None
    return (found - {""}) or ({READS} if found else None)


def _parts(command: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each simple command and what joins it to the next.

    What is not understood ends it with ([], "").
    """
    if len(command) > COMMAND_CHARS or not command.isprintable():
        yield [], ""
        return
    at, words = 0, list[str]()
    while at < len(command):
        token = _TOKEN.match(command, at)
        if token is None:
            yield [], ""
            return
        kind, at = token.lastgroup, token.end()
        if kind == "word":
            after = command[at : at + 1]
            if after and after not in " ;|&":  # a redirection that is not understood
                yield [], ""
                return
            words.append(_QUOTES.sub(lambda found: found[1] or found[2] or "", token[0]))
        elif kind == "joint":
            yield words, token[0]
            words = []
    if words or not command.rstrip().endswith(";"):
        yield words, ""


def _kinds(words: Sequence[str], here: Places) -> set[str]:
    """Return the kinds of rules that one simple command needs.

    {""}: it needs none; empty: it asks.
    """
    while words and _SET_FOR_IT.fullmatch(words[0]):
        words = words[1:]
    if len(words) > 2 and words[0] == "timeout" and words[1].isdigit():
        words = words[2:]
    if not words:
        return set()
    program, *rest = words
    if program in ("echo", "true", ":", "false"):
        return {""}
    for place in _SYSTEM_PLACES:
        program = program.removeprefix(place)
    words = ["python" if _PYTHON.fullmatch(program) else program, *rest]
    if words[:2] == ["git", "--no-pager"]:
        words = ["git", *words[2:]]
    if program == "find":
        return {READS} if _finds(rest, here) else set()
    if (found := _row(tables.READS, words)) is not None:
        row, given = found
        known = words[0] != "git" or (_git_words(given) and here.is_top_of_repository())
        if not known or _hides_operands(given):
            return set()
        operands = _operands(row, given, here, git=words[0] == "git")
        if operands == 0 and words[0] in tables.FILTERS and not _recurses(given):
            return {""}  # of a pipe, which is no file
        if operands == 0 and row.contents and not here.is_covered(".", contents=True):
            return set()
        return set() if operands is None else {READS}
    return _builds(words, here)


def _builds(words: Sequence[str], here: Places) -> set[str]:
    for runner in tables.BUILD_RUNNERS:
        if tuple(words[: len(runner)]) == runner and len(words) > len(runner):
            words = words[len(runner) :]
            if runner == ("npx",) and not here.has_program(words[0]):
                return set()  # it would be fetched
    words = [_OWN_PLACES.sub("", words[0]), *words[1:]]
    if _PYTHON.fullmatch(words[0]):
        words[0] = "python"
    if (found := _row(tables.BUILDS, words)) is not None:
        return set() if _operands(*found, here) is None else {BUILDS}
    name = " ".join(words[:2])
    changes = words[0] in tables.CHANGES or name in tables.CHANGES
    operands = [word for word in words[1:] if not word.startswith("-")]
    leads_out = any(word.startswith(("/", "~")) or ".." in word for word in operands)
    return {CHANGES} if changes and not leads_out else set()


def _row(rows: dict[str, Row], words: Sequence[str]) -> tuple[Row, Sequence[str]] | None:
    """Return the row of a command's longest known name, and the words after it."""
    for length in range(min(_MOST_WORDS_OF_A_NAME, len(words)), 0, -1):
        if (row := rows.get(" ".join(words[:length]))) is not None:
            return row, words[length:]
    return None


def _hides_operands(words: Sequence[str]) -> bool:
    """Return whether a file or a pattern, after ``--``, looks like an option."""
    return "--" in words and any(word.startswith("-") for word in words[words.index("--") + 1 :])


def _recurses(words: Sequence[str]) -> bool:
    return any(re.fullmatch(r"-\w*r\w*", word) for word in words)


def _operands(row: Row, words: Sequence[str], here: Places, *, git: bool = False) -> int | None:
    """Count a program's files, None if options or operands are not what its row says."""
    first, operands = list(row.first), 0
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--":
            continue
        if word.startswith("-") and word != "-":
            if re.fullmatch(row.options, word):
                continue
            takes, is_place = re.fullmatch(row.values, name), re.fullmatch(row.places, name)
            if not (takes or is_place or re.fullmatch(row.values, word)):
                return None
            # the value of some options may be left out: then the next word is one of its own
            value = value if equals else re.sub(r"^-(?!\d+$).*", "", next(rest, ""))
            if not value or (is_place and not here.is_covered(value)):
                return None
        elif first:
            if not re.fullmatch(first.pop(0), word, re.DOTALL):
                return None
        elif not row.paths:
            return None
        else:
            operands += 1
            path = re.sub(rf"{row.behind}\Z", "", word)
            if not git and not here.is_covered(path, contents=row.contents, follows=row.follows):
                return None
    return operands


def _git_words(words: Sequence[str]) -> bool:
    """Return whether what git is given can only name what is in the repository."""
    return not any(
        word.startswith(("/", ":", "~")) or re.search(r"(?:^|[/:])\.\.(?:/|$)", word)
        for word in words
        if not word.startswith("-")
    )


def _finds(words: Sequence[str], here: Places) -> bool:
    rest = list(words)
    while rest and not rest[0].startswith(("-", "!")):
        if not here.is_covered(rest.pop(0)):
            return False
    given = iter(rest)
    for word in given:
        if re.fullmatch(tables.FIND_VALUES, word):
            if next(given, None) is None:
                return False
            continue
        if not re.fullmatch(tables.FIND_OPTIONS, word):
            return False
    return True
