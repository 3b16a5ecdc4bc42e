"""This room's tests once more, on PostgreSQL: the log must keep its promises on both databases
(D26).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Postgres

HERE = Path(__file__).resolve().parent
# about settings, pages and what an agent says: no statement that the others have not
SAME_ON_ALL = (
    "test_admin_agents.py",
    "test_agent_conversation.py",
    "test_agent_drivers.py",
    "test_agent_load.py",
    "test_alarm.py",
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_same_tests_pass_on_postgresql(postgres_server: Postgres, tmp_path: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": postgres_server.create_database(),
        "BRIDGE_DATA_DIR": str(tmp_path),
    }
    for name in (
        "PYTEST_XDIST_WORKER",
        "PYTEST_XDIST_TESTRUNUID",
        "PYTEST_ADDOPTS",
        "PYTEST_CURRENT_TEST",
    ):
        environment.pop(name, None)
    # nobody waits for it to be dropped
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "--reuse-db",
        str(HERE),
    ]
    command += [f"--ignore={HERE / name}" for name in SAME_ON_ALL]
    done = subprocess.run(
        command, env=environment, cwd=HERE.parents[1], capture_output=True, text=True, timeout=1100
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
