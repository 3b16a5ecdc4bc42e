"""The ways of D77 that any Unix has, which tests take with TESTS_WAYS=portable.

The bridges that they start take them too, by the settings module that they run with.
"""

import os
import sys

# what a Mac must pass, and Linux in these ways
PORTABLE_TESTS = [
    "tests/files/test_jail.py",
    "tests/files/test_portable.py",
    "tests/conformance/test_files_http.py",
    "tests/conformance/test_files_ws.py",
    "tests/agents/test_processes.py",
    "tests/conformance/test_tool_limits.py",
    "tests/conformance/test_agent_life.py",
    "tests/conformance/test_agent_killed.py",
    "tests/conformance/test_agent_outlives.py",
    "tests/run/test_doctor.py",
]
ASKED = os.environ.get("TESTS_WAYS") == "portable"
LINUX_WAYS = sys.platform == "linux" and not ASKED


def take() -> None:
    """Take them in this process; no Linux has kqueue."""
    from bridge_project.kernel import ways
    from hooks_app.producer import forwarder

    for way in set(ways.linux) - {"hooks"}:
        ways.linux[way] = False
    forwarder.inotify_simple = None  # type: ignore[attr-defined]
