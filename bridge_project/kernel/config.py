"""Read and check every setting (D44); docs/settings.md is generated from `Conf`."""

from __future__ import annotations

import contextlib
import difflib
import os
import secrets
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from bridge_project.kernel import limits, notify_urls
from bridge_project.kernel import setting_types as types
from bridge_project.kernel.place import default_data_dir
from bridge_project.kernel.private_files import make_private_dir, write_private_file

OWN_TIME_ZONE = os.environ.get("TZ")  # read before Django sets its own

UNTOLD = "…"  # in place of a secret
LIKENESS = 0.85  # of two names, one of which may be a slip of the other

SecretName = Literal["hook_token", "admin_token", "django_secret", "push_key"]
SECRETS: tuple[SecretName, ...] = get_args(SecretName)


class ConfError(ValueError):
    """Report a wrong setting in one line that repeats no secret."""


class Conf(BaseModel):
    """Hold all settings; a field is named like its variable, in lower case."""

    model_config = ConfigDict(
        frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True, validate_default=True
    )

    # Files that hold secrets, whether they were read or not (D45).
    _secret_files: tuple[Path, ...] = PrivateAttr(())
    _unread: tuple[tuple[str, str, str], ...] = PrivateAttr(())
    _environment: Mapping[str, str] = PrivateAttr({})

    bridge_data_dir: types.AbsolutePath = Path("var")
    """Where the bridge keeps its database, certificates, tokens and logs. Made with mode 0700.
    `var` is in the clone. Of an installed `agent-bridge` the default is
    `$XDG_DATA_HOME/agent-bridge` (`~/.local/share/agent-bridge`), on macOS
    `~/Library/Application Support/agent-bridge`."""
    bridge_host: types.Host = "auto"
    """Address to listen on. `auto`: every interface, but a connection that arrives on an address
    which is neither loopback nor private nor a mesh's is dropped before TLS. A public address is
    listened on only when it is named here, or `0.0.0.0` / `::` is."""
    bridge_port: types.Port = 8443
    """The TLS port for HTTP and WebSocket."""
    bridge_plain_port: types.Port | None = None
    """A plain HTTP listener on 127.0.0.1, only for a TLS-terminating proxy named in
    `BRIDGE_TRUSTED_PROXIES`."""
    bridge_public_url: types.PublicUrl = ""
    """The address clients use, when it is not the server's own (a proxy, a tunnel). Decides the
    connection mode; without https every device is rejected."""
    bridge_hook_token: types.TokenText = ""
    """The token that hook producers send. Made on the first start if absent."""
    bridge_admin_token: types.TokenText = ""
    """The token for the API's `/admin/*`, `/metrics`, sessions and files. Made on the first start
    if absent."""
    bridge_allowed_roots: types.RootList = []
    """Directories whose files devices may see and where agents may work, `:` between them. Default:
    the directory the bridge was started in, unless that is `/`, another user's, or holds the home
    or the data directory."""
    bridge_hooks_config: types.AbsolutePath | None = None
    """The hook configuration file that `/admin/reload-hooks` validates and reports."""
    bridge_trusted_proxies: types.Commas[types.IPNetwork] = []
    """Addresses or networks of TLS-terminating proxies, comma between them."""
    bridge_allowed_origins: types.Commas[types.Origin] = []
    """Browser origins, besides the bridge's own, that may open a WebSocket and call the API. Comma
    between them."""
    bridge_cors_allow_all: bool = False
    """Answer CORS requests from every origin (development)."""
    bridge_tunnel_domains: types.Commas[types.Domain] = []
    """More domains that count as a secure tunnel (`secure_remote`). Comma between them."""
    bridge_min_client_version: types.SemVerText = "1.0.0"
    """Older clients are refused with `VERSION_INCOMPATIBLE`."""
    bridge_max_client_version: types.SemVerText = "1.999.999"
    """Newer clients are refused with `VERSION_INCOMPATIBLE`."""
    bridge_max_sessions: types.Count = limits.MAX_SESSIONS
    """Bridge-run sessions that may be created or active at once."""
    bridge_max_websockets: types.Count = limits.MAX_WEBSOCKET_CONNECTIONS
    """Authenticated WebSocket connections at once."""
    bridge_max_message_mb: Annotated[int, Field(ge=1, le=100)] = limits.MAX_MESSAGE_SIZE_MB
    """Largest HTTP body, WebSocket message and file, in MB (2**20 bytes)."""
    bridge_session_grace_seconds: types.Seconds = limits.SESSION_GRACE_SECONDS
    """How long a bridge-run session outlives its last WebSocket."""
    bridge_queue_max: types.Positive = limits.QUEUE_MAX_MESSAGES
    """Messages kept in the log for each session. The oldest go first, and devices that missed them
    are told."""
    bridge_history_days: types.Positive = limits.HISTORY_DAYS
    """How many days a message is kept in the log. What a device that comes back is sent unasked is
    of the last 24 hours; older messages it asks for."""
    bridge_queue_ttl_seconds: types.Seconds | None = None
    """The same in seconds; it overrides that setting."""
    bridge_rate_limits: Literal["on", "off"] = "on"
    """`off` lifts every rate limit and the bound on connections without a token, for benchmarks and
    tests."""
    bridge_default_agent: str = ""
    """The agent that starts when none (`primary-agent`) is named."""
    bridge_agents: types.FoundAgents = []
    """Which agents are looked for on this machine, comma between them; `off` looks for none.
    Default: all that docs/agents.md lists."""
    bridge_acp_agents: types.AgentLines = {}
    """More agents that speak the Agent Client Protocol: `name=command line`, `;` between them. The
    name of an agent that is looked for replaces it."""
    bridge_acp_unasked: types.Commas[str] = []
    """Agents of the Agent Client Protocol that may run although they cannot be made to ask before
    they act. Comma between them. `codex` lets devices write to a session that is joined and does
    not ask."""
    bridge_join: types.Commas[Literal["codex"]] = []
    """Agents whose sessions at the desk are joined, live, where the agent lets several programs in:
    `codex`."""
    bridge_demo_shell: bool = False
    """Let the `demo` agent run approved `Bash` calls for real."""
    bridge_claude_memory: Literal["on", "off"] = "on"
    """Give `claude-code` the memory files of the user and the project: `CLAUDE.md`,
    `.claude/CLAUDE.md`, `CLAUDE.local.md`, `.claude/rules/*.md`, up to the root of the repository,
    and `~/.claude/CLAUDE.md`."""
    bridge_claude_servers: types.AbsolutePath | None = None
    """A file of MCP servers (`{"mcpServers": {…}}`) that every session of `claude-code` has. Each
    use of their tools asks."""
    bridge_claude_skills: types.RootList = []
    """Directories of skills (`NAME/SKILL.md`) that every session of `claude-code` has, `:` between
    them."""
    bridge_push: Literal["on", "off"] = "on"
    """`off` forbids push: no device can ask for it, and nothing is sent to a push service."""
    bridge_push_hosts: types.Commas[types.HostName] = []
    """Names of more push services that a device may use, besides Google's, Apple's, Mozilla's and
    Microsoft's; these may be in a private network and on any port. Comma between them."""
    bridge_notify_urls: types.NotifyUrls = ""
    """Where else to say what no device has confirmed after 20 seconds: addresses as Apprise takes
    them, white space between them, of ntfy, Gotify, Slack, Discord, Telegram, Pushover and mail.
    They are secrets; docs/operations.md has examples."""
    bridge_notify_detail: Literal["quiet", "full"] = "quiet"
    """What is said there: `quiet`, that an agent needs somebody; `full`, the title and text too."""
    bridge_tls_cert: types.AbsolutePath | None = None
    """A PEM certificate chain to use instead of the bridge's own."""
    bridge_tls_key: types.AbsolutePath | None = None
    """The private key of `BRIDGE_TLS_CERT`."""
    bridge_strict_protocol: bool = False
    """Demand a UUID v4 as the `id` of every client message but a heartbeat."""
    database_url: types.DatabaseUrl = ""
    """`postgres://user:password@host/name`. Default: SQLite in the data directory."""
    redis_url: types.RedisUrl = ""
    """`redis://host:port/db`. Default: an in-memory channel layer and a local cache, enough for one
    process. Bridges that share a Redis server need a database number each."""

    @model_validator(mode="after")
    def _check_together(self) -> Conf:
        if bool(self.bridge_tls_cert) != bool(self.bridge_tls_key):
            raise ValueError("BRIDGE_TLS_CERT and BRIDGE_TLS_KEY: give both or none")
        if self.bridge_hook_token and self.bridge_hook_token == self.bridge_admin_token:
            raise ValueError("BRIDGE_ADMIN_TOKEN: must differ from BRIDGE_HOOK_TOKEN")
        agents = {*self.bridge_acp_agents, *filter(self.looks_for, types.FOUND_AGENTS)}
        if unknown := set(self.bridge_acp_unasked) - (
            agents - {*types.OWN_AGENTS} | {*self.bridge_join}
        ):
            raise ValueError(
                f"BRIDGE_ACP_UNASKED: {min(unknown)[:64]} is no agent of that protocol"
            )
        if self.bridge_default_agent not in {"", "demo", *agents}:
            raise ValueError("BRIDGE_DEFAULT_AGENT: names no agent")
        if self.bridge_plain_port == self.bridge_port:
            raise ValueError("BRIDGE_PLAIN_PORT: must differ from BRIDGE_PORT")
        oldest, newest = (
            tuple(map(int, version.split(".")))
            for version in (self.bridge_min_client_version, self.bridge_max_client_version)
        )
        if oldest > newest:
            raise ValueError("BRIDGE_MAX_CLIENT_VERSION: is below BRIDGE_MIN_CLIENT_VERSION")
        return self

    def looks_for(self, agent: str) -> bool:
        """Return whether an agent of FOUND_AGENTS is looked for."""
        return not self.bridge_agents or agent in self.bridge_agents

    @cached_property
    def history_seconds(self) -> int:
        """Return how long a message is kept in the log (D73)."""
        return self.bridge_queue_ttl_seconds or self.bridge_history_days * 86_400

    @cached_property
    def max_message_bytes(self) -> int:
        return self.bridge_max_message_mb * 2**20

    @cached_property
    def allowed_roots(self) -> tuple[str, ...]:
        """Return real, absolute directories; relative HTTP paths begin in the first (D12)."""
        return tuple(self.bridge_allowed_roots) or (os.path.realpath(os.getcwd()),)

    def use_roots(self, roots: Iterable[str]) -> None:
        """Allow these real directories in this process, whatever the setting says."""
        self.__dict__["allowed_roots"] = tuple(roots)

    @cached_property
    def notify_secrets(self) -> tuple[str, ...]:
        """Return the texts by which the addresses of BRIDGE_NOTIFY_URLS would be known."""
        urls = self.bridge_notify_urls.split()
        return tuple(secret for url in urls for secret in notify_urls.secrets_of(url))

    @property
    def rate_limits_on(self) -> bool:
        return self.bridge_rate_limits == "on"

    @property
    def unread(self) -> tuple[tuple[str, str, str], ...]:
        """Return names that are no settings, their places, and what may be meant, or ""."""
        return self._unread

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what the environment sets; of a secret that it does. No data directory."""
        return self._environment

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """Return the secret files that settings name: the private key, each `X_FILE`."""
        return (*self._secret_files, *filter(None, [self.bridge_tls_key]))

    def secret(self, name: SecretName) -> str:
        """Return a secret from the settings, else from the data directory; make it once."""
        if given := getattr(self, f"bridge_{name}", ""):
            return str(given)
        path = self.secret_path(name)
        try:
            if not path.exists():
                _make_secret(path)
            found = path.read_text().strip()
        except OSError as error:
            raise _unusable(self.bridge_data_dir, error) from None
        except UnicodeDecodeError:
            found = ""
        if len(found) < limits.MIN_TOKEN_CHARS:
            setting = f"BRIDGE_{name.upper()}" if name.endswith("_token") else "BRIDGE_DATA_DIR"
            raise ConfError(
                f"{setting}: {path} has under {limits.MIN_TOKEN_CHARS} characters or is not text;"
                " remove it: the next start makes one"
            )
        return found

    def secret_path(self, name: str) -> Path:
        return self.bridge_data_dir / "secrets" / name


# the settings X that can also be given in a file, by `X_FILE` (D44)
SECRET_FIELDS = [name for name, field in Conf.model_fields.items() if field.json_schema_extra]


def load() -> Conf:
    """Read the settings from the environment, else from `.env`. Raises ConfError."""
    data_dir = types.make_absolute(Path(os.environ.get("BRIDGE_DATA_DIR") or default_data_dir()))
    env_file = os.path.join(data_dir, ".env")
    try:
        lines: Mapping[str, str | None] = {}
        if os.path.isfile(env_file):
            from dotenv import dotenv_values

            lines = dotenv_values(env_file)
        given = {k: v for source in (lines, os.environ) for k, v in source.items() if v}
        fields = {name.upper(): name for name in Conf.model_fields}
        values: dict[str, str] = {fields[key]: given[key] for key in given.keys() & fields}
        values.setdefault("bridge_data_dir", str(data_dir))
        named = {name: given.get(f"{name.upper()}_FILE") for name in SECRET_FIELDS}
        files = {name: types.make_absolute(Path(path)) for name, path in named.items() if path}
        for name in files.keys() - values.keys():
            values[name] = _read_secret(name, files[name])
        loaded = Conf.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]  # repeats no secret
        name = f"{str(first['loc'][0]).upper()}: " if first["loc"] else ""
        raise ConfError(name + str(first["msg"]).removeprefix("Value error, ")) from None
    except UnicodeDecodeError:
        raise ConfError(f"{env_file}: is no UTF-8 text") from None
    except OSError as error:
        raise _unusable(data_dir, error) from None
    known = {*fields, *(f"{name.upper()}_FILE" for name in SECRET_FIELDS)}
    loaded._secret_files = tuple(files.values())
    hidden = {name.upper() for name in SECRET_FIELDS}
    loaded._environment = {
        name: UNTOLD if name in hidden else os.environ[name]
        for name in sorted(known - {"BRIDGE_DATA_DIR"})
        if os.environ.get(name)
    }
    # what is only like one may be another program's in the environment, but not in our file
    others = [(name, "the environment", name.upper()) for name in os.environ.keys() - known]
    others += [(name, env_file, _meant(name, known)) for name in lines.keys() - known]
    loaded._unread = tuple(
        (name, place, meant)
        for name, place, meant in sorted(others)
        if meant in known or (place == env_file and name.startswith("BRIDGE_"))
    )
    return loaded


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the setting that somebody may have meant, or ""."""
    return next(iter(difflib.get_close_matches(name.upper(), known, 1, LIKENESS)), "")


def _read_secret(name: str, path: Path) -> str:
    variable = f"{name.upper()}_FILE"
    try:
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfError(f"{variable}: cannot be read ({error.__class__.__name__})") from None
    if not found:
        raise ConfError(f"{variable}: the file is empty")
    return found


def _unusable(data_dir: object, error: OSError) -> ConfError:
    return ConfError(f"BRIDGE_DATA_DIR: {data_dir} cannot be used ({error.strerror})")


def _make_secret(path: Path) -> None:
    prefix = {"hook_token": "bridge_hook_", "admin_token": "bridge_admin_"}.get(path.name, "")
    make_private_dir(path.parents[1], path.parent.name)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_private_file(draft, (prefix + secrets.token_urlsafe(32) + "\n").encode())
    try:
        # the first of two processes that start together wins, the other reads what it made
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


conf = load()
