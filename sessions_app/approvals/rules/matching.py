"""Find out which rules may be offered for a call, and which cover it (D68)."""

import hashlib
import json
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from bridge_project.protocol.resources import RuleOffer
from bridge_project.protocol.risk import PATH_MAX_CHARS, PATH_NAMES, RiskLevel, paths_in
from sessions_app.approvals.rules import commands, tables
from sessions_app.approvals.rules.places import Place
from sessions_app.approvals.tool_call import DIALOGS, DIRECTORIES, PLAN, Call

EXACT, READS, BUILDS, EDITS = "exact", commands.READS, commands.BUILDS, "edits"
# kind → the worst risk of what it covers
_WORST: Final[dict[str, RiskLevel]] = {
    EXACT: "high",
    READS: "low",
    BUILDS: "medium",
    EDITS: "medium",
}
# kind → what the card says: in words, what is covered, and what is not
_WORDS: Final[dict[str, tuple[str, str, str]]] = {
    EXACT: (
        "exactly: {same}",
        "the same tool with the same parameters, in the same directory",
        "anything else; it runs whatever the files say then",
    ),
    READS: (
        "what only reads",
        "commands and tools that read files below {directory}",
        "secrets such as .env, links that lead out, the network",
    ),
    BUILDS: (
        "builds and tests",
        "make, npm test, pytest and the like, below {directory}; they run what the files say then",
        "installing, deploying, other scripts and options",
    ),
    EDITS: (
        "edits of files",
        "new and changed files below {directory}",
        "secrets, hidden files, links, what builds and tools run (package.json, Makefile, …)",
    ),
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """Hold which rules cover a call: of ``digest``, or one of each of ``kinds``.

    ``digest``: "" when no rule covers just this call; empty ``kinds``: none of a kind does.
    """

    digest: str = ""
    kinds: frozenset[str] = frozenset()
    offers: tuple[RuleOffer, ...] = ()


LABEL_CHARS: Final = 60  # of the call that an exact rule names
MOST_PATHS: Final = 200  # of a call that a rule covers: each is looked up
ASKS: Final = Judgement()  # whatever rules there are


def judge(call: Call, directory: Path) -> Judgement:
    """Judge a call of a session that works in ``directory``.

    It looks at the files as they are now, so it may take its time. A call whose own directory is
    not known, or not below the session's, is covered by no rule.
    """
    top, named = directory.resolve(), [call.params.get(name) for name in DIRECTORIES]
    named = [one for one in named if one not in (None, "")]
    if not call.directory or len(named) > 1:
        return ASKS
    place = Place(top, Path(call.directory).resolve())
    if not place.here.is_relative_to(top):
        return ASKS
    for one in named:
        to = place.moved(one) if isinstance(one, str) else None
        if to is None and one != call.directory:
            return ASKS
        place = to or place
    if call.tool == PLAN:  # no rule covers it; who approves a plan may let it edit (D69)
        return Judgement(offers=(_offer(EDITS, call, top),))
    if call.tool in DIALOGS:
        return ASKS
    exact, kinds = _judge(call, place)
    exact = exact and _is_within(call, {EXACT})
    kinds = kinds if _is_within(call, kinds) else set()
    offered = [*([EXACT] if exact else []), *(kinds if len(kinds) == 1 else [])]
    digest = _digest(call, place.here) if exact else ""
    offers = tuple(_offer(kind, call, top) for kind in offered)
    return Judgement(digest, frozenset(kinds), offers)


def _is_within(call: Call, kinds: Collection[str]) -> bool:
    """Return whether a call is rated no worse than the worst that these kinds cover."""
    levels = get_args(RiskLevel)
    worst = max((levels.index(_WORST[kind]) for kind in kinds), default=-1)
    return levels.index(call.risk_level) <= worst


def _judge(call: Call, place: Place) -> tuple[bool, set[str]]:
    """Return whether the same call may be covered, and by which kinds of rules."""
    params = call.params
    if call.tool == "Bash":
        found = commands.understand(_command(params), place)
        if found is None:
            return False, set()
        plain = params.keys() <= tables.COMMAND_PARAMETERS and _is_plain_time(params)
        return True, found if plain and commands.CHANGES not in found else set()
    paths = list(paths_in(params)) if _names_paths(params) else []
    if len(paths) > MOST_PATHS:
        return False, set()
    if call.tool in tables.READ_TOOLS:
        known = bool(paths) and params.keys() <= tables.READ_PARAMETERS
        return False, {READS} if known and all(map(place.is_covered, paths)) else set()
    if call.tool in tables.EDIT_TOOLS:
        known = bool(paths) and params.keys() <= tables.EDIT_PARAMETERS
        known = known and _knows_parts(params)
        return False, {EDITS} if known and all(map(place.is_editable, paths)) else set()
    return call.risk_level in ("low", "medium"), set()


def _command(params: Mapping[str, Any]) -> str:
    command = params.get("command")
    return command if isinstance(command, str) else ""


def _is_plain_time(params: Mapping[str, Any]) -> bool:
    return isinstance(params.get("timeout", 0), int | float | None)


def _names_paths(params: Mapping[str, Any]) -> bool:
    """Return whether all parameters that are named like paths are looked up."""
    named = [params[name] for name in PATH_NAMES if name in params]
    return all(isinstance(one, str) and 0 < len(one) <= PATH_MAX_CHARS for one in named)


def _knows_parts(params: Mapping[str, Any]) -> bool:
    """Return whether a call lists its edits and further changes in known forms.

    Each further change names a path, and may have edits of its own.
    """
    edits, more = params.get("edits", []), params.get("more", [])
    return (
        _are_of(edits, tables.EDIT_PARAMETERS - {"edits", "more"})
        and _are_of(more, tables.EDIT_PARAMETERS - {"more"})
        and all(_names_paths(one) and any(paths_in(one)) and _knows_parts(one) for one in more)
    )


def _are_of(parts: Any, names: Set[str]) -> bool:
    """Return whether parts are a list of mappings with no other names than these."""
    return isinstance(parts, list) and all(
        isinstance(one, Mapping) and names >= one.keys() for one in parts
    )


def _digest(call: Call, here: Path) -> str:
    same = [call.tool, call.params, str(here)]
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def _offer(kind: str, call: Call, top: Path) -> RuleOffer:
    same = " ".join((_command(call.params) or call.tool).split())
    if len(same) > LABEL_CHARS:
        same = f"{same[: LABEL_CHARS - 1]}…"
    given = {"same": same, "directory": top.name or top}
    label, covers, excluded = (words.format_map(given) for words in _WORDS[kind])
    return RuleOffer(id=kind, label=label, covers=covers, **{"not": excluded})
