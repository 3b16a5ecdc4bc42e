"""Find, set and watch the mode in which an ACP agent asks before it acts (D59)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from acp import schema

from sessions_app.agents.acp.recipes import ASKING_MODES, Recipe
from sessions_app.agents.driver import WillNotAsk


@dataclass(frozen=True, slots=True)
class Offer:
    """The modes of a session; ``option``: the configuration option that sets them, if one does."""

    ids: tuple[str, ...]
    current: str = ""
    option: str | None = None

    @classmethod
    def of(cls, session: Any) -> Offer | None:
        """Read the answer that began or loaded a session; None when it names no modes."""
        if session.modes:
            ids = tuple(mode.id for mode in session.modes.available_modes)
            return cls(ids, session.modes.current_mode_id)
        options = session.config_options or []
        return next(
            (
                cls(tuple(_values(each)), str(each.current_value), each.id)
                for each in options
                if each.category == "mode"
            ),
            None,
        )


def mode_in(update: Any) -> str | None:
    """Read the mode that an update reports, if it is about that."""
    if isinstance(update, schema.CurrentModeUpdate):
        return update.current_mode_id
    if isinstance(update, schema.ConfigOptionUpdate | schema.SetSessionConfigOptionResponse):
        return next(
            (
                str(option.current_value)
                for option in update.config_options
                if option.category == "mode"
            ),
            None,
        )
    return None


@dataclass(slots=True)
class Asking:
    """Whether an agent asks, and the mode that it is kept in for that.

    ``asks`` is None when nobody knows, ``wanted`` when no mode is set; ``fine`` are the modes that
    need no setting back.
    """

    asks: bool | None
    wanted: str | None = None
    fine: tuple[str, ...] = ()
    option: str | None = None

    def strays(self, mode: str) -> bool:
        """Say whether an agent that reports this mode may not ask any more."""
        return self.asks is not False and mode not in ("", self.wanted, *self.fine)


def choose(name: str, recipe: Recipe | None, offer: Offer | None) -> Asking:
    """Choose how an agent is made to ask. Raises WillNotAsk, with the modes that it has."""
    if recipe is not None and recipe.configured:
        if offer is None or offer.current in recipe.modes:
            return Asking(True, fine=recipe.modes)
        raise WillNotAsk(
            f"{name} cannot be made to ask before it acts: it is in its mode {offer.current} in spite of the options that the bridge gave it."
        )
    if offer is None and recipe is None:
        return Asking(None, fine=ASKING_MODES)
    there = offer.ids if offer is not None else ()
    wanted = next(
        (mode for mode in (recipe.modes if recipe else ASKING_MODES) if mode in there), None
    )
    if offer is None or wanted is None:
        has = (
            f"of its modes ({', '.join(there)}) none is known to do that"
            if there
            else "it offers no modes"
        )
        raise WillNotAsk(f"{name} cannot be made to ask before it acts: {has}.")
    return Asking(True, wanted, option=offer.option)


def _values(option: Any) -> Iterator[str]:
    """The values of a select option, in groups or not."""
    for choice in getattr(option, "options", None) or []:
        for each in getattr(choice, "options", None) or [choice]:
            yield each.value
