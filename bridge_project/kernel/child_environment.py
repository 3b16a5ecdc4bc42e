"""Clean the environment of all that the bridge starts (D45)."""

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, urlsplit

from bridge_project.kernel.config import SECRETS, Conf, conf

PR_SET_DUMPABLE = 4  # linux/prctl.h
# Names are compared in capitals, here and below: some libraries read them in any case.
_PREFIXES = ("BRIDGE_", "DJANGO_", "REDIS")
_OURS = (
    # variables by which libpq and redis-cli get an address, a password or a key
    "PGPASSWORD PGPASSFILE PGSERVICE PGSERVICEFILE PGSSLKEY PGSSLCERT REDISCLI_AUTH"
    # variables that the service manager set for the bridge alone
    " CREDENTIALS_DIRECTORY ENCRYPTED_CREDENTIALS_DIRECTORY NOTIFY_SOCKET FDSTORE LISTEN_FDS"
    " LISTEN_PID LISTEN_FDNAMES WATCHDOG_PID WATCHDOG_USEC MAINPID MANAGERPID INVOCATION_ID"
    " JOURNAL_STREAM SYSTEMD_EXEC_PID MEMORY_PRESSURE_WATCH MEMORY_PRESSURE_WRITE"
    " RUNTIME_DIRECTORY STATE_DIRECTORY CACHE_DIRECTORY LOGS_DIRECTORY CONFIGURATION_DIRECTORY"
    # variables by which a child's Python would find our packages
    " PYTHONPATH PYTHONHOME VIRTUAL_ENV"
)
# What would have a child wait for a debugger, run code first, or take itself for a part of another
# agent's session. What configures an agent (CODEX_HOME, CLAUDE_CODE_USE_BEDROCK) is not among them.
_FOREIGN = re.compile(
    r"""(?:NODE|BUN)_INSPECT\w*|VSCODE_INSPECTOR_OPTIONS|PYDEVD_\w+|DEBUGPY_\w+
    |PYTHON(?:STARTUP|INSPECT)|LD_(?:PRELOAD|AUDIT)|DYLD_INSERT_LIBRARIES
    |CLAUDECODE|CLAUDE_PID|CLAUDE_AGENT_SDK_VERSION
    |CLAUDE_CODE_(?:SESSION_ID|ENTRYPOINT|SSE_PORT|EXECPATH|CHILD_SESSION)
    |CODEX_(?:SANDBOX\w*|THREAD_ID|SESSION_ID|INTERNAL_\w+)|GEMINI_CLI|QWEN_CODE|OPENCODE
    |COPILOT_CLI|CURSOR_AGENT|AI_AGENT""",
    re.VERBOSE,
)
# in the options of node and bun, which may also hold the memory that their user gives them
_WITH_OPTIONS = ("NODE_OPTIONS", "BUN_OPTIONS")
_DEBUGGER = re.compile(
    r"""(?:^|\s)(?:--inspect(?:-\w+)*(?:=\S+)?|--debug-port=\S+
    |(?:-r|--require|--import)[\s=]+(?:"[^"]*js-debug[^"]*"|\S*js-debug\S*))(?=\s|$)""",
    re.VERBOSE,
)
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_SHORTEST_SECRET = 8  # a shorter one would be found in unrelated values by chance


def scrubbed(**more: str) -> dict[str, str]:
    """Return the environment plus `more`, without what is not meant for a child."""
    settings = {name.upper() for name in Conf.model_fields}
    names = settings | {f"{name}_FILE" for name in settings} | set(_OURS.split())
    secrets = _secrets()
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.upper() not in names
        and not name.upper().startswith(_PREFIXES)
        and not _FOREIGN.fullmatch(name.upper())
        and not any(secret in value for secret in secrets)
    }
    for name in _WITH_OPTIONS:
        if options := _DEBUGGER.sub("", kept.pop(name, "")).strip():
            kept[name] = options
    return kept | more


def secrets_in(environ: Mapping[str, str], words: Iterable[str]) -> list[str]:
    """Return the values of secret-sounding variables, also in a command line."""
    assigned = (word.partition("=") for word in words)
    given = [*environ.items(), *((name, value) for name, _, value in assigned)]
    named = (value for name, value in given if _SECRET_NAME.search(name))
    return [value for value in named if len(value) >= _SHORTEST_SECRET]


def _secrets() -> list[str]:
    """Return tokens, keys, URLs with a password, their passwords, addresses to notify."""
    found = [*map(conf.secret, SECRETS), os.environ.get("PGPASSWORD", ""), *conf.notify_secrets]
    for url in (conf.database_url, conf.redis_url):
        password = urlsplit(url).password
        if password:
            found += [url, password, unquote(password)]
    return [secret for secret in found if len(secret) >= _SHORTEST_SECRET]


def hide_process() -> None:
    """Hide this process's memory and environment from the user's other processes.

    Linux then gives its /proc entries to root, and writes no core dump. Its child processes are not
    hidden. Other systems have no such call: `docs/security.md` says what that means.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, *[ctypes.c_ulong(0)] * 4)
