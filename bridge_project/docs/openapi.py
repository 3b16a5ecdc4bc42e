"""Add each endpoint's error answers to the OpenAPI document (D9)."""

from typing import Any, Final

from drf_spectacular.openapi import AutoSchema
from pydantic import BaseModel

from bridge_project.kernel.errors import ERRORS
from bridge_project.protocol.http import ErrorBody, HealthDegraded, ValidationFailure

HOOK_RULES: Final = tuple(
    row.code for row in ERRORS.values() if row.code.startswith("HOOK_") and row.status == 400
)
FILE_CODES: Final = ("FILE_INVALID_PATH", "FILE_ACCESS_DENIED", "FILE_NOT_FOUND")

# Operation → its own codes; codes of all endpoints with a token, or with a body, are added below.
OWN_ERRORS: Final[dict[str, tuple[str, ...]]] = {
    "hook_event": HOOK_RULES,
    "hook_batch": ("HOOK_INVALID_PAYLOAD",),
    "session": ("SESSION_NOT_FOUND",),
    "session_event": ("SESSION_NOT_FOUND", "SESSION_CLOSED"),
    "attachment_upload": ("SESSION_NOT_FOUND", "SESSION_CLOSED"),
    "attachment": ("SESSION_NOT_FOUND", "NOT_FOUND"),
    "websocket": (
        "WS_UPGRADE_REQUIRED",
        "AUTH_INVALID_TOKEN",
        "ORIGIN_NOT_ALLOWED",
        "STORAGE_UNAVAILABLE",
    ),
    "push_subscription": ("PUSH_ENDPOINT_REFUSED", "PUSH_ENDPOINT_GONE"),
    "file_tree": FILE_CODES,
    "file_content": (*FILE_CODES, "FILE_TOO_LARGE"),
    "reload_hooks": ("HOOK_INVALID_PAYLOAD",),
}
WITHOUT_PREFIX: Final = "_without_prefix"  # of a hook endpoint's operation at its second address
# The first two are of the edge: what is not HTTP, and a body that is too large where none is
# expected.
_EVERYWHERE: Final = (
    "VALIDATION_ERROR",
    "PAYLOAD_TOO_LARGE",
    "HOST_NOT_ALLOWED",
    "INSECURE_TRANSPORT",
    "RATE_LIMIT_EXCEEDED",
    "INTERNAL_ERROR",
)
_MORE_STATUSES: Final = {("websocket", "INTERNAL_ERROR"): 503}  # while the bridge stops

_KINDS: Final = {
    "device": ("deviceToken", "The token of a paired device."),
    "hook": ("hookToken", "BRIDGE_HOOK_TOKEN."),
    "admin": ("adminToken", "BRIDGE_ADMIN_TOKEN."),
}
_BODIES: Final[tuple[type[BaseModel], ...]] = (ErrorBody, ValidationFailure, HealthDegraded)

_JSON: Final = "application/json"

Schema = dict[str, Any]


class EndpointSchema(AutoSchema):
    """Describe an operation: its view's security, and a unique id for each address."""

    def get_operation(self, path: str, *args: Any, **kwargs: Any) -> Schema | None:
        operation: Schema | None = super().get_operation(path, *args, **kwargs)
        if operation is not None and path.startswith("/hooks/"):
            operation["operationId"] += WITHOUT_PREFIX
        return operation

    def get_auth(self) -> list[Schema]:
        allowed = self.view.permission_classes
        kinds = {kind for one in allowed for kind in getattr(one, "kinds", ())}
        return [{name: []} for kind, (name, _) in _KINDS.items() if kind in kinds]


def add_errors(result: Schema, generator: Any, request: Any, public: bool) -> Schema:
    """Add security schemes, error bodies and error answers (drf-spectacular hook)."""
    components = result.setdefault("components", {})
    components["securitySchemes"] = {
        name: {"type": "http", "scheme": "bearer", "description": text}
        for name, text in _KINDS.values()
    }
    schemas = components.setdefault("schemas", {})
    for model in _BODIES:
        schema = model.model_json_schema(
            mode="serialization", ref_template="#/components/schemas/{model}"
        )
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    for methods in result["paths"].values():
        for operation in methods.values():
            _add_to(operation)
    return result


def codes_of(operation: Schema) -> list[str]:
    """List every error code that an operation can answer."""
    name = operation["operationId"].removesuffix(WITHOUT_PREFIX)
    codes = [*OWN_ERRORS.get(name, ()), *_EVERYWHERE]
    kinds = {next(iter(one)) for one in operation.get("security", ())}
    if kinds:
        wrong = "HOOK_AUTH_FAILED" if kinds == {"hookToken"} else "AUTH_INVALID_TOKEN"
        codes += [wrong, "STORAGE_UNAVAILABLE"]
        if kinds != {"hookToken"} and len(kinds) < len(_KINDS):
            codes.append("AUTH_INSUFFICIENT_SCOPE")
    return codes + (["UNSUPPORTED_MEDIA_TYPE"] if "requestBody" in operation else [])


def _add_to(operation: Schema) -> None:
    by_status: dict[int, list[str]] = {}
    for code in codes_of(operation):
        by_status.setdefault(ERRORS[code].status or 500, []).append(code)
        if more := _MORE_STATUSES.get((operation["operationId"], code)):
            by_status.setdefault(more, []).append(code)
    responses = operation["responses"]
    hooks = operation["operationId"].startswith("hook_")
    for status, codes in by_status.items():
        # a view's own body of this status: degraded health
        own = responses.get(str(status), {}).get("content", {}).get(_JSON, {}).get("schema")
        refused = [code for code in codes if hooks and code in HOOK_RULES]
        plain = [code for code in codes if code not in refused]
        bodies = [own] if own else []
        bodies += [_body("ValidationFailure", refused)] if refused else []
        bodies += [_body("ErrorBody", plain)] if plain else []
        schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        responses[str(status)] = {
            "description": " ".join(f"`{code}`: {ERRORS[code].message}" for code in codes),
            "content": {_JSON: {"schema": schema}},
        }
    operation["responses"] = dict(sorted(responses.items()))


def _body(name: str, codes: list[str]) -> Schema:
    code = {"type": "object", "properties": {"code": {"enum": codes}}}
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}, code]}
