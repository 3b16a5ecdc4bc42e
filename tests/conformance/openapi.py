"""What tests of the served OpenAPI document have in common: a bridge with something in it,
schemathesis as a user runs it, and answers held against it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from schemathesis.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.conftest import HOOKS_CONFIG
from tests.conformance.https import Response
from tests.conformance.samples import hook
from tests.servers import free_port

SOAK_SECONDS = int(os.environ.get("SOAK_SECONDS") or 0)
PATIENT = 600 + 2 * SOAK_SECONDS  # seconds: a quiet machine needs a tenth

SESSIONS = [
    "plain",
    "with space",
    "team/project",
    "team/project/events",
    "ünï 😀",
    "100%",
    "a?b=c#d",
    "closed",
]
PATHS = [
    ".",
    "docs",
    "docs/note.txt",
    "docs/picture.png",
    "docs/way out",
    "docs/deep",
    "docs/../docs/note.txt",
    "/etc/passwd",
]
OPERATIONS = 16


@dataclass
class Run:
    """What schemathesis reports of a run."""

    output: str
    report: dict[str, Any]
    statuses: set[int]

    def accepted(self) -> set[str]:
        """The operations that took at least one valid request."""
        return {
            operation
            for operation, phases in self.report["valid_rates"].items()
            if any(phase["accepted"] for phase in phases.values())
        }


def furnish(bridge: Bridge) -> None:
    """Sessions, open and closed, and files, so that not all that is asked for is missing."""
    bridge.accept(
        *[
            hook(event, session_id)
            for session_id in SESSIONS
            for event in ("SessionStart", "PostToolUse")
        ],
        hook("SessionEnd", "closed"),
    )
    assert {
        session["id"]
        for session in bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]
    } >= set(SESSIONS)
    (bridge.root / "docs" / "deep" / "deeper").mkdir(parents=True)
    (bridge.root / "docs" / "note.txt").write_text("ü\n")
    (bridge.root / "README.md").write_text("# What the document's example asks for\n")
    (bridge.root / "docs" / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    (bridge.root / "docs" / "way out").symlink_to("/etc")


def configuration(tokens: dict[str, str]) -> str:
    """schemathesis.toml; JSON's strings, lists and booleans are TOML's."""
    lines = [
        "tls-verify = false",
        'hooks = "tests.conformance.openapi_hooks"',
        "[cache]",
        "enabled = false",
        "[analysis.constants]",
        "enabled = false",
    ]
    for name, values in (("sessions", SESSIONS), ("paths", PATHS)):
        lines += [f"[dictionaries.{name}]", f"values = {json.dumps(values, ensure_ascii=False)}"]
    lines += ["[parameters]"]
    lines += [
        f'"{name}" = {{ dictionary = "{values}", probability = 0.6 }}'
        for name, values in (("path.session_id", "sessions"), ("query.path", "paths"))
    ]
    # a hook endpoint's second address is the same view (D2), and a batch is a list of events: a few
    # requests show it
    lines += [
        "[[operations]]",
        f'include-path-regex = "{"^/hooks/" if SOAK_SECONDS else "^/hooks/|/hooks/batch$"}"',
        "phases.coverage.enabled = false",
    ]
    if tokens:
        lines += [
            "[auth.openapi]",
            *(f'{scheme} = {{ bearer = "{token}" }}' for scheme, token in tokens.items()),
        ]
    return "\n".join(lines)


def document_of(bridge: Bridge) -> bytes:
    answer = bridge.get("/api/v1/schema")
    assert answer.status == 200, answer
    return answer.body


def explore(
    bridge: Bridge, directory: Path, *arguments: str, tokens: dict[str, str] | None = None
) -> Run:
    """Its command, as a user runs it; AssertionError with what it printed unless it found
    nothing.
    """
    # from a file: a document at an address of its own is left out of the test
    (directory / "openapi.json").write_bytes(document_of(bridge))
    (directory / "schemathesis.toml").write_text(configuration(tokens or {}), encoding="utf-8")
    arguments += (
        ("--max-time", str(SOAK_SECONDS), "-n", "100000")
        if SOAK_SECONDS
        else ("--generation-deterministic",)
    )
    reports = [
        "--report",
        "json,har",
        "--report-json-path",
        str(directory / "run.json"),
        "--report-har-path",
        str(directory / "run.har"),
    ]
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(directory / "schemathesis.toml"),
        "run",
        str(directory / "openapi.json"),
    ]
    done = subprocess.run(
        [
            *command,
            "--url",
            f"https://127.0.0.1:{bridge.port}",
            "--no-color",
            "--continue-on-failure",
            *arguments,
            *reports,
        ],
        cwd=REPOSITORY,
        # no certificate is checked: none need be read for each connection
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SSL_CERT_FILE": os.devnull},
        capture_output=True,
        text=True,
        timeout=PATIENT,
    )
    assert done.returncode == 0, (
        f"{done.stdout[-30_000:]}\n{done.stderr[-3000:]}\nThe bridge's log: {bridge.tail()}"
    )
    report = json.loads((directory / "run.json").read_text())
    statuses = {
        entry["response"]["status"]
        for entry in json.loads((directory / "run.har").read_text())["log"]["entries"]
    }
    assert (
        report["complete"] and not report["errors"] and report["operations"]["tested"] == OPERATIONS
    ), report
    return Run(done.stdout, report, statuses)


@pytest.fixture(scope="module")
def furnished(
    make_bridge: Callable[..., Bridge], tmp_path_factory: pytest.TempPathFactory
) -> Bridge:
    config = tmp_path_factory.mktemp("hooks") / "hooks.json"
    config.write_text(json.dumps(HOOKS_CONFIG))
    bridge = make_bridge(
        "openapi", BRIDGE_HOOKS_CONFIG=str(config), BRIDGE_PLAIN_PORT=str(free_port())
    )
    furnish(bridge)
    return bridge


def all_tokens(bridge: Bridge) -> dict[str, str]:
    return {
        "deviceToken": bridge.device_token(),
        "hookToken": bridge.hook_token,
        "adminToken": bridge.admin_token,
    }


CONFORMANCE = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def described(operation: Any, answer: Response) -> None:
    """The document describes this answer of this operation: status, type, headers and body."""
    prepared = requests.Request(operation.method.upper(), "https://127.0.0.1/").prepare()
    headers = {name: [value] for name, value in answer.headers.items()}
    operation.Case(path_parameters={"session_id": "plain"}).validate_response(
        schemathesis.Response(answer.status, headers, answer.body, prepared, 0.1, False),
        checks=CONFORMANCE,
    )


def operations_of(document: bytes) -> list[Any]:
    found = list(schemathesis.openapi.from_dict(json.loads(document)).get_all_operations())
    assert len(found) == OPERATIONS
    return [one.ok() for one in found if isinstance(one, Ok)]
