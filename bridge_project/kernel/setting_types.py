"""Define the types of settings; each check raises ValueError with its reason."""

import ipaddress
import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from bridge_project.kernel.limits import MIN_TOKEN_CHARS

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def _split(separator: str) -> BeforeValidator:
    def split(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return [part.strip() for part in value.split(separator) if part.strip()]

    return BeforeValidator(split)


def make_absolute(value: Path) -> Path:
    return Path(os.path.abspath(value.expanduser()))


def _check_token(value: str) -> str:
    if value and len(value) < MIN_TOKEN_CHARS:
        raise ValueError(f"must have at least {MIN_TOKEN_CHARS} characters")
    if not value.isascii() or any(c.isspace() or not c.isprintable() for c in value):
        raise ValueError("must be printable ASCII without white space")
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
    parts = urlsplit(value)
    if value and (not parts.scheme or not parts.hostname):
        raise ValueError("must be a URL such as https://bridge.example")
    return value.rstrip("/")


def _check_origins(value: list[str]) -> list[str]:
    for origin in value:
        parts = urlsplit(origin)
        if not parts.scheme or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError("must hold origins such as https://app.example")
    return [origin.rstrip("/") for origin in value]


def _check_names(value: list[str]) -> list[str]:
    for name in value:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9A-Fa-f:.]+", name):
            raise ValueError("must hold names of hosts such as push.example, without https://")
    return value


def _begins_with(message: str, *schemes: str) -> AfterValidator:
    def check(value: str) -> str:
        if value and urlsplit(value).scheme not in schemes:
            raise ValueError(f"must begin with {message}")
        return value

    return AfterValidator(check)


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
        if name in found or name in ("demo", "claude-code", "primary-agent"):
            raise ValueError(f"names {name} twice, or a name that the bridge has for itself")
        found[name] = command
    return found


def one_line(error: ValidationError) -> str:
    """Return what is wrong with the first wrong setting, without its value."""
    first = error.errors(include_input=False, include_url=False)[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{str(first['loc'][0]).upper()}: {message}" if first["loc"] else message


Secret = Field(json_schema_extra={"secret": True})  # may be given by `X_FILE`
CommaList = Annotated[list[str], _split(",")]
HostNames = Annotated[list[str], _split(","), AfterValidator(_check_names)]
NetworkList = Annotated[list[IPNetwork], _split(",")]
RootList = Annotated[list[str], _split(":"), AfterValidator(_find_roots)]
OriginList = Annotated[list[str], _split(","), AfterValidator(_check_origins)]
AbsolutePath = Annotated[Path, AfterValidator(make_absolute)]
TokenText = Annotated[str, Secret, AfterValidator(_check_token)]
SemVerText = Annotated[str, Field(pattern=r"^\d{1,6}\.\d{1,6}\.\d{1,6}$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1, le=1000)]
Positive = Annotated[int, Field(ge=1)]
DatabaseUrl = Annotated[
    str, Secret, _begins_with("postgres:// or sqlite://", "postgres", "postgresql", "sqlite")
]
RedisUrl = Annotated[
    str, Secret, _begins_with("redis://, rediss:// or unix://", "redis", "rediss", "unix")
]
Host = Annotated[str, AfterValidator(_check_host)]
PublicUrl = Annotated[str, AfterValidator(_check_url)]
AgentLines = Annotated[dict[str, list[str]], BeforeValidator(_read_agents), _split(";")]
