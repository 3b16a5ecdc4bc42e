"""`doctor` and a real bridge: healthy, then with faults, each named with what mends it (D43)."""

import fcntl
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from bridge_project.kernel.config import Conf
from bridge_project.network import certificates
from hooks_app.producer.agents import AGENTS
from hooks_app.producer.forwarder import Forwarder
from hooks_app.producer.https_sender import HttpsSender
from hooks_app.producer.install import install
from hooks_app.producer.spool import Spool
from tests import portable
from tests.agents.drive import carrying
from tests.conformance.agent_tools import PROGRAM
from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge
from tests.hooks.conftest import put, waiting
from tests.hooks.scripted import ScriptedBridge
from tests.servers import free_port

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """It runs behind a trusted proxy, with its hooks in an agent's settings file."""
    directory = tmp_path_factory.mktemp("examined")
    agent = directory / "agent"
    behind = {"BRIDGE_PLAIN_PORT": str(free_port()), "BRIDGE_TRUSTED_PROXIES": "127.0.0.1"}
    agent.mkdir()
    own = QuickBridge(directory, BRIDGE_MAX_WEBSOCKETS="1", CLAUDE_CONFIG_DIR=str(agent), **behind)
    (agent / "settings.json").write_text(install("{}\n", str(own.data / "spool")))
    with own:
        yield own


# a busy machine may take longer than a person would wait
PATIENT = """
from bridge_project.operations.doctor import agents, checks, round_trip
agents.DEMO_SECONDS = checks.ALL_CHECKS_SECONDS = checks.EVENT_CHECK_SECONDS = 300
round_trip.EVENT_SECONDS = round_trip.HOOK_SECONDS = 300
"""


def doctor(
    bridge: Bridge, *words: str, first: str = PATIENT, **settings: str
) -> subprocess.CompletedProcess[str]:
    """`doctor --json` of this bridge with these settings; it executes `first` before all else."""
    asked = QuickBridge(bridge.directory, first=first, **bridge.settings | settings)
    done = asked.manage("doctor", "--json", *words, check=False)
    assert done.stdout and not done.stderr, done
    return done


def run_doctor(
    bridge: Bridge, *, expected: int, first: str = PATIENT, **environment: str
) -> dict[str, dict[str, Any]]:
    """The whole command, which shows no token; check → what it says, the first of several."""
    done = doctor(bridge, first=first, **environment)
    assert done.returncode == expected, done.stdout
    given = environment.get("BRIDGE_HOOK_TOKEN", bridge.hook_token)
    for secret in (given, bridge.hook_token, bridge.admin_token, "bridge_device_"):
        assert secret not in done.stdout
    told = json.loads(done.stdout)
    levels = {one["level"] for one in told["checks"]}
    assert told["status"] == next(one for one in ("broken", "warning", "ok") if one in levels)
    return {one["check"]: one for one in reversed(told["checks"])}


def says(one: dict[str, Any], level: str, *words: str, mend: str = "") -> None:
    """This is what a check found, and the commands that it gives have this."""
    assert one["level"] == level, one
    assert [word for word in words if word not in one["text"]] == [], one
    assert mend in "\n".join(one["mend"]), one


def test_healthy(bridge: Bridge) -> None:
    """While nothing is broken, a process as a user starts it; it leaves nothing behind."""
    done = Bridge.run(bridge, ["manage.py", "doctor"])
    assert done.returncode == 0, done
    said, lines = done.stdout, done.stdout.splitlines()
    marks = {line[2:15].strip(): line[0] for line in lines if line[:1] in "✓!✗" and line}
    good = {"bridge", "tokens", "certificate", "clock", "database", "disk", "files"}
    good |= {"spool", "hooks", "agents", "event", "system"}
    assert {name: marks.get(name) for name in good} == dict.fromkeys(good, "✓"), said
    # this one listens on 127.0.0.1
    assert marks["address"] == "!" and "no phone can reach it" in said
    address = next(number for number, line in enumerate(lines) if line.startswith("! address"))
    assert "BRIDGE_HOST=auto" in lines[address + 1]
    assert marks["proxy"] == "!" and "pairing codes lead past the proxy" in said
    assert "One went to a device" in said and lines[-1] == "0 broken, 2 warnings."
    assert bridge.hook_token not in said and bridge.admin_token not in said
    paths = "O_PATH" if portable.LINUX_WAYS else "O_NOFOLLOW"
    assert f"; paths: {paths}" in said
    authority = x509.load_pem_x509_certificate((bridge.data / "tls/ca.crt").read_bytes())
    assert authority.fingerprint(SHA256()).hex(":").upper() in said

    assert "doctor" not in bridge.manage("list_devices").stdout
    (last,) = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    assert last["title"] == "doctor" and last["status"] == "closed"
    with closing(sqlite3.connect(bridge.data / "bridge.sqlite3")) as database:
        rows = [row[0] for row in database.execute("SELECT frame FROM sessions_app_logrow")]
    assert rows and not [row for row in rows if "New device" in row], "nobody is alarmed"
    assert "One went to a device" in run_doctor(bridge, expected=0)["event"]["text"]
    (next_,) = bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    assert next_["id"] != last["id"], "the list does not grow"
    assert waiting(bridge.data / "spool") == []
    # neither error nor Error: a device that goes while its socket closes hurts nobody
    assert "rror" not in bridge.tail()


def test_hooks_of_other_agents(bridge: Bridge, tmp_path: Path) -> None:
    """Of those that report here; what is wrong with the files of others is not the bridge's."""
    spool, files = str(bridge.data / "spool"), {}
    for name in ("qwen", "codex", "copilot", "kimi"):
        agent = AGENTS[name]
        files[name] = tmp_path / Path(agent.home).relative_to("~") / agent.file
        files[name].parent.mkdir(parents=True)
        empty = "" if agent.form == "toml" else "{}"
        files[name].write_text(install(empty, spool, answers=True, agent=agent))
    old = json.loads(files["qwen"].read_text())
    del old["hooks"]["Stop"]
    files["qwen"].write_text(json.dumps(old))
    files["copilot"].write_text("{ no hooks, and no JSON")
    variables = {agent.variable: "" for agent in AGENTS.values() if agent.variable}
    mine = {"CLAUDE_CONFIG_DIR": bridge.settings["CLAUDE_CONFIG_DIR"], "HOME": str(tmp_path)}
    told = json.loads(doctor(bridge, **variables | mine).stdout)["checks"]
    claude, *others = (one for one in told if one["check"] == "hooks")
    says(claude, "ok", "claude-code reports")
    found = {one["text"]: one for one in others}
    assert len(found) == 3, found
    for name, where in (("codex", "can be answered from devices too"), ("kimi", "there only")):
        (text,) = (text for text in found if text.startswith(f"{name} reports to this bridge"))
        says(found[text], "ok", str(files[name]), where)
    (text,) = (text for text in found if str(files["qwen"]) in text)
    says(found[text], "warning", "not all there", mend="hooks ARGS=qwen")


def test_other_settings_than_the_bridge_has(bridge: Bridge) -> None:
    other = "another-hook-token-of-32-characters-or-more"
    others = {"BRIDGE_HOOK_TOKEN": other, "BRIDGE_TRUSTED_PROXIES": "", "BRIDGE_PORT": "8443"}
    told = run_doctor(bridge, expected=1, **others)
    wider = f"BRIDGE_HOST=auto BRIDGE_PORT={bridge.port} "
    says(told["address"], "warning", "no phone can reach it", mend=wider)
    says(told["proxy"], "broken", "no proxy is trusted", mend="BRIDGE_TRUSTED_PROXIES=127.0.0.1")
    says(told["tokens"], "broken", "hook token", mend="BRIDGE_HOOK_TOKEN")
    assert "make run" in told["tokens"]["mend"][0]
    assert told["event"]["level"] == "ok"  # the forwarder has the bridge's own


def test_all_sockets_are_taken(bridge: Bridge) -> None:
    with bridge.phones(1):
        told = run_doctor(bridge, expected=0)
    says(told["event"], "warning", "no device could be tried", mend="BRIDGE_MAX_WEBSOCKETS=2")


def test_a_forwarder_of_another_machine_that_is_behind(bridge: Bridge, tmp_path: Path) -> None:
    """It says so with what it sends; the file of its oldest event is five minutes old (D47)."""
    spool, token = tmp_path / "spool", tmp_path / "token"
    spool.mkdir()
    token.write_text(bridge.hook_token)
    url = f"https://127.0.0.1:{bridge.port}"
    sender = HttpsSender(url, token, bridge.pairing().pin)
    put(spool, "1", time.time() - 300)
    assert Forwarder(spool, sender).run_once() == 1
    told = run_doctor(bridge, expected=0)
    says(told["forwarders"], "warning")
    assert re.search(r"127\.0\.0\.1 is 3\d\d\b", told["forwarders"]["text"])
    info = bridge.get("/api/v1/info", bridge.hook_token).json()
    assert "forwarders" not in info  # whose addresses those are is the owner's business


def test_a_locked_database(bridge: Bridge) -> None:
    with bridge.locked():
        told = run_doctor(bridge, expected=1)
    says(told["database"], "broken", "locked", mend="fuser")
    assert "event" not in told


def test_a_bridge_that_hangs(bridge: Bridge) -> None:
    with bridge.asleep():
        told = run_doctor(bridge, expected=1)
    pid = bridge.running.pid
    says(told["bridge"], "broken", f"Process {pid} holds", mend=f"kill {pid}")


@pytest.fixture
def data(bridge: Bridge, tmp_path: Path) -> Path:
    copy = tmp_path / "data"
    shutil.copytree(bridge.data, copy, ignore=shutil.ignore_patterns("*.sock", "*-wal", "*-shm"))
    return copy


def record(data: Path, **changes: str) -> None:
    recorded = json.loads((data / "server.json").read_text())
    (data / "server.json").write_text(json.dumps(recorded | changes))


def test_something_else_answers(bridge: Bridge, data: Path) -> None:
    record(data, pin="ab" * 32)
    told = run_doctor(bridge, expected=1, BRIDGE_DATA_DIR=str(data))
    says(told["bridge"], "broken", "no token was sent")
    assert "tokens" not in told
    tunnel = ScriptedBridge()  # it has no page, as the one who answers for a dead tunnel
    tunnel.start()
    record(data, pin=bridge.pairing().pin, base_url=tunnel.url)
    changed = {"BRIDGE_DATA_DIR": str(data), "BRIDGE_PUBLIC_URL": tunnel.url}
    told = run_doctor(bridge, expected=1, **changed)
    tunnel.stop()
    says(told["address"], "warning", "answers 501, which is not the bridge")


def test_a_name_that_the_authority_is_not_good_for(bridge: Bridge, data: Path) -> None:
    """D55: the public URL was changed after the authority was made."""
    record(data, base_url="https://other.invalid")
    changed = {"BRIDGE_DATA_DIR": str(data), "BRIDGE_PUBLIC_URL": "https://other.invalid"}
    told = run_doctor(bridge, expected=1, **changed)
    says(told["browser"], "warning", "not for other.invalid", mend="manage.py new_ca")
    says(told["certificate"], "warning", "It lacks other.invalid", mend="manage.py new_ca")


def test_stopped_or_never_started(bridge: Bridge, tmp_path: Path) -> None:
    """From here on it is stopped, and what lies in its data directory is at fault."""
    bridge.stop()
    told = run_doctor(bridge, expected=1)
    says(told["bridge"], "broken", "does not run", "nothing listens there", mend="make run")
    told = run_doctor(bridge, expected=1, BRIDGE_PORT=str(free_port()))  # it was for one start
    says(told["bridge"], "broken", "nothing listens", mend=f"BRIDGE_PORT={bridge.port} ")
    says(told["event"], "warning", "No event was sent")
    assert {told[name]["level"] for name in ("database", "certificate")} == {"ok"}
    says(told["hooks"], "ok", "ask nobody, until it has")
    told = run_doctor(bridge, expected=1, BRIDGE_DATA_DIR=str(tmp_path / "new"))
    says(told["bridge"], "broken", "never started", mend="make run")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700 and told["files"]["level"] == "ok"


@pytest.fixture
def stopped(bridge: Bridge) -> None:
    if bridge.process is not None and bridge.process.poll() is None:
        bridge.stop()


def at(moment: datetime) -> str:
    return f"import time_machine\ntime_machine.travel({moment.timestamp()}, tick=True).start()\n"


def ends(data: Path) -> datetime:
    leaf = x509.load_pem_x509_certificate((data / "tls/server.crt").read_bytes())
    return leaf.not_valid_after_utc


def faults_of(data: Path, bridge: Bridge, first: str = "", **more: str) -> dict[str, Any]:
    """What is said of this directory; the agent's settings are beside it."""
    where = {"BRIDGE_DATA_DIR": str(data), "CLAUDE_CONFIG_DIR": str(data.parent)}
    return run_doctor(bridge, expected=1, first=PATIENT + first, **where | more)


@pytest.mark.usefixtures("stopped")
def test_damaged(bridge: Bridge, data: Path) -> None:
    other = Conf(bridge_data_dir=data.parent / "other", bridge_host="127.0.0.1")
    shutil.copyfile(certificates.load_or_renew(other).chain, data / "tls/server.crt")
    (data / "tls/server.key").chmod(0o644)
    (data / "spool/full").touch()
    record(data, base_url="http://bridge.example")
    (data / "bridge.sqlite3").write_bytes(b"SQLite format 3\x00" + b"\xff" * 8000)
    (data.parent / "settings.json").write_text("{not JSON")
    told = faults_of(data, bridge, REDIS_URL=f"redis://:sesame-open@127.0.0.1:{free_port()}/0")
    says(told["certificate"], "broken", "is not the key of", mend="make run")
    says(told["files"], "broken", "mode 0644")
    says(told["address"], "broken", mend="BRIDGE_PUBLIC_URL='https://")
    says(told["spool"], "broken", "It is full", mend="make run")
    says(told["database"], "broken", "damaged", mend=f"mv {data}/bridge.sqlite3 ")
    says(told["hooks"], "broken", mend=str(data.parent / "settings.json"))
    says(told["redis"], "broken", mend="unset REDIS_URL")
    assert "sesame" not in str(told)
    # the command that it gives is the one that mends it
    subprocess.run(["/bin/sh", "-c", *told["files"]["mend"]], check=True)
    assert (data / "tls/server.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("stopped")
def test_of_another(bridge: Bridge, data: Path) -> None:
    other = Conf(bridge_data_dir=data.parent / "other", bridge_host="127.0.0.1")
    found = certificates.load_or_renew(other)
    given = {"BRIDGE_TLS_CERT": str(found.chain), "BRIDGE_TLS_KEY": str(found.key)}
    put(data / "spool", "4712", time.time() - 7200)
    with closing(sqlite3.connect(data / "bridge.sqlite3")) as database:
        newer = "INSERT INTO django_migrations (app, name, applied) VALUES (?, ?, ?)"
        database.execute(newer, ("sessions_app", "9999_from_the_future", "2030-01-01"))
        database.commit()
    (data.parent / "settings.json").write_text(install("{}", "/elsewhere/spool"))
    told = faults_of(data, bridge, BRIDGE_ADMIN_TOKEN="", **given)
    says(told["certificate"], "broken", "another key than", mend=f"{found.chain} and {found.key}")
    says(told["files"], "broken", "A token is missing", mend="make run")
    says(told["spool"], "warning", "1 events wait, the oldest for 2:0", mend="make run")
    says(told["database"], "broken", "newer version")
    says(told["hooks"], "warning", "another data directory", mend="make hooks")


@pytest.mark.usefixtures("stopped")
def test_expired(bridge: Bridge, data: Path) -> None:
    spool, hooks = Spool(data / "spool"), json.loads(install("{}", str(data / "spool")))
    put(data / "spool", "4711")
    spool.set_aside(spool.files()[0], "not JSON")
    data.chmod(0o755)
    del hooks["hooks"]["Stop"]
    (data.parent / "settings.json").write_text(json.dumps(hooks))
    nowhere = f"postgres://me:ab@sesame-open@127.0.0.1:{free_port()}/bridge"
    own = {"BRIDGE_TLS_CERT": f"{data}/tls/server.crt", "BRIDGE_TLS_KEY": f"{data}/tls/server.key"}
    told = faults_of(data, bridge, at(ends(data) + timedelta(days=1)), DATABASE_URL=nowhere, **own)
    assert "sesame" not in str(told)
    says(told["certificate"], "broken", "expired on", mend="openssl x509 ")
    says(told["database"], "broken", "does not answer", mend="pg_isready -h 127.0.0.1 -p ")
    says(told["spool"], "warning", "1 events were refused for good and set aside: not JSON.")
    says(told["hooks"], "warning", "not all there", mend="make hooks")
    says(told["files"], "broken", "mode 0755", mend="chmod -R go=")


@pytest.mark.usefixtures("stopped")
def test_a_clock_that_was_set_back(bridge: Bridge, data: Path) -> None:
    with closing(sqlite3.connect(data / "bridge.sqlite3")) as database:
        database.execute("DELETE FROM django_migrations")
        database.commit()
    (data / ".env").write_text("export BRIDGE_PUBLIC_URL=https://localhost:1\n")
    (data / ".env").chmod(0o644)
    with (data / "serve.lock").open("a") as served:
        fcntl.flock(served, fcntl.LOCK_EX)
        told = faults_of(data, bridge, at(ends(data) - timedelta(days=1000)))
    subprocess.run(["sh", "-c", told["address"]["mend"][0].partition("; BRIDGE_HOST=")[0]])
    assert (data / ".env").read_text().startswith("# export BRIDGE_PUBLIC_URL=")
    says(told["certificate"], "broken", "is the clock right?", mend="timedatectl")
    says(told["clock"], "broken", "set back", mend="timedatectl")
    says(told["files"], "ok", "is private")  # .env, as an editor makes it, is in it
    says(told["database"], "broken", "still to be made", mend="make upgrade")
    says(told["hooks"], "warning", "No agent reports", mend="make hooks")


MARK = f"never-{uuid.uuid4()}"


def said_of_agents(bridge: Bridge, *words: str, first: str = PATIENT) -> list[dict[str, Any]]:
    commands = {
        "acp": [sys.executable, "-IS", str(PROGRAM), "plain", str(bridge.directory / "journal")],
        "gone": ["no-such-agent", "--acp"],
        # a semicolon would end the command in BRIDGE_ACP_AGENTS
        "mute": [sys.executable, "-c", "__import__('time').sleep(600)", MARK],
    }
    lines = "; ".join(f"{name}={shlex.join(line)}" for name, line in commands.items())
    done = doctor(bridge, *words, first=first, BRIDGE_ACP_AGENTS=lines)
    return [one for one in json.loads(done.stdout)["checks"] if "agent" in one["check"]]


def test_the_agent_that_is_asked_for_is_started(bridge: Bridge) -> None:
    """D41, `doctor --agent NAME`: one that cannot start is a fault when it is asked for."""
    told = said_of_agents(bridge, "--agent", "acp")
    said = {one["text"].split()[0]: one for one in told}
    says(said["demo"], "ok", "answered a prompt")
    says(said["gone"], "warning", mend="BRIDGE_ACP_AGENTS='gone=")
    says(told[-1], "warning", "acp (", "started, was closed, without a prompt")
    assert "version unknown" not in told[-1]["text"]
    for name, words in (("gone", "no-such-agent"), ("nobody", "known are: ")):
        last = said_of_agents(bridge, "--agent", name)[-1]
        says(last, "broken", words)
        assert last["mend"]
    without = f"import sys\nsys.modules['claude_agent_sdk'] = None\n{PATIENT}"
    done = doctor(bridge, "--agent", "claude-code", first=without, BRIDGE_AGENTS="claude-code")
    last = [one for one in json.loads(done.stdout)["checks"] if "agent" in one["check"]][-1]
    says(last, "broken", "claude-code was not started: ", mend="install")


def test_an_agent_that_never_answers_is_ended(bridge: Bridge) -> None:
    """It has a time of its own, and its process is gone when that is over."""
    first = f"{PATIENT}agents.REAL_SECONDS = 2\n"
    told = said_of_agents(bridge, "--agent", "mute", first=first)[-1]
    says(told, "broken", "did not start within 2 s")
    assert carrying(MARK) == []


NAME = "desk.tail1234.ts.net"
RUNNING = {"BackendState": "Running", "Self": {"DNSName": f"{NAME}."}}
TAILSCALE = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/asked"
case $1 in serve) echo {};; *) cat "$(dirname "$0")/status";; esac
"""


@pytest.mark.usefixtures("stopped")
def test_an_address_for_a_browser(bridge: Bridge, data: Path, tmp_path: Path) -> None:
    """D55: by the bridge's authority; by Tailscale where it runs, which is never configured."""
    nowhere, program = f"https://bridge.internal:{bridge.port}", tmp_path / "tailscale"
    record(data, base_url=nowhere)
    program.write_text(TAILSCALE)
    program.chmod(0o755)

    def told(status: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "status").write_text(json.dumps(status))
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "BRIDGE_PUBLIC_URL": nowhere}
        found: dict[str, Any] = faults_of(data, bridge, **path)["browser"]
        return found

    found = told({"BackendState": "Stopped"})
    says(found, "ok", "/app/ is trusted once", "/ca.mobileconfig")
    assert "Tailscale" not in found["text"]

    found, port = told(RUNNING), bridge.port
    for command in (
        f"tailscale serve --bg https+insecure://127.0.0.1:{port}",
        f"BRIDGE_PUBLIC_URL=https://{NAME} BRIDGE_TRUSTED_PROXIES=127.0.0.1",
        "tailscale cert --cert-file ",
        f".key {NAME}",
        f"BRIDGE_PUBLIC_URL=https://{NAME}:{port}",
    ):
        says(found, "warning", mend=command)
    asked = set((tmp_path / "asked").read_text().splitlines())
    assert asked == {"status --json", "serve status --json"}
