"""schemathesis over the served OpenAPI document, with all of its checks: no 500, and no answer that
the document does not describe, but for what ``openapi_hooks`` allows. Each run is the same.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template

import pytest

from tests.conformance.agents import begin
from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.conftest import HOOKS_CONFIG
from tests.conformance.samples import hook
from tests.conformance.test_attachments import sent
from tests.faults.quick import QuickBridge

PATIENT = 600  # seconds: a quiet machine needs a tenth
pytestmark = pytest.mark.timeout(PATIENT)

SESSIONS = ["plain", "with space", "team/project", "ünï 😀", "100%", "a?b=c#d", "closed"]
DRIVEN = "driven"  # by the bridge: it takes attachments
FILES = ["note.txt", "picture.png", "way out", "deep", "../docs/note.txt"]
PATHS = [".", "docs", *(f"docs/{name}" for name in FILES), "/etc/passwd"]
OPERATIONS = 20


class Furnished(QuickBridge):
    """It has an attachment of the session DRIVEN."""

    attached = ""


@pytest.fixture(scope="module")
def furnished(
    make_bridge: Callable[..., Bridge], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Furnished]:
    """A bridge with sessions and files, so that not all that is asked for is missing."""
    config = tmp_path_factory.mktemp("hooks") / "hooks.json"
    config.write_text(json.dumps(HOOKS_CONFIG))
    bridge = make_bridge("openapi", kind=Furnished, BRIDGE_HOOKS_CONFIG=str(config))
    assert isinstance(bridge, Furnished)
    kinds = ("SessionStart", "PostToolUse")
    events = [hook(event, session_id) for session_id in SESSIONS for event in kinds]
    bridge.accept(*events, hook("SessionEnd", "closed"))
    docs = bridge.root / "docs"
    (docs / "deep" / "deeper").mkdir(parents=True)
    (docs / "note.txt").write_text("ü\n")
    (docs / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    (docs / "way out").symlink_to("/etc")
    (bridge.root / "README.md").write_text("# What the document's example asks for\n")
    with bridge.phones() as [phone]:
        begin(bridge, phone, DRIVEN)
        bridge.attached = sent(bridge, DRIVEN)["attachment_id"]
        yield bridge


def configuration(bridge: Furnished) -> str:
    """schemathesis.toml; JSON's strings, lists and booleans are TOML's."""
    sessions = [*SESSIONS, DRIVEN]
    values = {"sessions": json.dumps(sessions, ensure_ascii=False), "paths": json.dumps(PATHS)}
    values |= {"attached": json.dumps([bridge.attached]), "driven": json.dumps([DRIVEN])}
    values |= {"hook_token": bridge.hook_token, "admin_token": bridge.admin_token}
    template = Template(Path(__file__).with_name("schemathesis.toml").read_text())
    return template.substitute(values, device_token=bridge.device_token())


@pytest.mark.slow
def test_with_the_right_token_for_each(furnished: Furnished, tmp_path: Path) -> None:
    """The document's examples, values at every bound, and random ones."""
    # from a file: a document at an address of its own is left out of the test
    document, config = tmp_path / "openapi.json", tmp_path / "schemathesis.toml"
    document.write_bytes(furnished.get("/api/v1/schema").body)
    config.write_text(configuration(furnished), encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)),
            *("run", str(document), "--url", f"https://127.0.0.1:{furnished.port}", "--no-color"),
            *("--continue-on-failure", "--phases", "examples,coverage,fuzzing"),
            *("--generation-deterministic", "-n", "3"),
            *("--report", "json", "--report-json-path", str(tmp_path / "run.json")),
        ],
        cwd=REPOSITORY,
        # no certificate is checked: none need be read for each connection
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SSL_CERT_FILE": os.devnull},
        capture_output=True,
        text=True,
        timeout=PATIENT,
    )
    said = f"{done.stdout[-30_000:]}\n{done.stderr[-3000:]}\nThe bridge's log: {furnished.tail()}"
    assert done.returncode == 0, said
    report = json.loads((tmp_path / "run.json").read_text())
    assert report["complete"] and not report["errors"], report
    assert report["operations"]["tested"] == OPERATIONS
    phases = {name: phase["status"] for name, phase in report["phases"].items()}
    assert phases.pop("stateful") == "skip" and set(phases.values()) == {"success"}, phases
    rates = report["valid_rates"].items()
    never = {name for name, of in rates if not any(phase["accepted"] for phase in of.values())}
    assert never == {"GET /api/v1/ws"}
