"""schemathesis over the served OpenAPI document, against a running bridge: no 500, and no answer that the document does not describe.

All of its checks are on. What the decisions allow on purpose and a schema cannot say is in ``openapi_hooks``, narrowly and with the reason.
The runs are the same each time and short; SOAK_SECONDS=600 makes each take so long, with new inputs.
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
from schemathesis.checks import content_type_conformance, response_headers_conformance, response_schema_conformance, status_code_conformance
from schemathesis.core.result import Ok

from tests.conformance.bridge import REPOSITORY, Bridge
from tests.conformance.conftest import HOOKS_CONFIG, LONGEST
from tests.conformance.https import Https, Response
from tests.conformance.samples import hook
from tests.servers import free_port

SOAK_SECONDS = int(os.environ.get("SOAK_SECONDS") or 0)
pytestmark = pytest.mark.timeout(LONGEST + 2 * SOAK_SECONDS)

SESSIONS = ["plain", "with space", "team/project", "team/project/events", "ünï 😀", "100%", "a?b=c#d", "closed"]
PATHS = [".", "docs", "docs/note.txt", "docs/picture.png", "docs/way out", "docs/deep", "docs/../docs/note.txt", "/etc/passwd"]
OPERATIONS = 16


@dataclass
class Run:
    """What schemathesis reports of a run."""

    output: str
    report: dict[str, Any]
    statuses: set[int]

    def accepted(self) -> set[str]:
        """The operations that took at least one valid request."""
        return {operation for operation, phases in self.report["valid_rates"].items() if any(phase["accepted"] for phase in phases.values())}


def furnish(bridge: Bridge) -> None:
    """Sessions, open and closed, and files, so that not all that is asked for is missing."""
    bridge.accept(*[hook(event, session_id) for session_id in SESSIONS for event in ("SessionStart", "PostToolUse")], hook("SessionEnd", "closed"))
    assert {session["id"] for session in bridge.get("/api/v1/sessions", bridge.admin_token).json()["sessions"]} >= set(SESSIONS)
    (bridge.root / "docs" / "deep" / "deeper").mkdir(parents=True)
    (bridge.root / "docs" / "note.txt").write_text("ü\n")
    (bridge.root / "README.md").write_text("# What the document's example asks for\n")
    (bridge.root / "docs" / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    (bridge.root / "docs" / "way out").symlink_to("/etc")


def configuration(tokens: dict[str, str]) -> str:
    """schemathesis.toml; JSON's strings, lists and booleans are TOML's."""
    lines = ["tls-verify = false", 'hooks = "tests.conformance.openapi_hooks"', "[cache]", "enabled = false", "[analysis.constants]", "enabled = false"]
    for name, values in (("sessions", SESSIONS), ("paths", PATHS)):
        lines += [f"[dictionaries.{name}]", f"values = {json.dumps(values, ensure_ascii=False)}"]
    lines += ["[parameters]"]
    lines += [f'"{name}" = {{ dictionary = "{values}", probability = 0.6 }}' for name, values in (("path.session_id", "sessions"), ("query.path", "paths"))]
    if tokens:
        lines += ["[auth.openapi]", *(f'{scheme} = {{ bearer = "{token}" }}' for scheme, token in tokens.items())]
    return "\n".join(lines)


def document_of(bridge: Bridge) -> bytes:
    answer = bridge.get("/api/v1/schema")
    assert answer.status == 200, answer
    return answer.body


def explore(bridge: Bridge, directory: Path, *arguments: str, tokens: dict[str, str] | None = None, document: bytes = b"") -> Run:
    """Its command, as a user runs it; AssertionError with what it printed unless it found nothing."""
    (directory / "openapi.json").write_bytes(document or document_of(bridge))  # from a file: a document at an address of its own is left out of the test
    (directory / "schemathesis.toml").write_text(configuration(tokens or {}), encoding="utf-8")
    arguments += ("--max-time", str(SOAK_SECONDS), "-n", "100000") if SOAK_SECONDS else ("--generation-deterministic",)
    reports = ["--report", "json,har", "--report-json-path", str(directory / "run.json"), "--report-har-path", str(directory / "run.har")]
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(directory / "schemathesis.toml"), "run", str(directory / "openapi.json")]
    done = subprocess.run(
        [*command, "--url", f"https://127.0.0.1:{bridge.port}", "--no-color", "--continue-on-failure", *arguments, *reports],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SSL_CERT_FILE": os.devnull},  # no certificate is checked: none need be read for each connection
        capture_output=True,
        text=True,
        timeout=LONGEST + 2 * SOAK_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout[-30_000:]}\n{done.stderr[-3000:]}\nThe bridge's log: {bridge.tail()}"
    report = json.loads((directory / "run.json").read_text())
    statuses = {entry["response"]["status"] for entry in json.loads((directory / "run.har").read_text())["log"]["entries"]}
    assert report["complete"] and not report["errors"] and report["operations"]["tested"] == OPERATIONS, report
    return Run(done.stdout, report, statuses)


@pytest.fixture(scope="module")
def furnished(make_bridge: Callable[..., Bridge], tmp_path_factory: pytest.TempPathFactory) -> Bridge:
    config = tmp_path_factory.mktemp("hooks") / "hooks.json"
    config.write_text(json.dumps(HOOKS_CONFIG))
    bridge = make_bridge("openapi", BRIDGE_HOOKS_CONFIG=str(config), BRIDGE_PLAIN_PORT=str(free_port()))
    furnish(bridge)
    return bridge


def all_tokens(bridge: Bridge) -> dict[str, str]:
    return {"deviceToken": bridge.device_token(), "hookToken": bridge.hook_token, "adminToken": bridge.admin_token}


def test_with_the_right_token_for_each(furnished: Bridge, tmp_path: Path) -> None:
    """Every phase: the document's examples, values at every bound, random ones, and sequences along its links."""
    run = explore(furnished, tmp_path, "--phases", "examples,coverage,fuzzing,stateful", "-n", "8", tokens=all_tokens(furnished))
    assert all(phase["status"] == "success" for phase in run.report["phases"].values()), run.report["phases"]
    assert len(run.accepted()) == OPERATIONS - 1 and "GET /api/v1/ws" not in run.accepted(), run.report["valid_rates"]
    assert run.statuses >= {200, 202, 400, 401, 403, 404, 405}


@pytest.mark.parametrize("kind", ["device", "hook", "admin", None])
def test_with_the_same_token_for_all(furnished: Bridge, tmp_path: Path, kind: str | None) -> None:
    """Each kind of token, and none: what it may not do is answered as the document says too (D14)."""
    tokens = {"device": furnished.device_token(), "hook": furnished.hook_token, "admin": furnished.admin_token}
    header = ["-H", f"Authorization: Bearer {tokens[kind]}"] if kind else []
    run = explore(furnished, tmp_path, "--phases", "fuzzing", "-n", "8", *header)
    assert 200 in run.statuses and run.statuses & {401, 403}


def test_with_the_limits_on(make_bridge: Callable[..., Bridge], tmp_path: Path) -> None:
    """D16, D17: 429, and what comes with it, is in the document for every operation."""
    bridge = make_bridge("openapi limited", BRIDGE_RATE_LIMITS="on")
    document = document_of(bridge)
    for operation in operations_of(document):
        described(operation, refused_at_last(bridge, operation))
    # ignored_auth demands 401 or 403 of wrong tokens, who after ten of them get 429 (D16).
    run = explore(bridge, tmp_path, "--phases", "fuzzing", "-n", "6", "--exclude-checks", "ignored_auth", tokens=all_tokens(bridge), document=document)
    assert 429 in run.statuses


def refused_at_last(bridge: Bridge, operation: Any) -> Response:
    """The 429 that comes after as many requests as one may send in a minute."""
    token = bridge.hook_token if "hooks/" in operation.path else bridge.admin_token
    connection = bridge.https().open()
    try:
        for _ in range(2 * 120 + 2):  # the minute may end in between
            path = operation.path.replace("{session_id}", "plain")
            answer = bridge.https().request(operation.method.upper(), path, token=token, connection=connection)
            if answer.status == 429:
                return answer
    finally:
        connection.close()
    raise AssertionError(f"{operation.label} has no limit; the last answer: {answer}")


# -- what no generated request meets -------------------------------------------------------------------------------------------

CONFORMANCE = [status_code_conformance, content_type_conformance, response_headers_conformance, response_schema_conformance]
UPGRADE = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}


def described(operation: Any, answer: Response) -> None:
    """The document describes this answer of this operation: status, type, headers and body."""
    prepared = requests.Request(operation.method.upper(), "https://127.0.0.1/").prepare()
    headers = {name: [value] for name, value in answer.headers.items()}
    operation.Case(path_parameters={"session_id": "plain"}).validate_response(
        schemathesis.Response(answer.status, headers, answer.body, prepared, 0.1, False), checks=CONFORMANCE
    )


def operations_of(document: bytes) -> list[Any]:
    found = list(schemathesis.openapi.from_dict(json.loads(document)).get_all_operations())
    assert len(found) == OPERATIONS
    return [one.ok() for one in found if isinstance(one, Ok)]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "elsewhere.example"}, 400, "HOST_NOT_ALLOWED"),
        ({"X-Long": "x" * 20_000}, 400, "VALIDATION_ERROR"),
        ({"Content-Length": str(200 * 2**20)}, 413, "PAYLOAD_TOO_LARGE"),
        ({"X-Forwarded-Proto": "http"}, 403, "INSECURE_TRANSPORT"),
    ],
    ids=["host", "header", "body", "plain"],
)
def test_what_every_operation_can_answer(furnished: Bridge, headers: dict[str, str], status: int, code: str) -> None:
    """D9, D18, D19: before any view is asked."""
    plain = int(furnished.settings["BRIDGE_PLAIN_PORT"])
    https = Https(plain, plain=True) if code == "INSECURE_TRANSPORT" else furnished.https()
    for operation in operations_of(document_of(furnished)):
        answer = https.request(operation.method.upper(), operation.path.replace("{session_id}", "plain"), headers=headers)
        assert (answer.status, answer.json()["code"]) == (status, code), operation.label
        described(operation, answer)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Authorization": "Bearer " + "x" * 40}, 401, "AUTH_INVALID_TOKEN"),
        ({"Origin": "https://elsewhere.example"}, 403, "ORIGIN_NOT_ALLOWED"),
        ({"Host": "elsewhere.example"}, 400, "HOST_NOT_ALLOWED"),
        ({"Sec-WebSocket-Key": "short"}, 400, "VALIDATION_ERROR"),
        ({"Sec-WebSocket-Version": "7"}, 400, "VALIDATION_ERROR"),
    ],
)
def test_what_an_upgrade_can_be_answered(furnished: Bridge, headers: dict[str, str], status: int, code: str) -> None:
    """D18: the refusals of `GET /ws`."""
    [operation] = [one for one in operations_of(document_of(furnished)) if one.path == "/api/v1/ws"]
    answer = furnished.get("/api/v1/ws", headers=UPGRADE | headers)
    assert (answer.status, answer.json()["code"]) == (status, code)
    described(operation, answer)


@pytest.mark.parametrize("content_type", ["text/plain", "application/json; charset=latin-1", "application/x-www-form-urlencoded", ""])
def test_what_is_no_json_is_described(furnished: Bridge, content_type: str) -> None:
    """D9: 415, of every operation that takes a body."""
    operations = [one for one in operations_of(document_of(furnished)) if "requestBody" in one.definition.raw]
    assert len(operations) == 5
    for operation in operations:
        token = furnished.hook_token if "hooks" in operation.path else furnished.admin_token
        path = operation.path.replace("{session_id}", "plain")
        answer = furnished.https().request("POST", path, token=token, body=b"{}", headers={"Content-Type": content_type})
        assert (answer.status, answer.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE"), operation.label
        described(operation, answer)


@pytest.mark.parametrize(
    ("path", "filled", "status", "code"),
    [
        ("/api/v1/sessions/{session_id}/events", "/api/v1/sessions/closed%20again/events", 409, "SESSION_CLOSED"),
        ("/api/v1/files/content", "/api/v1/files/content?path=docs/large", 413, "FILE_TOO_LARGE"),
        ("/api/v1/files/content", "/api/v1/files/content?path=docs/way%20out/passwd", 403, "FILE_ACCESS_DENIED"),
    ],
)
def test_what_is_met_by_chance_only(furnished: Bridge, path: str, filled: str, status: int, code: str) -> None:
    """SPEC: closed session; D12."""
    with (furnished.root / "docs" / "large").open("wb") as large:
        large.truncate(11 * 2**20)
    furnished.accept(hook("SessionStart", "closed again"), hook("SessionEnd", "closed again"))
    [operation] = [one for one in operations_of(document_of(furnished)) if one.path == path]
    body: Any = ... if operation.method == "get" else {"type": "user_message", "content": "x"}
    answer = furnished.https().request(operation.method.upper(), filled, token=furnished.admin_token, json_body=body)
    assert (answer.status, answer.json()["code"]) == (status, code)
    described(operation, answer)
