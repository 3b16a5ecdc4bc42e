"""What schemathesis must know that no OpenAPI document can say; loaded by its command."""

from typing import Any, TypeAlias

import schemathesis
from schemathesis.checks import CheckContext
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import RejectedPositiveData

from bridge_project.protocol.types import parse_timestamp
from tests.conformance.https import Response, assert_error
from tests.conformance.samples import now

Case: TypeAlias = schemathesis.Case[Any]


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Make each valid timestamp the present, for freshness is no matter of a schema."""
    body = case.body if isinstance(case.body, dict) else {}
    events = body.get("events", [body])
    for event in events if isinstance(events, list) else []:
        if isinstance(event, dict) and _is_timestamp(event.get("timestamp")):
            event["timestamp"] = now()


def _is_timestamp(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return bool(parse_timestamp(text))
    except ValueError:
        # a day's offset away from the first and last that there are
        return text.startswith(("0001-01-01T", "9999-12-31T"))


def _json(response: schemathesis.Response) -> Any:
    kind = response.headers.get("content-type", [""])[0]
    return response.json() if kind.startswith("application/json") and response.content else {}


@schemathesis.check
def every_error_has_six_fields(
    ctx: CheckContext, response: schemathesis.Response, case: Case
) -> None:
    """D9, for the answers too that belong to no operation (404, 405)."""
    own = response.status_code == 503 and "checks" in _json(response)  # the spec's, of /health
    if response.status_code >= 400 and response.request.method != "HEAD" and not own:
        headers = {name: values[0] for name, values in response.headers.items()}
        answer = Response(response.status_code, headers, response.content)
        assert_error(answer, response.status_code)


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
        # Only an upgrade is accepted there, and none is made here; D12: the file system knows
        # whether a text can be a path, and is one of what was asked for; D70: a message whose
        # attachment is not there is refused whole.
        if operation == "session_event" and "attachment is not there" in str(body):
            return False
        return (operation, body.get("code")) not in {
            ("websocket", "WS_UPGRADE_REQUIRED"),
            ("file_tree", "FILE_INVALID_PATH"),
            ("file_content", "FILE_INVALID_PATH"),
        }
    return True
