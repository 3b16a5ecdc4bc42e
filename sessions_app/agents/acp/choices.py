"""Offer the options of an ACP agent's session, and set them (D69)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from acp import schema
from acp.client import ClientSideConnection
from pydantic import ValidationError

from bridge_project.protocol.resources import SessionChoice, SessionCommand, SessionOption
from bridge_project.protocol.types import SettingKind
from sessions_app.agents.acp.recipes import Recipe

_KINDS: Final[Mapping[str, SettingKind]] = {"model": "model", "thought_level": "effort"}
_SET_MODEL: Final = "session/set_model"
_MODELS: Final = "bridge/models"  # in ``_meta`` of an answer: the library does not know them


def keep_models(result: dict[str, Any]) -> None:
    """Keep the models that an answer names beside its options, in place."""
    if isinstance(models := result.get("models"), dict):
        meta = result.get("_meta")
        result["_meta"] = {**(meta if isinstance(meta, dict) else {}), _MODELS: models}


def commands_of(update: schema.AvailableCommandsUpdate) -> Iterator[SessionCommand]:
    """Yield the commands that an update names."""
    commands: list[Any] = update.available_commands
    for one in commands:
        hint = one.input.root.hint if one.input else ""
        yield SessionCommand(name=one.name, description=one.description, hint=hint)


class Choices:
    """Hold the options that an agent has told last, of those that may be offered.

    These are the model and how long it thinks, by their categories, and what the agent's row names;
    never what sets the mode in which it asks. ``session``: the answer that began or loaded it.
    """

    options: Sequence[SessionOption] = ()

    def __init__(self, recipe: Recipe | None, session: Any) -> None:
        self._named = recipe.offers if recipe is not None else frozenset()
        self._held = recipe.held if recipe is not None else {}
        self._by_model = False  # the models are set by a request of their own
        self._take(session.config_options or [])
        if not any(one.kind == "model" for one in self.options):
            models = (session.field_meta or {}).get(_MODELS)
            if (option := _models_option(models)) is not None:
                self._by_model = True
                self.options = (option, *self.options)

    def take(self, update: Any) -> bool:
        """Take the options that an update or an answer tells; False when it tells none."""
        if not isinstance(
            update, schema.ConfigOptionUpdate | schema.SetSessionConfigOptionResponse
        ):
            return False
        self._take(update.config_options)
        return True

    def _take(self, told: Sequence[Any]) -> None:
        models = self.options[:1] if self._by_model else ()
        self.options = (*models, *filter(None, map(self._offered, told)))

    def _offered(self, told: Any) -> SessionOption | None:
        kind = _KINDS.get(told.category) if isinstance(told.category, str) else None
        if told.category == "mode" or told.id in self._held or told.type != "select":
            return None
        if kind is None and told.id not in self._named:
            return None
        groups: Iterator[list[Any]] = (
            getattr(one, "options", None) or [one] for one in told.options
        )
        choices = [
            SessionChoice(value=one.value, name=one.name, description=one.description or "")
            for one in chain.from_iterable(groups)
        ]
        about = {"id": told.id, "name": told.name, "kind": kind or "other"}
        return SessionOption(**about, value=told.current_value, choices=choices)

    async def set(
        self, conn: ClientSideConnection, session_id: str, option_id: str, value: str
    ) -> Any:
        """Set an option; return the agent's answer, if it says what stands then.

        Raises RequestError, ConnectionError.
        """
        if self._by_model and option_id == self.options[0].id:
            # the library has no function for a request that the protocol knows no more
            about = {"sessionId": session_id, "modelId": value}
            await conn._conn.send_request(_SET_MODEL, about)
            chosen = self.options[0].model_copy(update={"value": value})
            self.options = (chosen, *self.options[1:])
            return None
        with suppress(ValidationError):  # droid's answer is empty: it sends an update before
            return await conn.set_config_option(
                config_id=option_id, session_id=session_id, value=value
            )
        return None


def _models_option(models: Any) -> SessionOption | None:
    given = models.get("availableModels") if isinstance(models, dict) else None
    choices = [
        SessionChoice(
            value=one["modelId"], name=_text(one, "name"), description=_text(one, "description")
        )
        for one in (given if isinstance(given, list) else [])
        if isinstance(one, dict) and isinstance(one.get("modelId"), str)
    ]
    if not choices:
        return None
    value = _text(models, "currentModelId")
    return SessionOption(id="model", name="Model", kind="model", value=value, choices=choices)


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    return value if isinstance(value, str) else ""
