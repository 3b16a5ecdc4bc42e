"""What the bridge starts looks for secrets in its own environment and the bridge's (D45)."""

import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attack.conftest import answer
from tests.conformance.agent_tools import Script, quick_bridge, script_of
from tests.conformance.agents import begin, end, say
from tests.conformance.approvals import of
from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work
from tests.conformance.samples import prompt

pytestmark = pytest.mark.slow

HOOK, ADMIN, SMALL, PASSWORD, TOPIC = (secrets.token_urlsafe(32) for _ in range(5))
HIDDEN = {
    "bridge_hook_token": SMALL,  # not the one in force, but it looks like it
    "Bridge_Admin_Token_File": "/nowhere",
    "Database_Url": "sqlite:////nowhere/at/all",
    "MY_COPY": f"Bearer {ADMIN}",
    "django_secret_key": "the old one",
    "PGPASSWORD": PASSWORD,
    "BRIDGE_NOTIFY_URLS": f"ntfys://ntfy.example/{TOPIC}",
    "ntfy_topic": TOPIC,
    "BACKUP_LINE": f"pg_dump postgres://me:{PASSWORD}@localhost/it",
    "pgpassfile": "/nowhere",
    "REDISCLI_AUTH": "sesame",
    "CREDENTIALS_DIRECTORY": "/run/credentials/bridge.service",
    "INVOCATION_ID": "00112233445566778899aabbccddeeff",
    # a debugger's, and another agent's session
    "NODE_INSPECT_RESUME_ON_START": "1",
    "BUN_INSPECT": "ws://127.0.0.1:0/",
    "BUN_OPTIONS": "--inspect-wait",
    "AI_AGENT": "another@1",
    "COPILOT_CLI": "1",
    "PYTHONSTARTUP": "/nowhere",
    "CLAUDECODE": "1",
    "CLAUDE_CODE_SESSION_ID": "00112233-4455-6677-8899-aabbccddeeff",
    "CODEX_THREAD_ID": "00112233-4455-6677-8899-aabbccddeeff",
}
NODE = "--max-old-space-size=4000"
OWN = {
    "CODEX_HOME": "/nowhere",
    "ANTHROPIC_API_KEY": "the user's own",
    "PGHOST": "localhost",
    "TZ": "Asia/Tokyo",
}

script = script_of("plain")


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Bridge]:
    place = tmp_path_factory.mktemp("environments")
    (place / "bridge data").mkdir(mode=0o700)
    (place / "bridge data/.env").write_text(
        f"bridge_port=1\nBRIDGE_PROT=1\nBRIDGE_HOOK_TOKEN={HOOK}\n"
    )
    (place / ".gitconfig").write_text(
        '[filter "looks"]\n\tclean = "env > ~/filter; cat"\n\trequired = true\n'
    )
    settings: dict[str, Any] = HIDDEN | OWN | {"HOME": str(place), "BRIDGE_DEMO_SHELL": "1"}
    settings["NODE_OPTIONS"] = f"--inspect-brk=127.0.0.1:0 {NODE} --require /x/js-debug/b.js"
    settings |= {"BRIDGE_HOOK_TOKEN": HOOK, "BRIDGE_ADMIN_TOKEN": ADMIN}
    with quick_bridge(place, script, **settings) as found:
        yield found


def assert_scrubbed(said: str) -> None:
    """What `env` printed is the user's, and of the bridge nothing but an agent's marks."""
    seen = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    assert {name: seen.get(name) for name in OWN} == OWN
    assert seen.get("NODE_OPTIONS") == NODE
    own = {name for name in seen if name.upper().startswith(("BRIDGE_", "DJANGO_"))}
    assert own <= {"BRIDGE_AGENT_OF", "BRIDGE_AGENT_RUN"}
    assert not set(seen) & set(HIDDEN)
    assert not any(secret in said for secret in (HOOK, ADMIN, SMALL, PASSWORD, TOPIC))


def test_what_is_no_setting_is_named(bridge: Bridge) -> None:
    """At the start and by `doctor`, without its value, and what may be meant."""
    body = prompt("environments", "hello")
    https = bridge.https()
    assert https.post("/api/v1/hooks/event", token=SMALL, json_body=body).status == 401
    assert https.post("/api/v1/hooks/event", token=HOOK, json_body=body).status == 200
    log, doctor = bridge.tail(), bridge.manage("doctor", check=False).stdout
    told = [line for line in log.splitlines() if "is no setting" in line]
    here, file = "the environment", str(bridge.data / ".env")
    for name, place in {
        "bridge_hook_token": here,
        "Bridge_Admin_Token_File": here,
        "Database_Url": here,
        "bridge_port": file,
        "BRIDGE_PROT": file,
    }.items():
        assert [line for line in told if f"={name.upper()}" in line and place in line], log
        assert f"{name} in {place} is not read" in doctor
    assert "is no setting; BRIDGE_PORT is." in doctor
    assert len(told) == 5 and SMALL not in log + doctor


def test_hooks_and_filters_of_a_commit(bridge: Bridge, phone: Phone) -> None:
    repository = Repository(bridge.root / "repository")
    repository.commit_files({".gitattributes": "*.txt filter=looks\n"})
    repository.hook("pre-commit", f"env > '{bridge.directory}/hook'")
    repository.write("a.txt", "1\n")
    Work(bridge, phone, repository.path).committed("Look around", ["a.txt"])
    for who in ("hook", "filter"):
        assert_scrubbed((bridge.directory / who).read_text())


def test_agents_and_their_commands(bridge: Bridge, phone: Phone, script: Script) -> None:
    session = begin(bridge, phone, agent="plain")
    (pid,) = script.processes()
    given = Path(f"/proc/{pid}/environ").read_text().replace("\0", "\n")
    assert_scrubbed(given)
    assert "AGENT_BRIDGE_SESSION=1" in given.splitlines(), "by which hooks report nothing twice"
    say(phone, session, f"/run env > '{bridge.root}/run'")
    answer(phone, session, "approved")
    assert_scrubbed((bridge.root / "run").read_text())
    end(phone, session)
    assert_scrubbed(run(bridge, phone, "env"))


def run(bridge: Bridge, phone: Phone, command: str) -> str:
    """What a command prints that `demo` runs, in a session of its own."""
    session = begin(bridge, phone)
    say(phone, session, f"/tool Bash {json.dumps({'command': command})}")
    answer(phone, session, "approved")
    end(phone, session)
    [result] = of(phone, "tool_result", session)
    return str(result["payload"]["result"]["content"])


NOBODY = 65534
BECOME = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all"]
# Some other Python of the same version in place of ours, which may lie where nobody else gets at
# it; it has our packages.
OTHER = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"PYTHONPATH={sysconfig.get_path('purelib')}"
PROBE = (
    "import subprocess, sys, django, pydantic; subprocess.run([sys.executable, '-c', ''], "
    "check=True)"
)
# Whether a process can be looked into: each way prints what it got, or why not.
LOOK = """
for name in environ mem maps fd/0; do (exec < /proc/$1/$name) 2>/dev/null && echo "$name is open"; done
ls /proc/$1/fd >/dev/null 2>&1 && echo fd is open
python3 -c 'import ctypes, sys; ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0) or print("traced")' "$1"
"""


@pytest.fixture(scope="module")
def as_user() -> list[str]:
    """The command that runs what follows as an ordinary user."""
    if platform.system() != "Linux":
        pytest.skip("only Linux can hide a process from its own user")
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("these tests run as root, and there is no setpriv to become another user")
    for words in ([], ["sh", "-c", f'shift; {PACKAGES} exec {OTHER} "$@"', "sh"]):
        probe = [*BECOME, *words, sys.executable, "-c", PROBE]
        if subprocess.run(probe, cwd=REPOSITORY, capture_output=True).returncode == 0:
            return [*BECOME, *words]
    pytest.skip(f"these tests run as root, and no other user can run {sys.executable} or {OTHER}")


def test_the_bridge_cannot_be_looked_into(as_user: list[str]) -> None:
    """Its files in /proc are root's, its children's are not; it works all the same."""
    with tempfile.TemporaryDirectory(prefix="bridge-environments-") as directory:
        bridge = Bridge(Path(directory), BRIDGE_DEMO_SHELL="1", HOME=directory)
        bridge.enter = as_user
        (Path(directory) / "look").write_text(LOOK)
        repository = Repository(bridge.root / "repository")
        repository.write("a.txt", "1\n")
        if as_user:
            for path in (Path(directory), *Path(directory).rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        bridge.start()
        try:
            with bridge.phones(1) as (phone,):
                look = f"sh {directory}/look"
                seen = run(bridge, phone, f"id -u; {look} {bridge.running.pid}")
                assert seen.split("\n", 1)[1] == ""
                seen = run(bridge, phone, f"sleep 1000 & {look} $!; kill $!")
                assert "environ is open" in seen and "fd is open" in seen, "the way to look works"
                Work(bridge, phone, repository.path).committed("It works", ["a.txt"])
            metrics = bridge.get("/metrics", bridge.admin_token).body
            assert b"process_open_fds" in metrics and b"process_resident_memory_bytes" in metrics
        finally:
            assert bridge.stop() == 0
