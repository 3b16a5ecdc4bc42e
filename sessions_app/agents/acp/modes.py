"""Keep an ACP agent in the mode in which it asks before it acts (D59)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog
from acp import RequestError, schema
from acp.client import ClientSideConnection
from pydantic import ValidationError

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.agents.acp.errors import text_of_error
from sessions_app.agents.acp.recipes import ASKING_MODES, Recipe
from sessions_app.agents.driver import WillNotAsk

log = structlog.get_logger("bridge.agents.acp")

_CANNOT = "{name} cannot be made to ask before it acts"
_NEEDS_LINE = (
    "{name} asks before it acts only when the bridge starts its program itself: "
    "BRIDGE_ACP_AGENTS must name the program, without a shell or a script around it."
)
_STOPPED_ASKING = (
    "{name} went to its mode {mode}, in which it may act without asking, and could not be set "
    "back. It was told to stop."
)


@dataclass(frozen=True, slots=True)
class Offer:
    """Hold a session's modes; ``option``: the configuration option that sets them."""

    ids: tuple[str, ...]
    current: str = ""
    option: str | None = None


def offer_of(session: Any) -> Offer | None:
    """Parse the answer that began or loaded a session; None without modes."""
    if session.modes:
        ids = tuple(mode.id for mode in session.modes.available_modes)
        return Offer(ids, session.modes.current_mode_id)
    for option in session.config_options or []:
        if option.category == "mode":
            return Offer(tuple(_values(option)), str(option.current_value), option.id)
    return None


def _values(option: Any) -> Iterator[str]:
    """Return the values of a select option, grouped or not."""
    for choice in getattr(option, "options", None) or []:
        for each in getattr(choice, "options", None) or [choice]:
            yield each.value


def mode_in(update: Any) -> str | None:
    """Return the mode that an update reports, if it reports one."""
    if isinstance(update, schema.CurrentModeUpdate):
        return update.current_mode_id
    if not isinstance(update, schema.ConfigOptionUpdate | schema.SetSessionConfigOptionResponse):
        return None
    modes = (str(one.current_value) for one in update.config_options if one.category == "mode")
    return next(modes, None)


@dataclass(frozen=True, slots=True)
class ModePlan:
    """Hold the mode to keep an agent in, and whether it asks there (None: unknown).

    ``wanted`` is None when no mode is set; ``fine`` are the modes that need no setting back.
    """

    asks: bool | None
    wanted: str | None = None
    fine: tuple[str, ...] = ()
    option: str | None = None

    def may_act_unasked(self, mode: str) -> bool:
        """Return whether an agent in this mode may act without asking."""
        return self.asks is not False and mode not in ("", self.wanted, *self.fine)


def choose(name: str, recipe: Recipe | None, offer: Offer | None) -> ModePlan:
    """Choose how an agent is made to ask. Raises WillNotAsk."""
    if recipe is not None and recipe.configured:
        if offer is None or offer.current in recipe.modes:
            return ModePlan(True, fine=recipe.modes)
        why = f"it is in its mode {offer.current} in spite of the options that the bridge gave it"
        raise WillNotAsk(f"{_CANNOT.format(name=name)}: {why}.")
    if offer is None and recipe is None:
        return ModePlan(None, fine=ASKING_MODES)
    there = offer.ids if offer is not None else ()
    for mode in recipe.modes if recipe else ASKING_MODES:
        if offer is not None and mode in there:
            return ModePlan(True, mode, option=offer.option)
    has = f"of its modes ({', '.join(there)}) none is known to do that"
    raise WillNotAsk(f"{_CANNOT.format(name=name)}: {has if there else 'it offers no modes'}.")


class ModeKeeper:
    """Set a session's asking mode, and set it again when the agent leaves it.

    Where that fails, ``stopped_asking`` is called with the reason.
    """

    def __init__(self, name: str, stopped_asking: Callable[[str], Awaitable[None]]) -> None:
        self._name = name
        self._stopped_asking = stopped_asking
        self._plan: ModePlan | None = None  # until it is settled
        self._mode = ""  # as far as the agent has reported it
        self._returning: asyncio.Task[None] | None = None
        self._returns = 0  # in this turn

    async def set_asking_mode(
        self,
        conn: ClientSideConnection,
        session_id: str,
        offer: Offer | None,
        recipe: Recipe | None,
        *,
        by_name: bool,
        resumed: bool,
    ) -> bool | None:
        """Set the asking mode, whatever the agent's settings; return whether it asks.

        ``by_name``: the recipe is that of the agent's own name, not of its command line. Raises
        WillNotAsk when it cannot be made to, unless BRIDGE_ACP_UNASKED names it.
        """
        self._conn, self._session_id = conn, session_id
        try:
            if by_name and recipe is not None and recipe.needs_line:
                raise WillNotAsk(_NEEDS_LINE.format(name=self._name))
            if offer is None and resumed and recipe is not None and not recipe.configured:
                offer = Offer(recipe.modes[:1])  # its modes were told when the session began
            plan = choose(self._name, recipe, offer)
            self._mode = plan.wanted or (offer.current if offer is not None else "")
            self._plan = plan  # from here on, what it reports of its mode counts
            await self._set(plan)
        except (WillNotAsk, RequestError) as error:
            why = str(error)
            if isinstance(error, RequestError):
                why = f"{_CANNOT.format(name=self._name)}: {text_of_error(error)}."
            if self._name not in conf.bridge_acp_unasked:
                hint = f"BRIDGE_ACP_UNASKED={self._name} lets it run all the same."
                raise WillNotAsk(f"{why} {hint}") from error
            log.warning("acp_agent_does_not_ask", agent=self._name, why=why)
            self._plan = ModePlan(False)
        return self._plan.asks

    async def _set(self, plan: ModePlan) -> None:
        """Set the mode. Raises RequestError, and WillNotAsk when the agent takes another."""
        if plan.wanted is None:
            return
        if plan.option is None:
            await self._conn.set_session_mode(session_id=self._session_id, mode_id=plan.wanted)
            return
        answer = await self._conn.set_config_option(
            config_id=plan.option, session_id=self._session_id, value=plan.wanted
        )
        if (took := mode_in(answer)) not in (None, plan.wanted):
            why = f"it takes the mode {took} for {plan.wanted}"
            raise WillNotAsk(f"{_CANNOT.format(name=self._name)}: {why}.")

    def reported(self, mode: str) -> None:
        """Set the mode again when the agent reports one that may not ask."""
        self._mode = mode
        under_way = self._returning is not None and not self._returning.done()
        if self._plan is not None and self._plan.may_act_unasked(mode) and not under_way:
            self._returning = asyncio.create_task(self._return(self._plan))

    async def _return(self, plan: ModePlan) -> None:
        while plan.may_act_unasked(left_for := self._mode):
            log.warning("acp_agent_changed_its_mode", agent=self._name, mode=left_for)
            self._returns += 1
            try:
                if plan.wanted is None or self._returns > limits.ACP_MODE_RETURNS:
                    raise WillNotAsk(left_for)
                self._mode = plan.wanted  # unless it reports another again, until it has answered
                async with asyncio.timeout(limits.ACP_MODE_SECONDS):
                    await self._set(plan)
            except ConnectionError:
                return  # gone: the watch says so
            except (RequestError, ValidationError, TimeoutError, WillNotAsk):
                self._mode = left_for
                await self._stopped_asking(_STOPPED_ASKING.format(name=self._name, mode=left_for))
                return

    async def asks_again(self) -> bool:
        """Try once more to set the mode, before a turn."""
        await self._wait_returned()
        self._returns = 0
        self.reported(self._mode)
        await self._wait_returned()
        return self._plan is None or not self._plan.may_act_unasked(self._mode)

    async def _wait_returned(self) -> None:
        if self._returning is not None:
            await asyncio.wait({self._returning})

    def close(self) -> None:
        self._plan = None
        if self._returning is not None and self._returning is not asyncio.current_task():
            self._returning.cancel()
