"""D77: what tests of files, the jail and agents' processes promise holds in the portable ways."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.bridge import REPOSITORY
from tests.portable import ASKED, PORTABLE_TESTS

SLOW = ("-m", "slow or not slow")  # as this is
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.skipif(ASKED, reason="they run in these ways already")
@pytest.mark.parametrize("file", PORTABLE_TESTS)
def test_in_the_portable_ways(file: str, tmp_path: Path) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own.pop("BRIDGE_DATA_DIR", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *SLOW, file],
        cwd=REPOSITORY,
        env=own | {"TESTS_WAYS": "portable"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:]
