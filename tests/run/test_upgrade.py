"""A database of an older version is brought up to date, with its devices, tokens and log."""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.samples import prompt
from tests.faults.quick import QuickBridge
from tests.servers import Postgres

pytestmark = pytest.mark.slow

# As two versions left it, the first that was published (3d5b6b1) and 173779c: a phone that has
# acknowledged two events of a session and then went away, three events since, and, from 173779c on,
# an approval that waits.
DATABASES = Path(__file__).parents[1] / "fixtures" / "databases"
TOKEN = "bridge_device_MovUowj1qDPaN-4CD0dvsavLZEnTJySMzCSgkuTvZAc"
# The last migrations of 0.2.0, and what a phone and a session have had from then on: a token that
# takes the old one's place (sha256), and an open call. The rest is 173779c's, brought along.
LAST = {"devices_app": "0004", "files_app": "zero", "hooks_app": "0002", "sessions_app": "0008"}
NEXT_TOKEN = "bridge_device_" + "n" * 43
SINCE = f"""
INSERT INTO devices_app_token (digest, minted_at, use_by, used_at, device_id, replaces_id)
SELECT '{hashlib.sha256(NEXT_TOKEN.encode()).hexdigest()}', minted_at, use_by, used_at,
device_id, id FROM devices_app_token;
UPDATE sessions_app_session SET turn = 'waiting', doing =
'[{{"id": "waits", "tool": "Bash", "summary": "ls", "since": "2026-11-28T07:24:17Z",
"waits": true}}]'
"""
# or the log and the session would be too old by now
TODAY = (
    "UPDATE sessions_app_logrow SET created_at = '{now}'",
    "UPDATE sessions_app_session SET last_activity_at = '{now}'",
)


@pytest.fixture
def bridge(version: str, postgres_server: Postgres, tmp_path: Path) -> Iterator[Bridge]:
    now = datetime.now(UTC).isoformat(sep=" ")
    today = [statement.format(now=now) for statement in TODAY]
    on_sqlite = version.endswith("sqlite")
    url = None if on_sqlite else postgres_server.create_database()
    made = QuickBridge(tmp_path, **({} if url is None else {"database_url": url}))

    def execute(*statements: str) -> None:
        if url is not None:
            with psycopg.connect(url) as connection:
                for statement in statements:
                    connection.execute(statement.encode())
            return
        with closing(sqlite3.connect(made.data / "bridge.sqlite3")) as database:
            database.executescript(";\n".join(statements) + ";")

    made.data.mkdir(mode=0o700)
    script = (DATABASES / f"{version.replace('0.2.0', '173779c')}.sql").read_text()
    execute(script, *today)
    if version.startswith("0.2.0"):
        for app, name in LAST.items():
            made.manage("migrate", "--verbosity", "0", app, name)
        execute(SINCE)
    yield made
    made.__exit__()


VERSIONS = (
    "3d5b6b1-sqlite",
    *("173779c-sqlite", "173779c-postgresql"),
    *("0.2.0-sqlite", "0.2.0-postgresql"),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_phone_gets_what_it_missed(bridge: Bridge, version: str) -> None:
    first = version.startswith("3d5b6b1")
    session = f"session-of-{'3d5b6b1' if first else '173779c'}"
    missed = [2, 3, 4] if first else [2, 3, 4, None]  # None: what the approval is about
    bridge.start()
    phone = Phone(bridge.port, TOKEN).ready()
    phone.wait_numbers(session, missed)
    asked = None if first else phone.expect("approval_required", session_id=session)["payload"]
    phone.join(session)
    if asked is not None:
        assert asked["tool_call_id"] == "waits"
        answer = {"session_id": session, "tool_call_id": "waits", "decision": "approved"}
        assert phone.request("approval_response", answer)["type"] == "approval_recorded"
    bridge.accept(prompt(session, 5))
    phone.wait_numbers(session, [*missed, 5])
    phone.ack(*phone.messages)
    phone.close()
    assert "old phone" in bridge.manage("list_devices").stdout
    assert bridge.stop() == 0

    assert "[ ]" not in bridge.manage("showmigrations").stdout
    bridge.start()
    phone = Phone(bridge.port, NEXT_TOKEN if version.startswith("0.2.0") else TOKEN).ready()
    bridge.accept(prompt(session, 6))
    phone.join(session)
    phone.wait_numbers(session, [6])
    phone.close()
    assert bridge.stop() == 0
