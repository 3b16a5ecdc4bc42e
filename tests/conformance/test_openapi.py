"""schemathesis over the served OpenAPI document, against a running bridge: no 500, and no answer
that the document does not describe.

All of its checks are on. What the decisions allow on purpose and a schema cannot say is in
``openapi_hooks``, narrowly and with the reason. The run is the same each time and short;
SOAK_SECONDS=600 makes it take so long, with new inputs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
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
from tests.conformance.https import Https, Response
from tests.conformance.samples import hook
from tests.servers import free_port

SOAK_SECONDS = int(os.environ.get("SOAK_SECONDS") or 0)
PATIENT = 600 + 2 * SOAK_SECONDS  # seconds: a quiet machine needs a tenth
pytestmark = pytest.mark.timeout(PATIENT)

SESSIONS = ["plain", "with space", "team/project", "ünï 😀", "100%", "a?b=c#d", "closed"]
FILES = ["note.txt", "picture.png", "way out", "deep", "../docs/note.txt"]
PATHS = [".", "docs", *(f"docs/{name}" for name in FILES), "/etc/passwd"]
OPERATIONS = 16


@pytest.fixture(scope="module")
def furnished(
    make_bridge: Callable[..., Bridge], tmp_path_factory: pytest.TempPathFactory
) -> Bridge:
    """A bridge with sessions and files, so that not all that is asked for is missing."""
    config = tmp_path_factory.mktemp("hooks") / "hooks.json"
    config.write_text(json.dumps(HOOKS_CONFIG))
    plain = str(free_port())
    bridge = make_bridge("openapi", BRIDGE_HOOKS_CONFIG=str(config), BRIDGE_PLAIN_PORT=plain)
    kinds = ("SessionStart", "PostToolUse")
    events = [hook(event, session_id) for session_id in SESSIONS for event in kinds]
    bridge.accept(*events, hook("SessionEnd", "closed"))
    docs = bridge.root / "docs"
    (docs / "deep" / "deeper").mkdir(parents=True)
    (docs / "note.txt").write_text("ü\n")
    (docs / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    (docs / "way out").symlink_to("/etc")
    (bridge.root / "README.md").write_text("# What the document's example asks for\n")
    return bridge


def all_tokens(bridge: Bridge) -> dict[str, str]:
    tokens = {"hookToken": bridge.hook_token, "adminToken": bridge.admin_token}
    return tokens | {"deviceToken": bridge.device_token()}


def document_of(bridge: Bridge) -> bytes:
    answer = bridge.get("/api/v1/schema")
    assert answer.status == 200, answer
    return answer.body


def configuration(tokens: dict[str, str]) -> str:
    """schemathesis.toml; JSON's strings, lists and booleans are TOML's."""
    # a hook endpoint's second address is the same view (D2), and a batch is a list of events: a few
    # requests show it
    few = "^/hooks/" if SOAK_SECONDS else "^/hooks/|/hooks/batch$"
    return f"""
tls-verify = false
hooks = "tests.conformance.openapi_hooks"
cache.enabled = false
analysis.constants.enabled = false
dictionaries.sessions.values = {json.dumps(SESSIONS, ensure_ascii=False)}
dictionaries.paths.values = {json.dumps(PATHS)}
[parameters]
"path.session_id" = {{ dictionary = "sessions", probability = 0.6 }}
"query.path" = {{ dictionary = "paths", probability = 0.6 }}
[[operations]]
include-path-regex = "{few}"
phases.coverage.enabled = false
[auth.openapi]
""" + "\n".join(f'{scheme}.bearer = "{token}"' for scheme, token in tokens.items())


def test_with_the_right_token_for_each(furnished: Bridge, tmp_path: Path) -> None:
    """The document's examples, values at every bound, and random ones."""
    # from a file: a document at an address of its own is left out of the test
    document, config = tmp_path / "openapi.json", tmp_path / "schemathesis.toml"
    document.write_bytes(document_of(furnished))
    config.write_text(configuration(all_tokens(furnished)), encoding="utf-8")
    long = ["--max-time", str(SOAK_SECONDS), "-n", "100000"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)),
            *("run", str(document), "--url", f"https://127.0.0.1:{furnished.port}", "--no-color"),
            *("--continue-on-failure", "--phases", "examples,coverage,fuzzing"),
            *(long if SOAK_SECONDS else ["--generation-deterministic", "-n", "3"]),
            *("--report", "json,har", "--report-json-path", str(tmp_path / "run.json")),
            *("--report-har-path", str(tmp_path / "run.har")),
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
    never_accepted = {
        operation
        for operation, rates in report["valid_rates"].items()
        if not any(phase["accepted"] for phase in rates.values())
    }
    assert never_accepted == {"GET /api/v1/ws"}
    requests_made = json.loads((tmp_path / "run.har").read_text())["log"]["entries"]
    statuses = {entry["response"]["status"] for entry in requests_made}
    assert statuses >= {200, 202, 400, 401, 404, 405}


# -- what no generated request meets ---------------------------------------------------------------

CONFORMANCE = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def operations_of(bridge: Bridge) -> list[Any]:
    schema = schemathesis.openapi.from_dict(json.loads(document_of(bridge)))
    found = list(schema.get_all_operations())
    assert len(found) == OPERATIONS
    return [one.ok() for one in found if isinstance(one, Ok)]


def path_of(operation: Any) -> str:
    return str(operation.path.replace("{session_id}", "plain"))


def described(operation: Any, answer: Response, status: int, code: str) -> None:
    """The answer is this one, and the document has its status, type, headers and body."""
    assert (answer.status, answer.json()["code"]) == (status, code), operation.label
    in_document(operation, answer)


def in_document(operation: Any, answer: Response) -> None:
    prepared = requests.Request(operation.method.upper(), "https://127.0.0.1/").prepare()
    headers = {name: [value] for name, value in answer.headers.items()}
    operation.Case(path_parameters={"session_id": "plain"}).validate_response(
        schemathesis.Response(answer.status, headers, answer.body, prepared, 0.1, False),
        checks=CONFORMANCE,
    )


def test_each_kind_of_token(furnished: Bridge) -> None:
    """D14: also what it may not do, and what none may."""
    tokens = [*all_tokens(furnished).values(), None]
    statuses = set()
    for operation in operations_of(furnished):
        method, path = operation.method.upper(), path_of(operation)
        for token in tokens:
            answer = furnished.https().request(method, path, token=token)
            in_document(operation, answer)
            statuses.add(answer.status)
    assert statuses >= {200, 400, 401, 403}


UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
# of every operation, before any view is asked (D9, D18, D19), and the refusals of `GET /ws` (D18)
OF_EACH: list[tuple[dict[str, str], int, str]] = [
    ({"Host": "elsewhere.example"}, 400, "HOST_NOT_ALLOWED"),
    ({"X-Long": "x" * 20_000}, 400, "VALIDATION_ERROR"),
    ({"Content-Length": str(200 * 2**20)}, 413, "PAYLOAD_TOO_LARGE"),
    ({"X-Forwarded-Proto": "http"}, 403, "INSECURE_TRANSPORT"),
]
OF_UPGRADES: list[tuple[dict[str, str], int, str]] = [
    ({"Authorization": "Bearer " + "x" * 40}, 401, "AUTH_INVALID_TOKEN"),
    ({"Origin": "https://elsewhere.example"}, 403, "ORIGIN_NOT_ALLOWED"),
    ({"Host": "elsewhere.example"}, 400, "HOST_NOT_ALLOWED"),
    ({"Sec-WebSocket-Key": "short"}, 400, "VALIDATION_ERROR"),
    ({"Sec-WebSocket-Version": "7"}, 400, "VALIDATION_ERROR"),
]


def test_what_every_operation_can_answer(furnished: Bridge) -> None:
    plain = Https(int(furnished.settings["BRIDGE_PLAIN_PORT"]), plain=True)
    for operation in operations_of(furnished):
        for headers, status, code in OF_EACH:
            https = plain if code == "INSECURE_TRANSPORT" else furnished.https()
            answer = https.request(operation.method.upper(), path_of(operation), headers=headers)
            described(operation, answer, status, code)
        for headers, status, code in OF_UPGRADES if operation.path == "/api/v1/ws" else ():
            answer = furnished.get("/api/v1/ws", headers=UPGRADE | headers)
            described(operation, answer, status, code)


def test_what_is_met_by_chance_only(furnished: Bridge) -> None:
    """415 of every operation that takes a body (D9), a closed session, and files."""
    with (furnished.root / "docs" / "large").open("wb") as large:
        large.truncate(11 * 2**20)
    furnished.accept(hook("SessionStart", "closed again"), hook("SessionEnd", "closed again"))
    operations = {one.path: one for one in operations_of(furnished)}
    for path, operation in operations.items():
        if "requestBody" not in operation.definition.raw:
            continue
        token = furnished.hook_token if "hooks" in path else furnished.admin_token
        for kind in ("text/plain", "application/json; charset=latin-1", ""):
            more: dict[str, Any] = {"body": b"{}", "headers": {"Content-Type": kind}}
            answer = furnished.https().post(path_of(operation), token=token, **more)
            described(operation, answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    events, content = "/api/v1/sessions/{session_id}/events", "/api/v1/files/content"
    body = {"type": "user_message", "content": "x"}
    closed = events.format(session_id="closed%20again")
    answer = furnished.https().post(closed, token=furnished.admin_token, json_body=body)
    described(operations[events], answer, 409, "SESSION_CLOSED")
    for name, status, code in (
        ("docs/large", 413, "FILE_TOO_LARGE"),
        ("docs/way%20out/passwd", 403, "FILE_ACCESS_DENIED"),
    ):
        answer = furnished.get(f"{content}?path={name}", furnished.admin_token)
        described(operations[content], answer, status, code)
