"""Collect facts for all checks: address, lock holder, health and info."""

import contextlib
import http.client
import json
import shlex
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from dotenv import dotenv_values

from bridge_project.kernel import limits, own_commands
from bridge_project.kernel.config import Conf
from bridge_project.network import server_address
from bridge_project.network.certificate_files import pin_of
from bridge_project.network.server_address import Address
from bridge_project.terminal.client import pinned_context

FETCH_SECONDS: Final = 2.0
# for /info, which may have to ask agents for their versions
INFO_SECONDS: Final = FETCH_SECONDS + 2 * limits.AGENT_VERSION_SECONDS
HEALTH_SECONDS: Final = 4.5  # a bridge whose database is away needs more than three to say so
PAGE: Final = "/pair"  # needs no token; /health without one is a failed authentication (D16)
BODY_MAX_BYTES: Final = 2**20


class Reached(NamedTuple):
    """Hold an HTTP answer; the certificate is in DER."""

    status: int
    body: dict[str, Any]
    certificate: bytes


@dataclass(slots=True)
class Snapshot:
    """Hold the facts that all checks read."""

    conf: Conf
    recorded: Address | None = None  # None: never started with this data directory
    local_url: str = ""  # https address as this machine reaches it
    holder: str = ""  # process id of who serves from the data directory; empty: nobody
    health: Reached | None = None  # its answer to the hook token
    trouble: str = ""  # why there is none
    statuses: dict[str, int] = field(default_factory=dict)  # token → what it is answered
    info: dict[str, Any] = field(default_factory=dict)  # the body of its answer to /info

    def start(self, **changed: str) -> str:
        """Return the command that starts the bridge, with some settings changed."""
        return server_address.run_command(self.conf, **changed)

    @property
    def log_tail(self) -> str:
        return f"tail -n 20 '{self.conf.bridge_data_dir}/logs/bridge.log'"

    def make(self, verb: str, arguments: str = "") -> str:
        return own_commands.make_command(self.conf, verb, arguments)

    def without(self, name: str) -> str:
        """Return the shell command that removes a setting, also from `.env`."""
        file = self.conf.bridge_data_dir / ".env"
        if not file.is_file() or name not in dotenv_values(file):
            return f"unset {name}"
        # with a suffix, as sed of macOS needs one
        out = f"sed -i.bak -E 's/^ *(export +)?{name} *=/# &/' {shlex.quote(str(file))}"
        return f"unset {name}; {out}"

    def manage(self, command: str) -> str:
        return own_commands.manage(self.conf, command)


def take(conf: Conf) -> Snapshot:
    """Read files, ask /health and /info; send tokens only to the pinned server."""
    recorded, held_by = None, server_address.holder(conf)
    with contextlib.suppress(OSError):
        recorded = server_address.recorded(conf)
    if recorded is None:
        return Snapshot(conf, holder=held_by, trouble="it was never started with this data")
    url = f"https://{urlsplit(recorded.local_ws_url or recorded.ws_url).netloc}"
    seen = Snapshot(conf, recorded, url, held_by)

    def ask(path: str, token: str, seconds: float) -> Reached:
        given, pin = read_secret(conf, token), recorded.pin
        return fetch(url, f"/api/v1/{path}", token=given, pin=pin, seconds=seconds)

    try:
        seen.health = ask("health", "hook_token", HEALTH_SECONDS)
        seen.statuses["hook_token"] = seen.health.status
        seen.statuses["admin_token"], seen.info, _ = ask("info", "admin_token", INFO_SECONDS)
    except OSError as error:  # of a slow one the first answer has said enough
        seen.trouble = str(error)
    return seen


def read_secret(conf: Conf, name: str) -> str:
    """Return a secret from the settings or its file, or ""; make none."""
    try:
        return getattr(conf, f"bridge_{name}") or conf.secret_path(name).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def fetch(
    url: str, path: str, *, token: str = "", pin: str = "", seconds: float = FETCH_SECONDS
) -> Reached:
    """Send a GET by https; with a pin, compare the server's key first.

    Without a pin no certificate is checked: give no token then. Raises OSError, in plain words.
    """
    parts, headers = urlsplit(url), {"Authorization": f"Bearer {token}"} if token else {}
    tls = pinned_context()
    connection = http.client.HTTPSConnection(parts.netloc, timeout=seconds, context=tls)
    try:
        connection.connect()
        certificate, body = connection.sock.getpeercert(binary_form=True) or b"", None
        if pin and pin_of(certificate) != pin:
            raise OSError("what answers there has another key, so no token was sent to it")
        connection.request("GET", parts.path.rstrip("/") + path, headers=headers)
        response = connection.getresponse()
        text = response.read(BODY_MAX_BYTES)
        with contextlib.suppress(ValueError, RecursionError):  # a page, not JSON
            body = json.loads(text)
        return Reached(response.status, body if isinstance(body, dict) else {}, certificate)
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"what answers there is no bridge ({type(error).__name__})") from error
    except ConnectionRefusedError as error:
        raise OSError("nothing listens there") from error
    finally:
        connection.close()
