"""Know codex's models and efforts, and what a turn is given of them (D69)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bridge_project.protocol.resources import SessionChoice, SessionOption
from sessions_app.agents.codex.reading import parts, text

MODEL: Final = "model"
EFFORT: Final = "effort"
_NAMES: Final = {"xhigh": "Extra high"}


class Choices:
    """Hold the model and how long it thinks; what is chosen goes with the next turn.

    ``models``: as ``model/list`` tells them; ``thread``: the answer that began the thread.
    """

    def __init__(self, models: Sequence[Mapping[str, Any]], thread: Mapping[str, Any]) -> None:
        self._models = [one for one in models if text(one, "model")]
        self._model = self._effort = ""
        self._chosen: dict[str, str] = {}  # and not given yet
        self.note(text(thread, "model"), text(thread, "reasoningEffort"))

    def note(self, model: str, effort: str) -> None:
        """Take what stands, by codex's word; what was chosen since goes before it."""
        self._model = self._chosen.get(MODEL, model)
        self._effort = self._chosen.get(EFFORT, effort) or self._default()

    def choose(self, option_id: str, value: str) -> None:
        """Keep what a person has chosen; another model has an effort of its own."""
        if option_id == MODEL:
            self._model = value
            self._effort = self._default()
            self._chosen = {MODEL: value, **({EFFORT: self._effort} if self._effort else {})}
        else:
            self._effort = self._chosen[EFFORT] = value

    def take_chosen(self) -> dict[str, str]:
        """Return what the next turn is to be given, once."""
        chosen, self._chosen = self._chosen, {}
        return chosen

    def options(self) -> Iterator[SessionOption]:
        models = [
            SessionChoice(
                value=one["model"],
                name=text(one, "displayName") or one["model"],
                description=text(one, "description"),
            )
            for one in self._models
        ]
        yield SessionOption(id=MODEL, name="Model", kind="model", value=self._model, choices=models)
        efforts = [
            SessionChoice(
                value=name,
                name=_NAMES.get(name, name.capitalize()),
                description=text(one, "description"),
            )
            for one in parts(self._known(), "supportedReasoningEfforts")
            if (name := text(one, "reasoningEffort"))
        ]
        yield SessionOption(
            id=EFFORT, name="Effort", kind="effort", value=self._effort, choices=efforts
        )

    def _known(self) -> Mapping[str, Any]:
        return next((one for one in self._models if one["model"] == self._model), {})

    def _default(self) -> str:
        return text(self._known(), "defaultReasoningEffort")
