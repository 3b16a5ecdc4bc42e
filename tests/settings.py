"""The bridge's settings for tests: an own data directory, and password hashes that cost nothing."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "BRIDGE_DATA_DIR" not in os.environ:
    _directory = tempfile.mkdtemp(prefix="bridge-tests-")
    os.environ["BRIDGE_DATA_DIR"] = _directory
    _owner = os.getpid()
    atexit.register(
        lambda: shutil.rmtree(_directory, ignore_errors=True) if os.getpid() == _owner else None
    )

if (_worker := os.environ.get("PYTEST_XDIST_WORKER")) and os.path.basename(
    os.environ["BRIDGE_DATA_DIR"]
) != _worker:
    # Workers inherit the environment: with one data directory they would write each other's
    # recorded address.
    os.environ["BRIDGE_DATA_DIR"] = os.path.join(os.environ["BRIDGE_DATA_DIR"], _worker)

os.environ.setdefault("BRIDGE_AGENTS", "off")  # what happens to be on this machine

from collections.abc import Callable
from typing import Any

from bridge_project.kernel.config import conf
from bridge_project.network import transport
from bridge_project.settings import *  # noqa: F403
from bridge_project.settings import DATABASES, MIDDLEWARE
from tests import portable

if portable.ASKED:
    portable.take()

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

if not conf.database_url:
    # A file, as in real life: the memory that threads would share in Django's tests refuses ("table
    # is locked") where a file makes them wait.
    # Django makes the file, which the bridge's own connections refuse
    del DATABASES["default"]["OPTIONS"]["factory"]
    DATABASES["default"]["TEST"] = {"NAME": str(conf.bridge_data_dir / "test.sqlite3")}


def add_scope(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Give a request of Django's test client, which is none of ASGI, a local connection."""

    def answer(request: Any) -> Any:
        client = request.META.get("REMOTE_ADDR", "127.0.0.1")
        carrier = transport.resolve(
            conf, tls=True, local_address="127.0.0.1", peer_address=client, headers=[]
        )
        request.scope = getattr(request, "scope", {"bridge": carrier})
        return get_response(request)

    return answer


MIDDLEWARE = ["tests.settings.add_scope", *MIDDLEWARE]
