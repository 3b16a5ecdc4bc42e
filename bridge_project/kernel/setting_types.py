"""Define the types of settings; each check raises ValueError with its reason."""

import ipaddress
import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from bridge_project.kernel import notify_urls
from bridge_project.kernel.limits import MIN_TOKEN_CHARS

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def _split(separator: str) -> BeforeValidator:
    def split(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return [part.strip() for part in value.split(separator) if part.strip()]

    return BeforeValidator(split)


def make_absolute(value: Path) -> Path:
    return Path(os.path.abspath(os.path.expanduser(value)))


def _check_home(value: Path) -> Path:
    if os.path.expanduser(value).startswith("~"):
        raise ValueError("must not begin with ~ and a name that no user has")
    return value


def _must(message: str, pattern: str) -> AfterValidator:
    """Refuse a text, unless it is empty or all of it matches the pattern."""

    def check(value: str) -> str:
        if value and not re.fullmatch(pattern, value, re.IGNORECASE | re.ASCII):
            raise ValueError(f"must {message}")
        return value

    return AfterValidator(check)


def _check_parts(value: str) -> str:
    """Refuse a URL that cannot be parsed, without showing it: it may hold a password."""
    try:
        _ = urlsplit(value).port
    except ValueError:
        raise ValueError("must be a URL with a valid host and port; a [ is written %5B") from None
    return value


def _check_host(value: str) -> str:
    if value not in ("auto", "localhost"):
        try:
            ipaddress.ip_address(value)
        except ValueError:
            raise ValueError("must be `auto`, `localhost` or an IP address") from None
    return value


def _find_roots(value: list[str]) -> list[str]:
    roots = [os.path.realpath(os.path.expanduser(part)) for part in value]
    for root in roots:
        if not os.path.isdir(root):
            raise ValueError(f"is not a directory: {root}")
    return roots


def _check_url(value: str) -> str:
    """Refuse all but scheme, host and path; remove the slash at the end."""
    parts = urlsplit(value)
    if value and not parts.hostname:  # ValueError for brackets without an address
        raise ValueError("must have a host, as in https://bridge.example")
    if {"?", "#"} & set(value) or "@" in parts.netloc:
        raise ValueError("must have no user name, query or fragment")
    return value.rstrip("/")


OWN_AGENTS = ("claude-code", "codex", "demo")
# The agents that are looked for, in the order in which `primary-agent` takes them (D75).
FOUND_AGENTS = (
    *("claude-code", "codex", "opencode", "gemini", "qwen", "copilot", "kimi", "droid", "vibe"),
    "claude-agent-acp",
)


def _check_found_agents(value: list[str]) -> list[str]:
    if value != ["off"] and (unknown := set(value) - set(FOUND_AGENTS)):
        known = ", ".join(FOUND_AGENTS)
        raise ValueError(f"must be `off` or names of {known}, not {min(unknown)[:64]}")
    return value


def _read_agents(parts: Any) -> Any:
    """Read `name=command line` into a dict of command lines, in their order."""
    if not isinstance(parts, list):
        return parts
    found: dict[str, list[str]] = {}
    for part in parts:
        name, _, line = (piece.strip() for piece in part.partition("="))
        try:
            command = shlex.split(line)
        except ValueError:
            raise ValueError("must hold command lines with balanced quotes") from None
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or not command:
            raise ValueError("must hold name=command line, with `;` between them")
        if "codex-acp" in line:
            raise ValueError(
                f"{name} names codex-acp, which the bridge runs no more: install `codex` "
                "(npm install -g @openai/codex), which is found, and remove this line"
            )
        if name in found or name in (*OWN_AGENTS, "primary-agent"):
            raise ValueError(f"names {name} twice, or a name that the bridge has for itself")
        found[name] = command
    return found


T = TypeVar("T")
Commas = Annotated[list[T], _split(",")]  # of values with commas between them
Secret = Field(json_schema_extra={"secret": True})  # may be given by `X_FILE`
HostName = Annotated[
    str,
    _must(
        "hold names of hosts such as push.example, without https://",
        r"[a-z0-9][a-z0-9.-]*|[0-9a-f:.]+",
    ),
]
_DOMAIN = r"(\*?\.)?[a-z0-9][a-z0-9.-]*"
Domain = Annotated[str, _must("hold domains such as tunnel.example, without https://", _DOMAIN)]
RootList = Annotated[list[str], _split(":"), AfterValidator(_find_roots)]
_SCHEME = r"[a-z][a-z0-9+.-]*://"
Origin = Annotated[
    str,
    _must("hold origins such as https://app.example", _SCHEME + "[^/:][^/]*/?"),
    AfterValidator(_check_url),
]
AbsolutePath = Annotated[Path, AfterValidator(_check_home), AfterValidator(make_absolute)]
TokenText = Annotated[
    str,
    Secret,
    _must("be printable ASCII without white space", "[!-~]*"),
    _must(f"have at least {MIN_TOKEN_CHARS} characters", f".{{{MIN_TOKEN_CHARS},}}"),
]
SemVerText = Annotated[str, Field(pattern=r"^\d{1,6}\.\d{1,6}\.\d{1,6}$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1, le=1000)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[int, Field(ge=1, le=10**9)]
DatabaseUrl = Annotated[
    str,
    Secret,
    _must("begin with postgres:// or sqlite://", "(postgres|postgresql|sqlite)://.*"),
    AfterValidator(_check_parts),
]
RedisUrl = Annotated[
    str,
    Secret,
    _must("begin with redis://, rediss:// or unix://", "(redis|rediss|unix)://.*"),
    AfterValidator(_check_parts),
]
NotifyUrls = Annotated[str, Secret, AfterValidator(notify_urls.check)]
Host = Annotated[str, AfterValidator(_check_host)]
PublicUrl = Annotated[
    str,
    _must("be a URL such as https://bridge.example", _SCHEME + "[^/:].*"),
    AfterValidator(_check_url),
]
FoundAgents = Annotated[Commas[str], AfterValidator(_check_found_agents)]
AgentLines = Annotated[dict[str, list[str]], BeforeValidator(_read_agents), _split(";")]
