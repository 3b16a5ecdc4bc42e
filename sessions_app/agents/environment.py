"""What agents and their tools see of the bridge's environment: everything that is the user's, nothing that is the bridge's (D45)."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from bridge_project.conf import Conf, conf

_OURS = ("BRIDGE_", "DJANGO_")
# What the service manager gave to the bridge alone, and what would make an agent's Python find our packages.
_NOT_THEIRS = frozenset({"CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"})
_SHORTEST_SECRET = 8  # a shorter one would be found by chance in values that have nothing to do with it


def scrubbed(**more: str) -> dict[str, str]:
    """The environment without the bridge's settings, without every value that holds one of its secrets, and with ``more``."""
    settings = {name.upper() for name in Conf.model_fields}
    names = settings | {f"{name}_FILE" for name in settings} | _NOT_THEIRS
    secrets = _secrets()
    kept = {
        name: value for name, value in os.environ.items() if name not in names and not name.startswith(_OURS) and not any(secret in value for secret in secrets)
    }
    return kept | more


def _secrets() -> list[str]:
    """The bridge's secrets as another variable might hold them: tokens, Django's key, addresses with a password, and the passwords in them."""
    found = [conf.secret("hook_token"), conf.secret("admin_token"), conf.secret("django_secret")]
    for url in (conf.database_url, conf.redis_url):
        password = urlsplit(url).password
        if password:
            found += [url, password, unquote(password)]
    return [secret for secret in found if len(secret) >= _SHORTEST_SECRET]
