"""What developers run, once `make` has set up what it needs: `make lint`, `test`, `soak` …"""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata

from bridge_project.kernel import ways
from bridge_project.operations.setup import Missing, only_one, run_step
from tests.agents import install
from tests.portable import PORTABLE_TESTS
from tests.servers import MOST_WORKERS

Step = tuple[str, list[str]]  # a name, and what follows `python`

LINTERS: list[Step] = [
    ("ruff", ["-m", "ruff", "check", "--quiet", "."]),
    ("format", ["-m", "ruff", "format", "--check", "--quiet", "."]),
    ("imports", ["-c", "from importlinter.cli import lint_imports_command as c; c(['--no-logo'])"]),
]
TYPES: list[Step] = [
    ("mypy", ["-m", "mypy"]),
    ("mypy of macOS", ["-m", "mypy", "--platform", "darwin"]),
]
# Without compiled modules every process that tests start would compile the project anew.
OF_THE_SHELL = ("DATABASE_URL", "REDIS_URL", "PYTHONDONTWRITEBYTECODE")

SAID = ["-m", "slow or not slow", "-o", "log_cli=true", "-o", "log_cli_level=INFO"]


def pytest(words: str, *more: str) -> list[str]:
    return ["-m", "pytest", *words.split(), *more]


KILLS = "tests/faults/test_kill_one.py tests/faults/test_kill_two.py --instants 1000"
TURNS = "tests/faults/test_kill_turns.py --instants 1000"
CRASHES = pytest(KILLS, *SAID)
OTHERS: list[Step] = [
    ("turns", pytest(TURNS, *SAID)),
    ("model", pytest("tests/faults/test_state_machine.py", *SAID)),
    ("cycles", pytest("tests/conformance/test_agent_cycles.py -n0 -s")),
    ("races", pytest("tests/conformance/test_approval_race.py -n0 -s")),
    ("troubles", pytest("tests/faults/test_troubles.py -n0 -s")),
    ("week", pytest("tests/faults/test_week.py -n0 -s")),
    ("properties", pytest("-m hypothesis --timeout 0")),
]
# of all but the crashes; the environment may say something else
LENGTHS = {
    "SOAK_EXAMPLES": "300",
    "TEST_AGENT_CYCLES": "1000",
    "SOAK_TROUBLE": "3600",
    "SOAK_RACES": "10000",
    "SOAK_EVENTS": "100000",
}

# what is skipped is summed up by the conftest
AGENT_TESTS = pytest("tests/agents -m agents -n 2 --dist loadgroup -rfE")
WEB_TESTS = pytest("tests/web -n 2 --dist loadfile -rs -m", "web or not web")
# without its dependencies: only the script in it is used
AXE = "axe-playwright-python==0.1.8"
TYPESCRIPT = "typescript@5.9.3"  # Debian's is too old for the browser's newer functions
NPM = f"{sys.prefix}/npm"  # a directory for each package
TSC = f"{NPM}/{TYPESCRIPT}/node_modules/.bin/tsc"
BIOME = "@biomejs/biome@2.6.8"  # formats and lints the client; biome.json says how

MEMORY = "/dev/shm"
ROOM = 4 * 2**30  # bytes that tests may need at once


def main(arguments: list[str]) -> int:
    try:
        return COMMANDS[arguments[0]](arguments[1:])
    except Missing as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        return 130


def lint(_: list[str]) -> int:
    """The client's JavaScript and style too where npm is, which brings their tool."""
    code = run([*LINTERS, *TYPES])
    if shutil.which("npm") is None:
        sys.stdout.write("NOT CHECKED: the client's JavaScript and style; npm is missing.\n")
        return code
    biome = [
        npm_program(BIOME, "biome", "Installing the client's linter"),
        "ci",
        "--error-on-warnings",
    ]
    return subprocess.run(biome).returncode or code


def npm_program(package: str, program: str, title: str) -> str:
    """Return the path of a program of an npm package, installed when it is not there."""
    place = f"{NPM}/{package}"
    path = f"{place}/node_modules/.bin/{program}"
    if not os.path.exists(path):
        with only_one() as lock:
            run_step(["npm", "install", "--silent", "--prefix", place, package], title, lock)
    return path


def test(arguments: list[str]) -> int:
    """Run the linters but not the type checker, which takes as long as a tenth of the tests."""
    return run([*LINTERS, ("tests", suite(arguments))])


def test_slow(arguments: list[str]) -> int:
    return run([("tests", suite(["-m", "slow and not agents and not web", *arguments]))])


def suite(arguments: list[str]) -> list[str]:
    """Return the words of pytest; the longest files are begun first (tests/conftest.py)."""
    # more workers than cores, for many tests wait for something
    workers = str(min(MOST_WORKERS, 2 * (os.cpu_count() or 1)))
    use_memory()
    where = ["-n", workers, "--dist", "loadfile", "--no-loadscope-reorder"]
    return ["-m", "pytest", *where, *arguments]


def repeat(arguments: list[str]) -> int:
    """Run the suite so often, every other time with a busy process for each core."""
    times, command = int(arguments[0]), suite(["-q", *arguments[1:]])
    failed = 0
    for number in range(1, times + 1):
        count = (os.cpu_count() or 1) * (number % 2 == 0)
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        try:
            failed += run([("tests", command)])
        finally:
            for process in busy:
                process.kill()
                process.wait()
        sys.stdout.write(f"run {number} of {times}, {count} busy: {failed} failed so far\n\n")
    return min(failed, 1)


def use_memory() -> None:
    """Have temporary files in memory if there is room: there a commit waits for no disk."""
    if sys.platform == "linux" and os.access(MEMORY, os.W_OK):
        found = os.statvfs(MEMORY)
        if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= ROOM:
            os.environ["TMPDIR"] = str(MEMORY)


def soak(arguments: list[str]) -> int:
    """The long runs; with arguments, the crash tests alone with them: what is said last counts."""
    for name, value in LENGTHS.items():
        os.environ.setdefault(name, value)
    return run([("crashes", [*CRASHES, *arguments]), *([] if arguments else OTHERS)])


def test_agents(arguments: list[str]) -> int:
    """Where Node is, the agents must be installed and run; the last lines say what was skipped."""
    install.install_agents()
    if not install.missing_node():
        os.environ[install.REQUIRED] = "1"
    return run([("agents", [*AGENT_TESTS, *arguments])])


def test_web(arguments: list[str]) -> int:
    """Where chromium and npm are, what checks the pages and the types is installed, and run."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if not missing:
        name, _, version = AXE.partition("==")
        if not any(one.version == version for one in metadata.distributions(name=name)):
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", AXE]
            with only_one() as lock:
                run_step(pip, "Installing the accessibility checker", lock)
    if shutil.which("npm"):
        npm_program(TYPESCRIPT, "tsc", "Installing the type checker")
    use_memory()
    code = run([("web", [*WEB_TESTS, *arguments])])
    if missing:
        sys.stdout.write(
            f"NOT TESTED: the web client in a browser. {' and '.join(missing)} missing: install the"
            " packages chromium and chromium-driver.\n"
        )
    return code


def mac_check(arguments: list[str]) -> int:
    """Print what is needed to judge the bridge on this system, and run the tests that tell it."""
    for words in (["sw_vers"], ["uname", "-a"], ["git", "--version"], ["mount"]):
        if shutil.which(words[0]):
            said = subprocess.run(words, capture_output=True, text=True, errors="replace").stdout
            sys.stdout.write(f"== {' '.join(words)}\n{said}")
    sys.stdout.write(f"== python\n{sys.version}\nSQLite {sqlite3.sqlite_version}\n")
    sys.stdout.write(f"encodings: {sys.getfilesystemencoding()}, {sys.stdout.encoding}\n")
    sys.stdout.write(f"open files: {resource.getrlimit(resource.RLIMIT_NOFILE)}\n== ways\n")
    sys.stdout.writelines(f"{way}: {name}\n" for way, name in ways.chosen().items())
    tests = ["-rfEsx", "-n", "2", "--dist", "loadfile", "--timeout", "300", "--tb=short"]
    return run([("tests", ["-m", "pytest", *tests, *(arguments or PORTABLE_TESTS)])])


def bench(arguments: list[str]) -> int:
    return run([("bench", ["-m", "tests.performance", *arguments])])


def run(steps: Sequence[Step]) -> int:
    """Run every step, also after one failed; 1 when one did. None sees a setting of the shell."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("BRIDGE_") and name not in OF_THE_SHELL
    }
    ends = []
    with tempfile.TemporaryDirectory(prefix="bridge-checks-") as directory:
        for name, arguments in steps:
            sys.stdout.write(f"== {name}\n")
            sys.stdout.flush()
            own = environment if name == "tests" else environment | {"BRIDGE_DATA_DIR": directory}
            started = time.monotonic()
            failed = subprocess.run([sys.executable, *arguments], env=own).returncode
            took = time.monotonic() - started
            ends.append(f"{name}: {'FAILED' if failed else 'ok'} ({took:.0f} s)")
    sys.stdout.write(f"\n{'   '.join(ends)}\n")
    return int(any("FAILED" in end for end in ends))


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "lint": lint,
    "test": test,
    "test-slow": test_slow,
    "soak": soak,
    "test-agents": test_agents,
    "test-web": test_web,
    "repeat": repeat,
    "bench": bench,
    "mac-check": mac_check,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
