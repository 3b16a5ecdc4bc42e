"""Rate how risky a tool call is, by its name and parameters (SPEC risk_level).

Standard library only: the forwarder of another machine carries this module in its one file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Any, Literal

PATH_MAX_CHARS = 4096  # as Linux has it; what is longer names no file
_DEPTH = 3  # of parameters in which paths are looked for
# the names that agents give a path
PATH_NAMES = (
    *("file_path", "filePath", "filepath", "path", "absolute_path", "notebook_path"),
    "paths",  # as the ACP drivers call several
)

RiskLevel = Literal["low", "medium", "high", "critical"]

_LOW = (
    "Read Glob Grep LS NotebookRead TodoWrite ToolSearch AskUserQuestion ExitPlanMode BashOutput "
    "TaskOutput"
)
_HIGH = "Bash PowerShell Monitor Delete Move"
RISK_OF_TOOL: dict[str, RiskLevel] = {
    **dict.fromkeys(_LOW.split(), "low"),
    **dict.fromkeys(_HIGH.split(), "high"),
}
# Shell commands are critical when they cannot be undone, change rights, or run code that nobody has
# read. Idea → how it is recognized from the beginning of a word on, anywhere in the command as it
# was written, in upper case or lower. To add an idea, add a row, and what has it to
# tests/fixtures/risks.toml.
_CRITICAL_IDEAS: dict[str, str] = {
    # -- what cannot be undone --
    "Removes recursively, or without asking.": r"""
        rm\b["']?\s+(?:-\S+\s+){0,9}(?:-[a-zA-Z]*[rRf]|--recursive|--force)""",
    "Removes or overwrites what another command lists.": r"""
        (?:xargs|find)\b[^;|\n]{0,300}\s(?:\S{0,100}/)?(?:rm|shred)\b""",
    "Lets find delete what it finds.": r"find\b[^;|\n]{0,300}\s-delete\b",
    "Overwrites or cuts a file.": r"(?:shred|truncate)\s+-*\w",
    "Removes all scheduled commands.": r"crontab\s+-r",
    "Removes files while it synchronizes.": r"rsync\b[^;&|\n]{0,300}\s--(?:del|remove-source)",
    "Writes a file system, or wipes one.": r"(?:mkfs(?:\.\w+)?|wipefs)\b",
    "Writes to a device with dd.": r"dd\b[^;|\n]{0,200}\bof=/dev/",
    "Drops a database, or a part of it.": r"drop(?:db\b|\s+(?:table|database|schema)\b)",
    # -- rights, and the machine --
    "Becomes another user.": r"(?:sudo|doas|pkexec)\b|(?<!-)su\s+-",
    "Ends the machine's work.": r"(?:shutdown|reboot)\b",
    "Changes rights or owners of a whole directory.": r"""
        (?:chmod|chown)\s+(?:-\S+\s+){0,5}(?:-R|--recursive)\b""",
    # -- code that nobody has read --
    "Runs what it downloads, through a pipe.": r"""
        (?:curl|wget)\b[^|;\n]{0,300}\|\s*(?:sudo\s+)?(?:\S{0,100}/)?(?:env\s+)?
        (?:ba|z|da|k)?(?:sh|python[\d.]*|perl|node|ruby)\b""",
    "Runs what it downloads, through a substitution.": r"""
        (?:eval|sh|bash|zsh|source)\b[^;\n]{0,40}[$<]\(\s*(?:curl|wget)\b""",
    # -- git --
    "Pushes by force, or deletes at the remote.": r"""
        git\s+(?:\S+\s+){0,9}?push\b[^;&|\n]{0,200}
        \s(?:--force\S*|-[a-eg-z]*f[a-z]*|--mirror|--delete|\+\S+|:\S+)(?:\s|$)""",
    "Throws changes away by a reset.": r"git\s+reset\s+(?:\S+\s+){0,5}?--hard",
    "Removes untracked files.": r"git\s+clean\s+(?:\S+\s+){0,5}?-[a-zA-Z]*f",
    "Throws away stashed changes.": r"""
        git\s+(?:\S+\s+){0,5}?stash\s+(?:drop|clear)\b""",
    "Deletes a branch, merged or not.": r"git\s+(?:\S+\s+){0,5}?branch\s+(?-i:-D)\b",
    "Restores files over changes.": r"git\s+(?:\S+\s+){0,5}?restore\s+(?!--staged)",
    "Checks out over changes: by force, or paths.": r"""
        git\s+(?:\S+\s+){0,5}?(?:checkout|switch)(?:[^\S\n]|\\\n)+
        (?:[^;&|\s]+(?:[^\S\n]|\\\n)+){0,3}?
        (?:--\s|-\w*f\b|--(?:force|disc)|['"]?\./?(?![\w./-]))""",
    "Deletes a repository on GitHub.": r"gh\s+repo\s+delete\b",
    # -- what runs elsewhere --
    "Destroys infrastructure.": r"terraform\s+destroy\b|kubectl\s+delete\b",
    "Removes data of containers.": r"docker\s+(?:volume|system)\s+(?:rm|prune)\b",
    "Removes containers with their volumes.": r"""
        docker[-\s]compose\b[^;&|\n]{0,200}\sdown\b[^;&|\n]{0,100}\s(?:-\w*v\b|--vol)""",
}
# the same, where no word begins
_CRITICAL_SIGNS: dict[str, str] = {
    "Redirects output to a disk.": r">\s*/dev/(?:sd|nvme|vd|hd|mmcblk|disk)",
    "Makes processes without end (a fork bomb).": r":\s*\(\)\s*\{",
}
# Idea → a simple command from its beginning on: words separated by one space, spaces inside words
# replaced
_READING_IDEAS: dict[str, str] = {
    "Programs that only print, whatever their options.": r"""
        (?:ls|cat|head|tail|wc|[ef]?grep|stat|du|df|which|type|whereis|basename|dirname|realpath
        |readlink|cut|tr|nl|diff|cmp|comm|jq|whoami|id|uname|column|md5sum|sha256sum|tac|rev|pwd
        |ps)(?:\ |$)""",
    "xargs with one of them.": r"xargs\ (?:-[0r]\ )*(?:[ef]?grep|wc|ls|cat|head|tail)(?:\ |$)",
    # what these are given by a variable or a pattern could be an option that writes
    "find without actions that run or write.": r"""
        find\ (?![*?\[])(?!.*\ (?:-(?:exec|ok|fprint|fls)|\$))""",
    "rg without options that run programs.": r"rg\ (?!.*(?:--pre|--host|\ \$))",
    "Programs that write only by an option.": r"""
        (?:sort|tree|file)(?!.*\ (?:-\w*[oC]|--|[$*?\[]))(?:\ |$)""",
    "sed that prints lines by their numbers.": r"sed\ -n\ [\d,$;p]+(?:\ [^-$*?\[]\S*)*$",
    "The date, not set.": r"date(?:\ \+\S*)?$",
    "uniq without an output file.": r"uniq(?:\ -[cdu]+)?$",
    "git's commands that show.": r"""
        git\ (?:--no-pager\ |-C\ \S+\ )*(?!.*\ (?:-O|--open|--out|--ext|--textc|\$))
        (?:(?:status|log|diff|show|blame|rev-parse|ls-files|ls-tree|describe|shortlog|grep
          |cat-file)(?:\ |$)
        |branch(?:\ (?:-[avr]+|--all|--list|--show-current))*$
        |tag(?:\ (?:-l|--list)(?:\ [^-]\S*)*)?$
        |remote(?:\ -v)?$|stash\ (?:list|show)(?:\ |$))""",
    "What package managers show.": r"""
        (?:npm\ (?:ls|view|outdated)|pip\ (?:list|show|freeze)|cargo\ (?:tree|metadata)
        |go\ (?:version|doc))(?:\ |$)""",
    "What containers and clusters show.": r"""
        (?:docker\ (?:ps|images|logs|inspect)|kubectl\ (?:get|describe|logs))(?:\ |$)""",
    "Any program's version or help.": r"[\w.+-]+\ (?:--version|--help)$",
}
# the same of commands that only add to the directory in which they run: no place elsewhere, and
# nothing that a variable or a pattern could make one
_ADDING = r"(?:touch|mkdir|git\ add)(?:\ (?!\S*\.\.(?:/|\ |$)|[/~])[^\s$*?\[]+)+$"
# the same of commands that build or test, behind what holds for all of them
_BUILDING_HEAD = r"""
    (?!.*\ (?:--(?:fix|write|in-place)\b   # not those that change sources, or what others have
      |(?:un)?install|(?:un)?deploy|publish|release|upload|push|(?:dist|very)?clean|migrate|reset
      |destroy))
    (?:\.?venv/bin/|node_modules/\.bin/)?
    (?:(?:npx|uv\ run|poetry\ run|bundle\ exec|python[\d.]*\ -m)\ )?"""
_BUILDING_IDEAS: dict[str, str] = {
    "Builds.": r"(?:make|cmake|ninja|tsc|gradle|mvn|\./gradlew|\./mvnw)(?:\ |$)",
    "Runs tests.": r"(?:ctest|pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit)(?:\ |$)",
    "Checks sources.": r"(?:mypy|ruff\ check|flake8|pylint|pyright|eslint)(?:\ |$)",
    "Checks their form, without a change.": r"(?:black|prettier|ruff\ format)\ --check(?:\ |$)",
    "Rust.": r"cargo\ (?:build|check|test|clippy|bench|doc|nextest)",
    "Go, and Bazel.": r"(?:go|bazel)\ (?:build|test|vet)",
    "Elixir.": r"mix\ (?:compile|test)",
    ".NET, and Swift.": r"(?:dotnet|swift)\ (?:build|test)",
    "Deno.": r"deno\ (?:test|check|lint)",
    "A script of the project's package.json.": r"""
        (?:npm|pnpm|yarn|bun)\ (?:test|t|run|run-script|build|lint)(?:\ |$)""",
}


def _any_of(ideas: Mapping[str, str]) -> str:
    return f"(?:{'|'.join(ideas.values())})"


# each one expression, with its common beginning in front: that is faster than trying row by row
CRITICAL_COMMAND = re.compile(
    rf"\b{_any_of(_CRITICAL_IDEAS)}|{_any_of(_CRITICAL_SIGNS)}", re.VERBOSE | re.IGNORECASE
)
READING_COMMAND = re.compile(_any_of(_READING_IDEAS), re.VERBOSE)
BUILDING_COMMAND = re.compile(_BUILDING_HEAD + _any_of(_BUILDING_IDEAS), re.VERBOSE)
ADDING_COMMAND = re.compile(_ADDING, re.VERBOSE)
# These do not change what a command line does: beside others they do not count, alone they only
# read. A shell also runs commands in the subscript of a variable that some of them name.
SILENT_COMMAND = re.compile(
    r"(?:cd|echo|true|false|:|sleep|for|done|fi)(?: |$)"
    r"|(?:printf|test|\[|read)(?: (?!.*\[.*[$`])|$)"
)
# words that name what may be secret, or may do so once the shell has read them
SECRET_PATH = re.compile(
    r"""(?:^|[/:=])\.(?:ssh|gnupg|aws|kube|netrc|npmrc|pypirc|pgpass|env(?:rc)?|docker/config)\b
    |/etc/g?shadow|/proc/|\bid_(?:rsa|ed25519)|credentials|(?:^|[/:])secrets?[./]|_history$
    |\w\.(?:pem|key|p12|pfx|tfstate)$
    |\$\{?(?:\w*_key|(?:\w*_)?(?:token|secret|pass(?:word|wd)?))(?!\w)
    |(?:^|/)\.[a-z][^/\s]*[*?]""",  # a pattern that may name one of these
    re.VERBOSE | re.IGNORECASE,
)
COMMAND_READABLE_CHARS = 100_000  # a longer one has been read by nobody
SENSITIVE_PATH = re.compile(
    r"^/(?:etc|usr|boot|bin|sbin|lib)/|^(?:\.\./)+(?:etc|usr|boot|sbin)/"
    r"|(?:^|/)\.(?:(?:ssh|gnupg|aws|kube|git/hooks)/"
    r"|(?:bashrc|zshrc|profile|bash_profile)$|env(?:\.|$))"
)


def risk_of(tool: str, params: Mapping[str, Any]) -> RiskLevel:
    """Rate a tool call.

    ``low``: only reads; ``medium``: builds or tests, adds or writes a file, asks the network, or is
    unknown; ``high``: a command that changes something or is not understood, or a sensitive path;
    ``critical``: a CRITICAL_COMMAND.
    """
    risk: RiskLevel = RISK_OF_TOOL.get(tool, "medium")
    if risk == "high":
        command = params.get("command", "")
        if isinstance(command, list):  # as some agents give it, a word each
            command = shlex.join(map(str, command))
        command = str(command)
        unread = len(command) > COMMAND_READABLE_CHARS
        if unread or CRITICAL_COMMAND.search(command):
            return "critical"
        return _risk_of_command(command) if tool == "Bash" else "high"
    # also where it is written in a roundabout way
    paths = {form for one in paths_in(params) for form in (one, re.sub("^//", "/", normpath(one)))}
    sensitive = risk == "medium" and any(map(SENSITIVE_PATH.search, paths))
    return "high" if sensitive else risk


def paths_in(value: Any, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the values of a call's parameters that are named like paths."""
    if not depth or not isinstance(value, Mapping):
        return
    for name, given in value.items():
        for each in given if isinstance(given, list) else [given]:
            if not isinstance(each, str):
                yield from paths_in(each, depth - 1)
            elif name in PATH_NAMES and 0 < len(each) <= PATH_MAX_CHARS:
                yield each


# -- what a shell command does ---------------------------------------------------------------------

# Plain words: no substitution, braces, here-document, subshell or background job; redirection only
# to /dev/null, from a file, or of one output to another.
_VARIABLE = r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|[?#0-9@*](?!\w)|(?=[\s\"]|$))"
_TOKEN = re.compile(
    rf"""(?P<space>[ \t]+|(?<=[ \t])\\\n|\#[^\n]*)
    |(?P<end>\|\||&&|\|&?|;(?!;)|\n)
    |(?P<redirection>(?:[012]|&)?>>?[ \t]*/dev/null(?![^\s;|&])
      |[012]?>&[012](?![^\s;|&])|<(?![<(&>]))
    |(?P<word>(?:'[^']*'|"(?:[^"\\$`]|\\.|{_VARIABLE})*"|\\[^\n]|{_VARIABLE}|[^\s'"\\$`;&|<>(){{}}])+)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)
_KEYWORD = re.compile(
    r"\A(?:(?:(?:if|then|else|elif|while|until|do|!|time|timeout \d+s?) )+|/(?:usr/)?bin/)"
)
_SET_FOR_IT = re.compile(r"(?:(?:CI|LANG|LC_ALL|TZ|NODE_ENV|NO_COLOR|FORCE_COLOR)=\S* )+")
_SHELL = re.compile(r"(?:/bin/)?(?:ba|z)?sh$")
_COMMAND_PLAIN_CHARS = 10_000


def _risk_of_command(command: str, depth: int = 0) -> RiskLevel:
    """Rate a shell command by its gravest part; ``high`` if it is not understood."""
    parts = list(_parts(command)) if len(command) <= _COMMAND_PLAIN_CHARS else [None]
    rated: set[RiskLevel] = set()
    moves = adds = False
    for words in parts:
        if words is None or any(SECRET_PATH.search(word) for word in words):
            return "high"
        if len(words) == 3 and _SHELL.match(words[0]) and words[1] in ("-c", "-lc") and not depth:
            rated.add(_risk_of_command(words[2], depth + 1))
            continue
        simple = " ".join(re.sub(r"\s", "\x1f", word) for word in words)
        simple = _SET_FOR_IT.sub("", _KEYWORD.sub("", simple, count=1), count=1)
        if READING_COMMAND.match(simple):
            rated.add("low")
        elif BUILDING_COMMAND.match(simple):
            rated.add("medium")
        elif SILENT_COMMAND.match(simple):
            rated.add("low")
            moves |= words[0] == "cd"
        elif ADDING_COMMAND.match(simple) and not any(map(SENSITIVE_PATH.search, words)):
            rated.add("medium")
            adds = True
        else:
            return "high"
    if moves and adds:  # somewhere else
        return "high"
    return next((level for level in ("high", "medium", "low") if level in rated), "high")


def _parts(command: str) -> Iterator[list[str] | None]:
    """Yield the words of each simple command; None for one that is not understood."""
    at, words = 0, []
    while at < len(command):
        token = _TOKEN.match(command, at)
        if token is None:
            yield None
            return
        at = token.end()
        if token.lastgroup == "word":
            words.append(_QUOTED.sub(lambda m: m[1] or m[2] or m[3] or "", token[0]))
        elif token.lastgroup == "end" and words:
            yield words
            words = []
    if words:
        yield words
