"""What schemathesis must know about the bridge that no OpenAPI document can say; loaded by its
command (see test_openapi.py).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import schemathesis
from schemathesis.checks import CheckContext
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import RejectedPositiveData

from bridge_project.protocol.types import parse_timestamp
from tests.conformance.https import SIX_FIELDS
from tests.conformance.samples import now

Case: TypeAlias = schemathesis.Case[Any]


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Freshness is no matter of a schema: a timestamp that is one becomes the present moment, a
    wrong one stays.
    """
    for event in _events(case.body):
        if _is_timestamp(event.get("timestamp")):
            event["timestamp"] = now()


def _events(body: Any) -> list[dict[str, Any]]:
    found = body.get("events", [body]) if isinstance(body, dict) else []
    return [event for event in found if isinstance(event, dict)] if isinstance(found, list) else []


def _is_timestamp(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return bool(parse_timestamp(text))
    except ValueError:
        # a day's offset away from the first and last that there are
        return text.startswith(("0001-01-01T", "9999-12-31T"))


def _json(response: schemathesis.Response) -> Any:
    return (
        response.json()
        if response.headers.get("content-type", [""])[0].startswith("application/json")
        and response.content
        else {}
    )


@schemathesis.check
def every_error_has_six_fields(
    ctx: CheckContext, response: schemathesis.Response, case: Case
) -> None:
    """D9, for the answers too that belong to no operation (404, 405)."""
    if response.status_code < 400 or response.request.method == "HEAD":
        return
    body = _json(response)
    if (
        case.operation.definition.raw.get("operationId") == "health"
        and response.status_code == 503
        and "checks" in body
    ):
        return  # the specification's own body
    missing = [name for name in SIX_FIELDS if not isinstance(body.get(name), str) or not body[name]]
    assert not missing, f"the error body has no {missing}"
    assert response.headers.get("x-request-id") == [body["request_id"]], response.headers


@schemathesis.hook
def filter_failure(
    context: schemathesis.HookContext, failure: Failure, case: Case, response: schemathesis.Response
) -> bool:
    """False for what is meant so; each with its decision."""
    operation = case.operation.definition.raw["operationId"].removesuffix("_without_prefix")
    body = _json(response)
    if isinstance(failure, AcceptedNegativeData):
        # D32: a batch is taken, and each of its events is judged by itself.
        return not (operation == "hook_batch" and body.get("rejected"))
    if isinstance(failure, RejectedPositiveData):
        # Only an upgrade is accepted there, and no such request is made here.
        # D12: whether a text can be a path, and is one of what was asked for, the file system
        # knows.
        return (operation, body.get("code")) not in {
            ("websocket", "WS_UPGRADE_REQUIRED"),
            ("file_tree", "FILE_INVALID_PATH"),
            ("file_content", "FILE_INVALID_PATH"),
        }
    return True
