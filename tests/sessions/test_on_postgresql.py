"""The tests of the log's own SQL once more, on PostgreSQL (D26)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Postgres

HERE = Path(__file__).resolve().parent
OF_THE_LOG = ("test_commit_order.py", "test_forgetting.py", "test_log.py", "test_reader.py")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_same_tests_pass_on_postgresql(postgres_server: Postgres, tmp_path: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": postgres_server.create_database(),
        "BRIDGE_DATA_DIR": str(tmp_path),
        "SOAK_EXAMPLES": "8",  # here the statements count, not the examples
    }
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    # nobody waits for the database to be dropped
    command = [*(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reuse-db")]
    done = subprocess.run(
        [*command, *(f"{HERE}/{name}" for name in OF_THE_LOG)],
        env=environment,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
