"""The only reader of the environment: every setting of D44, typed, checked and described once.

The table in ``docs/settings.md`` and the page ``/docs/settings`` are generated from the fields
below, so a setting that is not described here does not exist. Values come from the environment
first, then from ``.env`` in the data directory.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import shlex
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from bridge_project.kernel import limits
from bridge_project.kernel.limits import MIN_TOKEN_CHARS

PROJECT_DIR = Path(__file__).resolve().parents[2]

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class ConfError(ValueError):
    """A setting is wrong; the text is one line that names it and never repeats a secret."""


def _split(separator: str) -> BeforeValidator:
    def split(value: Any) -> Any:
        return (
            [part.strip() for part in value.split(separator) if part.strip()]
            if isinstance(value, str)
            else value
        )

    return BeforeValidator(split)


CommaList = Annotated[list[str], NoDecode, _split(",")]
PathList = Annotated[list[str], NoDecode, _split(":")]
NetworkList = Annotated[list[IPNetwork], NoDecode, _split(",")]
SemVerText = Annotated[str, Field(pattern=r"^\d{1,6}\.\d{1,6}\.\d{1,6}$")]
Port = Annotated[int, Field(ge=1, le=65535)]


class InCapitals(PydanticBaseSettingsSource):
    """The variables of another source, each under the name of its setting in capitals and under no
    other.
    """

    def __init__(
        self, settings_cls: type[BaseSettings], source: PydanticBaseSettingsSource
    ) -> None:
        super().__init__(settings_cls)
        assert isinstance(source, EnvSettingsSource)
        self.variables = source.env_vars

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self.variables.get(field_name.upper()), field_name, False

    def __call__(self) -> dict[str, Any]:
        found = {
            name: self.get_field_value(field, name)[0]
            for name, field in self.settings_cls.model_fields.items()
        }
        return {name: value for name, value in found.items() if value is not None}


class Conf(BaseSettings):
    """All settings. Field names are the environment variables' names in lower case."""

    model_config = SettingsConfigDict(
        extra="ignore",
        hide_input_in_errors=True,
        env_ignore_empty=True,
        case_sensitive=True,
        frozen=True,
    )

    _named_files: tuple[Path, ...] = PrivateAttr(())
    _unread: tuple[tuple[str, str], ...] = PrivateAttr(())

    bridge_data_dir: Path = Field(
        Path("var"),
        description="Where the bridge keeps its database, certificates, tokens and logs. Made with mode 0700.",
    )
    bridge_host: str = Field(
        "auto",
        description="Address to listen on. `auto`: every interface, but a connection that arrives on an address which is neither loopback nor private nor "
        "a mesh's is dropped before TLS. A public address is listened on only when it is named here, or `0.0.0.0` / `::` is.",
    )
    bridge_port: Port = Field(8443, description="The TLS port for HTTP and WebSocket.")
    bridge_plain_port: Port | None = Field(
        None,
        description="A plain HTTP listener on 127.0.0.1, only for a TLS-terminating proxy named in `BRIDGE_TRUSTED_PROXIES`.",
    )
    bridge_public_url: str = Field(
        "",
        description="The address clients use, when it is not the server's own (a proxy, a tunnel). Decides the connection mode. Must be https.",
    )
    bridge_hook_token: str = Field(
        "",
        description="The token that hook producers send. Made on the first start if absent.",
        json_schema_extra={"secret": True},
    )
    bridge_admin_token: str = Field(
        "",
        description="The token for `/admin/*`. Made on the first start if absent.",
        json_schema_extra={"secret": True},
    )
    bridge_allowed_roots: PathList = Field(
        default_factory=list,
        description="Directories whose files devices may see and where agents may work, `:` between them. Default: the directory the bridge was started in.",
    )
    bridge_hooks_config: Path | None = Field(
        None,
        description="The hook configuration file that `/admin/reload-hooks` validates and reports.",
    )
    bridge_trusted_proxies: NetworkList = Field(
        default_factory=list,
        description="Addresses or networks of TLS-terminating proxies, comma between them.",
    )
    bridge_allowed_origins: CommaList = Field(
        default_factory=list,
        description="Browser origins, besides the bridge's own, that may open a WebSocket. Comma between them.",
    )
    bridge_cors_allow_all: bool = Field(
        False, description="Answer CORS requests from every origin (development)."
    )
    bridge_tunnel_domains: CommaList = Field(
        default_factory=list,
        description="More domains that count as a secure tunnel (`secure_remote`). Comma between them.",
    )
    bridge_min_client_version: SemVerText = Field(
        "1.0.0", description="Older clients are refused with `VERSION_INCOMPATIBLE`."
    )
    bridge_max_client_version: SemVerText = Field(
        "1.999.999", description="Newer clients are refused with `VERSION_INCOMPATIBLE`."
    )
    bridge_max_sessions: int = Field(
        limits.MAX_SESSIONS,
        ge=1,
        le=1000,
        description="Bridge-run sessions that may be created or active at once.",
    )
    bridge_max_websockets: int = Field(
        limits.MAX_WEBSOCKET_CONNECTIONS,
        ge=1,
        le=1000,
        description="Authenticated WebSocket connections at once.",
    )
    bridge_max_message_mb: int = Field(
        limits.MAX_MESSAGE_SIZE_MB,
        ge=1,
        le=100,
        description="Largest HTTP body, WebSocket message and file, in MB (2**20 bytes).",
    )
    bridge_session_grace_seconds: int = Field(
        limits.SESSION_GRACE_SECONDS,
        ge=1,
        description="How long a bridge-run session outlives its last WebSocket.",
    )
    bridge_queue_max: int = Field(
        limits.QUEUE_MAX_MESSAGES,
        ge=1,
        description="Messages kept in the log for each session. The oldest go first, and devices that missed them are told.",
    )
    bridge_queue_ttl_seconds: int = Field(
        limits.QUEUE_TTL_SECONDS,
        ge=1,
        description="How long a message is kept in the log, in seconds.",
    )
    bridge_rate_limits: Literal["on", "off"] = Field(
        "on", description="`off` lifts every rate limit, for benchmarks and tests."
    )
    bridge_default_agent: str = Field(
        "", description="The agent that `primary-agent` and an empty agent name mean."
    )
    bridge_acp_agents: str = Field(
        "",
        description="Agents that speak the Agent Client Protocol: `name=command line`, `;` between them.",
    )
    bridge_acp_unasked: CommaList = Field(
        default_factory=list,
        description="Agents of `BRIDGE_ACP_AGENTS` that may run although they cannot be made to ask before they act, by the names given there. Comma between them.",
    )
    bridge_demo_shell: bool = Field(
        False, description="Let the `demo` agent run approved `Bash` calls for real."
    )
    bridge_tls_cert: Path | None = Field(
        None, description="A PEM certificate chain to use instead of the bridge's own."
    )
    bridge_tls_key: Path | None = Field(None, description="The private key of `BRIDGE_TLS_CERT`.")
    bridge_strict_protocol: bool = Field(
        False, description="Demand a UUID v4 as the `id` of every client message."
    )
    database_url: str = Field(
        "",
        description="`postgres://user:password@host/name`. Default: SQLite in the data directory.",
        json_schema_extra={"secret": True},
    )
    redis_url: str = Field(
        "",
        description="`redis://host:port/db`. Default: an in-memory channel layer and a local cache, enough for one process. "
        "Bridges that share a Redis server need a database number each.",
        json_schema_extra={"secret": True},
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (
            init_settings,
            InCapitals(settings_cls, env_settings),
            InCapitals(settings_cls, dotenv_settings),
        )

    @field_validator("bridge_data_dir", "bridge_hooks_config", "bridge_tls_cert", "bridge_tls_key")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return None if value is None else Path(os.path.abspath(value.expanduser()))

    @field_validator("bridge_hook_token", "bridge_admin_token")
    @classmethod
    def _long_enough(cls, value: str) -> str:
        if value and len(value) < MIN_TOKEN_CHARS:
            raise ValueError(f"must have at least {MIN_TOKEN_CHARS} characters")
        if not value.isascii() or any(c.isspace() or not c.isprintable() for c in value):
            raise ValueError("must be printable ASCII without white space")
        return value

    @field_validator("bridge_host")
    @classmethod
    def _host(cls, value: str) -> str:
        if value not in ("auto", "localhost"):
            try:
                ipaddress.ip_address(value)
            except ValueError:
                raise ValueError("must be `auto`, `localhost` or an IP address") from None
        return value

    @field_validator("bridge_allowed_roots")
    @classmethod
    def _roots(cls, value: list[str]) -> list[str]:
        roots = [os.path.realpath(os.path.expanduser(part)) for part in value]
        for root in roots:
            if not os.path.isdir(root):
                raise ValueError(f"is not a directory: {root}")
        return roots

    @field_validator("bridge_public_url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (not parts.scheme or not parts.hostname):
            raise ValueError("must be a URL such as https://bridge.example")
        return value.rstrip("/")

    @field_validator("bridge_allowed_origins")
    @classmethod
    def _origins(cls, value: list[str]) -> list[str]:
        for origin in value:
            parts = urlsplit(origin)
            if not parts.scheme or not parts.hostname or parts.path not in ("", "/"):
                raise ValueError("must hold origins such as https://app.example")
        return [origin.rstrip("/") for origin in value]

    @field_validator("bridge_acp_agents")
    @classmethod
    def _agents(cls, value: str) -> str:
        _commands(value)
        return value

    @field_validator("database_url")
    @classmethod
    def _database(cls, value: str) -> str:
        if value and urlsplit(value).scheme not in ("postgres", "postgresql", "sqlite"):
            raise ValueError("must begin with postgres:// or sqlite://")
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str) -> str:
        if value and urlsplit(value).scheme not in ("redis", "rediss", "unix"):
            raise ValueError("must begin with redis://, rediss:// or unix://")
        return value

    @model_validator(mode="after")
    def _together(self) -> Conf:
        if bool(self.bridge_tls_cert) != bool(self.bridge_tls_key):
            raise ValueError("BRIDGE_TLS_CERT and BRIDGE_TLS_KEY: give both or none")
        if self.bridge_hook_token and self.bridge_hook_token == self.bridge_admin_token:
            raise ValueError("BRIDGE_ADMIN_TOKEN: must differ from BRIDGE_HOOK_TOKEN")
        if unknown := set(self.bridge_acp_unasked) - _commands(self.bridge_acp_agents).keys():
            raise ValueError(
                f"BRIDGE_ACP_UNASKED: {min(unknown)[:64]} is no name in BRIDGE_ACP_AGENTS"
            )
        if self.bridge_plain_port and self.bridge_plain_port == self.bridge_port:
            raise ValueError("BRIDGE_PLAIN_PORT: must differ from BRIDGE_PORT")
        if tuple(map(int, self.bridge_min_client_version.split("."))) > tuple(
            map(int, self.bridge_max_client_version.split("."))
        ):
            raise ValueError("BRIDGE_MAX_CLIENT_VERSION: is below BRIDGE_MIN_CLIENT_VERSION")
        return self

    @property
    def max_message_bytes(self) -> int:
        return self.bridge_max_message_mb * 2**20

    @cached_property
    def allowed_roots(self) -> tuple[str, ...]:
        """Real, absolute directories; the first is where relative HTTP paths begin (D12)."""
        return tuple(self.bridge_allowed_roots) or (os.path.realpath(os.getcwd()),)

    @cached_property
    def acp_agents(self) -> dict[str, list[str]]:
        """Name → command line of each agent of BRIDGE_ACP_AGENTS, in their order."""
        return _commands(self.bridge_acp_agents)

    @property
    def rate_limits_on(self) -> bool:
        return self.bridge_rate_limits == "on"

    @property
    def unread(self) -> tuple[tuple[str, str], ...]:
        """Names that would be settings if they were in capitals, and are not read, each with the
        place where it is.
        """
        return self._unread

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """Files that settings name and that hold secrets: the private key and what an `X_FILE`
        points to, whether it was read or not (D45).
        """
        return (
            self._named_files
            if self.bridge_tls_key is None
            else (*self._named_files, self.bridge_tls_key)
        )

    def secret(self, name: Literal["hook_token", "admin_token", "django_secret"]) -> str:
        """A secret from the settings, else from the data directory, made there on first use
        (0600).
        """
        given = getattr(self, f"bridge_{name}", "")
        try:
            return given or _stored_secret(self.bridge_data_dir, name)
        except OSError as error:
            raise ConfError(
                f"BRIDGE_DATA_DIR: {self.bridge_data_dir} cannot be used ({error.strerror})"
            ) from None

    def secret_path(self, name: str) -> Path:
        return self.bridge_data_dir / "secrets" / name


def _commands(text: str) -> dict[str, list[str]]:
    """``name=command line``, ``;`` between them. Raises ValueError."""
    found: dict[str, list[str]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, line = (piece.strip() for piece in part.partition("="))
        try:
            command = shlex.split(line)
        except ValueError:
            raise ValueError("must hold command lines with balanced quotes") from None
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or not command:
            raise ValueError("must hold name=command line, with `;` between them")
        if name in found or name in _TAKEN_NAMES:
            raise ValueError(f"names {name} twice, or a name that the bridge has for itself")
        found[name] = command
    return found


_TAKEN_NAMES = frozenset({"demo", "claude-code", "primary-agent"})


def make_private_dir(path: Path, *below: str) -> Path:
    """Make a directory, and those below it, with mode 0700, or bring them back to it; return the
    last (D45).

    ``path`` may be a link, for a data directory may lie on another disk. What is below may not: its
    target would become private, and hold what is secret. Raises OSError.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    for name in below:
        path = path / name
        path.mkdir(mode=0o700, exist_ok=True)
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(directory).st_mode & 0o077:
                os.fchmod(directory, 0o700)
        finally:
            os.close(directory)
    return path


def write_private_file(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 so that a reader sees the old bytes or the new, never a part."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _stored_secret(data_dir: Path, name: str) -> str:
    path = make_private_dir(data_dir, "secrets") / name
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        prefix = {"hook_token": "bridge_hook_", "admin_token": "bridge_admin_"}.get(name, "")
        draft = path.with_name(f".{name}.{secrets.token_hex(4)}")
        write_private_file(draft, (prefix + secrets.token_urlsafe(32) + "\n").encode())
        try:
            # the first of two processes that start together wins, the other reads what it made
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return path.read_text().strip()


def _files_named(environ: dict[str, str]) -> dict[str, Path]:
    """The files that hold the values of secret settings: `X_FILE` for the setting X (D44)."""
    named: dict[str, Path] = {}
    for name in _secret_fields():
        if path := environ.get(f"{name.upper()}_FILE"):
            named[name] = Path(os.path.abspath(os.path.expanduser(path)))
    return named


def _secret_fields() -> list[str]:
    return [
        name
        for name, field in Conf.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("secret")
    ]


def _unread_names(environ: Mapping[str, Any], place: str) -> list[tuple[str, str]]:
    known = {name.upper() for name in Conf.model_fields} | {
        f"{name.upper()}_FILE" for name in _secret_fields()
    }
    return [(name, place) for name in environ if name not in known and name.upper() in known]


def _read_secret(name: str, path: Path) -> str:
    variable = f"{name.upper()}_FILE"
    try:
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfError(f"{variable}: cannot be read ({error.__class__.__name__})") from None
    if not found:
        raise ConfError(f"{variable}: the file is empty")
    return found


def load() -> Conf:
    """Read the settings now.

    Raises ConfError, whose text is one line naming the setting, when a value is wrong.
    """
    data_dir = os.path.abspath(os.path.expanduser(os.environ.get("BRIDGE_DATA_DIR") or "var"))
    env_file = os.path.join(data_dir, ".env")
    merged, unread = dict(os.environ), _unread_names(os.environ, "the environment")
    if os.path.isfile(env_file):
        from dotenv import dotenv_values

        lines = dotenv_values(env_file)
        merged = {k: v for k, v in lines.items() if v is not None} | merged
        unread += _unread_names(lines, env_file)
    named = _files_named(merged)
    given: dict[str, Any] = {
        name: _read_secret(name, path)
        for name, path in named.items()
        if not merged.get(name.upper())
    }
    try:
        loaded = Conf(_env_file=env_file, **given)
    except ValidationError as error:
        raise ConfError(_one_line(error)) from None
    except OSError as error:
        raise ConfError(f"BRIDGE_DATA_DIR: {data_dir} cannot be used ({error.strerror})") from None
    loaded._named_files, loaded._unread = tuple(named.values()), tuple(unread)
    return loaded


def _one_line(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{str(first['loc'][0]).upper()}: {message}" if first["loc"] else message


conf = load()
