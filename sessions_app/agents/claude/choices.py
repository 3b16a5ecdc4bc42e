"""Know what claude-code lets a person choose, and set it (D69)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import claude_agent_sdk as sdk

from bridge_project.protocol.resources import SessionChoice, SessionCommand, SessionOption
from sessions_app.agents.offers import ON, PLAN, Offers, plan_option

_MODEL, _EFFORT = "model", "effort"
_NAMES: Final = {"xhigh": "Extra high"}


class Choices:
    """Hold the model, the effort and whether it plans first, as the program says.

    ``info``: what the program says of itself when it has started.
    """

    def __init__(self, info: Mapping[str, Any] | None) -> None:
        known = info or {}
        self._models = [one for one in _dicts(known.get("models")) if _text(one, "value")]
        self._model = _text(self._models[0], "value") if self._models else ""
        self._effort = ""  # it does not say which it begins with
        self._plans = False
        self._offers = Offers().with_commands(_commands(known))

    @property
    def offers(self) -> Offers:
        return self._offers.with_options(self._options())

    def _options(self) -> Iterator[SessionOption]:
        models = [_choice(one, "value", "displayName") for one in self._models]
        yield SessionOption(
            id=_MODEL, name="Model", kind="model", value=self._model, choices=models
        )
        of_model = next((one for one in self._models if one["value"] == self._model), {})
        efforts = [
            SessionChoice(value=one, name=_NAMES.get(one, one.capitalize()))
            for one in of_model.get("supportedEffortLevels") or []
            if isinstance(one, str)
        ]
        yield SessionOption(
            id=_EFFORT, name="Effort", kind="effort", value=self._effort, choices=efforts
        )
        yield plan_option(on=self._plans)

    def take(self, message: object) -> bool:
        """Take what a message says of the model and the mode; return whether it says any.

        Both change by the agent's own tools and commands, too.
        """
        if not isinstance(message, sdk.SystemMessage) or message.subtype not in ("init", "status"):
            return False
        if mode := message.data.get("permissionMode"):
            self._plans = mode == PLAN
        if message.subtype == "init":
            self._note_model(message.data.get("model"))
        return bool(mode)

    def _note_model(self, resolved: object) -> None:
        """Note the model by its full name; a choice that means it already stays."""
        names = [one["value"] for one in self._models if resolved in _names_of(one)]
        if self._model not in names:
            self._model = names[0] if names else ""

    async def set(self, client: sdk.ClaudeSDKClient, option_id: str, value: str) -> None:
        """Have the program take a value that it offers. Raises what the SDK raises."""
        if option_id == _MODEL:
            await client.set_model(value)
            self._model = value
        elif option_id == PLAN:
            await client.set_permission_mode("plan" if value == ON else "default")
            self._plans = value == ON
        else:
            # the SDK has no function for it
            query: Any = client._query
            request = {"subtype": "apply_flag_settings", "settings": {"effortLevel": value}}
            await query._send_control_request(request)
            self._effort = value


def _commands(info: Mapping[str, Any]) -> Iterator[SessionCommand]:
    for one in _dicts(info.get("commands")):
        about = {"description": _text(one, "description"), "hint": _text(one, "argumentHint")}
        yield SessionCommand(name=_text(one, "name"), **about)


def _choice(one: Mapping[str, Any], value: str, name: str) -> SessionChoice:
    return SessionChoice(
        value=_text(one, value), name=_text(one, name), description=_text(one, "description")
    )


def _names_of(model: Mapping[str, Any]) -> tuple[str, str]:
    return _text(model, "value"), _text(model, "resolvedModel")


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    return value if isinstance(value, str) else ""
