"""Make ACP agents' messages fit the library's models (D68).

A kind, status or option that the protocol does not know is left out, a content is shown as text: no
request fails by it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, get_args

from acp import schema
from pydantic import TypeAdapter, ValidationError

CANCELLED: Final = "bridge/cancelled"  # in ``_meta``: the protocol has no such status of a call
_KINDS, _STATUSES = get_args(schema.ToolKind), get_args(schema.ToolCallStatus)
_CONTENT: TypeAdapter[Any] = TypeAdapter(
    schema.ToolCallUpdate.model_fields["content"].rebuild_annotation()
)
_BLOCK: TypeAdapter[Any] = TypeAdapter(
    schema.ContentToolCallContent.model_fields["content"].rebuild_annotation()
)
_PLAN_STATUSES, _PRIORITIES = get_args(schema.PlanEntryStatus), get_args(schema.PlanEntryPriority)
_FIELD: TypeAdapter[Any] = TypeAdapter(
    get_args(get_args(schema.ElicitationSchema.model_fields["properties"].annotation)[0])[1]
)
_FORM: TypeAdapter[Any] = TypeAdapter(schema.CreateElicitationRequest)
_CONFIG_OPTION: TypeAdapter[Any] = TypeAdapter(
    get_args(schema.ConfigOptionUpdate.model_fields["config_options"].rebuild_annotation())[0]
)
_LOCATION, _OPTION = TypeAdapter(schema.ToolCallLocation), TypeAdapter(schema.PermissionOption)


def fit_update(update: dict[str, Any]) -> None:
    """Make the update of a session fit, in place."""
    if str(update.get("sessionUpdate")).startswith("tool_call"):
        fit_call(update)
        if not isinstance(update.get("title"), str):  # only a new call needs one
            update["title"] = ""
    elif str(update.get("sessionUpdate")).endswith("_chunk"):
        update["content"] = _block(update.get("content"))
    elif update.get("sessionUpdate") == "available_commands_update":
        commands = update.get("availableCommands")
        given = commands if isinstance(commands, list) else []
        named = [one for one in given if isinstance(one, dict) and isinstance(one.get("name"), str)]
        update["availableCommands"] = [_command(one) for one in named]
    elif update.get("sessionUpdate") == "config_option_update":
        options = update.get("configOptions")
        given = options if isinstance(options, list) else []
        update["configOptions"] = [one for one in given if _fits(_CONFIG_OPTION, one)]
    elif update.get("sessionUpdate") == "plan":
        entries = update.get("entries")
        given = entries if isinstance(entries, list) else []
        update["entries"] = [_entry(one) for one in given if isinstance(one, dict)]
    elif update.get("sessionUpdate") == "usage_update":
        for name in ("used", "size"):
            if not isinstance(update.get(name), int) or update[name] < 0:
                update[name] = 0


def fit_form(params: dict[str, Any]) -> None:
    """Make a form fit, in place: an unknown field becomes one of no known kind."""
    params.setdefault("mode", "url" if "url" in params else "form")
    if not isinstance(params.get("message"), str):
        params["message"] = ""
    if params["mode"] == "form":
        form = params.get("requestedSchema")
        form = params["requestedSchema"] = form if isinstance(form, dict) else {}
        given = form.get("properties")
        fields = given if isinstance(given, dict) else {}
        form["properties"] = {name: _field(one) for name, one in fields.items()}
        required = form.get("required")
        names = required if isinstance(required, list) else []
        form["required"] = [one for one in names if isinstance(one, str)]
    if not _fits(_FORM, params):  # the library would fail, and answer nothing
        params["mode"] = f"_{params['mode']}"


def fit_request(params: dict[str, Any]) -> None:
    """Make the request for a permission fit, in place."""
    if isinstance(call := params.get("toolCall"), dict):
        fit_call(call)
    options = params.get("options")
    given = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    for option in given:
        if not isinstance(option.get("name"), str):
            option["name"] = ""
    params["options"] = [option for option in given if _fits(_OPTION, option)]


def fit_call(call: dict[str, Any]) -> None:
    """Make what is said of a tool call fit, in place."""
    if not isinstance(id_ := call.get("toolCallId"), str):
        call["toolCallId"] = "" if id_ is None else json.dumps(id_)
    if not isinstance(call.get("_meta"), dict | None):
        del call["_meta"]
    if call.get("status") in ("cancelled", "canceled"):
        call["status"], call["_meta"] = "failed", {**(call.get("_meta") or {}), CANCELLED: True}
    for name, known in (("kind", _KINDS), ("status", _STATUSES)):
        if call.get(name) not in known:
            call.pop(name, None)
    if not isinstance(call.get("title"), str):
        call.pop("title", None)
    for name, fit in (("content", _content), ("locations", _location)):
        given = call.pop(name, None)
        if isinstance(given, list):
            call[name] = [fitting for one in given if (fitting := fit(one)) is not None]


def _command(given: dict[str, Any]) -> dict[str, Any]:
    text, hint = given.get("description"), given.get("input")
    hint = hint.get("hint") if isinstance(hint, dict) else None
    return {
        "name": given["name"],
        "description": text if isinstance(text, str) else "",
        "input": {"hint": hint} if isinstance(hint, str) else None,
    }


def _entry(given: dict[str, Any]) -> dict[str, Any]:
    text = given.get("content")
    status, priority = given.get("status"), given.get("priority")
    return {
        "content": text if isinstance(text, str) else json.dumps(text, ensure_ascii=False),
        "status": status if status in _PLAN_STATUSES else "pending",
        "priority": priority if priority in _PRIORITIES else "medium",
    }


def _field(given: Any) -> Any:
    if _fits(_FIELD, given):
        return given
    known = given if isinstance(given, dict) else {"value": given}
    return known | {"type": f"_{known.get('type', 'unknown')}"}


def _content(given: Any) -> Any:
    if isinstance(given, dict) and given.get("type") == "content":
        return given | {"content": _block(given.get("content"))}
    return given if _fits(_CONTENT, [given]) else {"type": "content", "content": _text(given)}


def _location(given: Any) -> Any:
    return given if _fits(_LOCATION, given) else None


def _block(given: Any) -> Any:
    return given if _fits(_BLOCK, given) else _text(given)


def _text(given: Any) -> dict[str, str]:
    text = given.get("text") if isinstance(given, Mapping) else given
    if not isinstance(text, str):
        text = json.dumps(given, ensure_ascii=False)
    return {"type": "text", "text": text}


def _fits(model: TypeAdapter[Any], given: Any) -> bool:
    try:
        model.validate_python(given)
    except ValidationError:
        return False
    return True
