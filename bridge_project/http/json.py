"""Read the JSON bodies of HTTP requests (D8, D9)."""

from typing import Any, TypeVar

from django.http import HttpRequest
from django.utils.http import parse_header_parameters
from pydantic import BaseModel

from bridge_project.http.error_body import JSON_TYPE
from bridge_project.kernel.errors import BridgeError
from bridge_project.protocol import jsontext
from bridge_project.protocol.constraints import describe, validate

M = TypeVar("M", bound=BaseModel)


def check_media_type(content_type: str) -> None:
    """Raise UNSUPPORTED_MEDIA_TYPE for anything but `application/json` in UTF-8."""
    kind, parameters = parse_header_parameters(content_type)
    if kind != JSON_TYPE or parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        raise BridgeError("UNSUPPORTED_MEDIA_TYPE")


def json_bytes(request: HttpRequest) -> bytes:
    """Return the unparsed body of a request that is declared as JSON."""
    check_media_type(request.META.get("CONTENT_TYPE", ""))
    return request.body


def json_model(request: HttpRequest, model: type[M]) -> M:
    """Return the body as `model`, or raise VALIDATION_ERROR with all violations."""
    try:
        value = jsontext.loads(json_bytes(request))
    except jsontext.JsonError as error:
        wrong = {"field": "body", "constraint": "JSON"}
        raise _invalid([wrong], f"The body is not usable JSON: {error}.") from None
    if not isinstance(value, dict):
        wrong = {"field": "body", "constraint": "object", "received": describe(value)}
        raise _invalid([wrong], "The body must be a JSON object.")
    return _valid(model, value)


def query_model(request: HttpRequest, model: type[M]) -> M:
    """Return the query as `model`, or raise VALIDATION_ERROR with all violations."""
    return _valid(model, request.GET.dict())


def _valid(model: type[M], value: dict[str, Any]) -> M:
    parsed, found = validate(model, value)
    if parsed is None:
        raise _invalid([fault.violation() for fault in found], f"{found[0].sentence}.")
    return parsed


def _invalid(violations: list[dict[str, str]], message: str) -> BridgeError:
    details = {name: violations[0][name] for name in ("field", "constraint")}
    return BridgeError("VALIDATION_ERROR", message, details=details, violations=violations)
