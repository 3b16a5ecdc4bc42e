"""Keep an ACP agent in the mode in which it asks before it acts (D59)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

import structlog
from acp import RequestError, schema
from acp.client import ClientSideConnection
from pydantic import ValidationError

from bridge_project.kernel import limits
from bridge_project.kernel.config import conf
from sessions_app.agents.acp.errors import text_of_error
from sessions_app.agents.acp.recipes import Recipe
from sessions_app.agents.driver import WillNotAsk

log = structlog.get_logger("bridge.agents.acp")

_NEEDS_LINE = (
    "it asks only when the bridge starts its program itself: BRIDGE_ACP_AGENTS must name the "
    "program, without a shell or a script around it"
)
_STOPPED_ASKING = (
    "{name} went to its mode {mode}, in which it may act without asking, and could not be set "
    "back. It was told to stop."
)


_Options = dict[str, str]  # of a session's options: id → value


class Offer(NamedTuple):
    """Hold a session's modes; ``option``: the configuration option that sets them."""

    ids: tuple[str, ...]
    current: str = ""
    option: str | None = None


def offer_of(session: Any) -> Offer | None:
    """Parse the answer that began or loaded a session; None without modes.

    An option comes first: the answer to setting it says what the agent took.
    """
    for option in session.config_options or []:
        if option.category == "mode":
            return Offer(tuple(_values(option)), str(option.current_value), option.id)
    if session.modes:
        ids = tuple(mode.id for mode in session.modes.available_modes)
        return Offer(ids, session.modes.current_mode_id)
    return None


def _values(option: Any) -> Iterator[str]:
    """Return the values of a select option, grouped or not."""
    for choice in getattr(option, "options", None) or []:
        for each in getattr(choice, "options", None) or [choice]:
            yield each.value


def mode_in(update: Any, held: Mapping[str, str]) -> str | None:
    """Return the mode that an update or an answer reports, if it reports one.

    An option of ``held`` with another value is a mode too, ``option=value``.
    """
    if isinstance(update, schema.CurrentModeUpdate):
        return update.current_mode_id
    if not isinstance(update, schema.ConfigOptionUpdate | schema.SetSessionConfigOptionResponse):
        return None
    options = _values_of(update)
    for option, value in held.items():
        if options.get(option, value) != value:
            return f"{option}={options[option]}"
    modes = (str(one.current_value) for one in update.config_options if one.category == "mode")
    return next(modes, None)


def _values_of(
    update: schema.ConfigOptionUpdate | schema.SetSessionConfigOptionResponse,
) -> _Options:
    return {one.id: str(one.current_value) for one in update.config_options}


class ModeKeeper:
    """Set a session's asking mode, and set it again when the agent leaves it.

    Where that fails, ``stopped_asking`` is called with the reason.
    """

    def __init__(self, name: str, stopped_asking: Callable[[str], Awaitable[None]]) -> None:
        self._name = name
        self._stopped_asking = stopped_asking
        self._asking: tuple[str, ...] | None = None  # the modes in which it asks, once known
        self._wanted: str | None = None  # the one of them that is set
        self._option: str | None = None  # the configuration option by which it is set
        self._held: Mapping[str, str] = {}  # options that have to have these values besides
        self._options: _Options = {}  # as the agent has last told them
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

        None: nothing is promised, as of every agent without a recipe, whatever its modes are called
        (D75).
        ``by_name``: the recipe is that of the agent's own name, not of its command line. Raises
        WillNotAsk when it cannot be made to, unless BRIDGE_ACP_UNASKED names it.
        """
        self._conn, self._session_id = conn, session_id
        if recipe is None:
            return None
        try:
            if by_name and (recipe.options or recipe.environment):
                raise WillNotAsk(_NEEDS_LINE)
            if offer is None and resumed:
                offer = Offer(recipe.modes[:1])  # its modes were told when the session began
            self._choose(recipe, offer)
            await self._set()
        except (WillNotAsk, RequestError) as error:
            said = text_of_error(error) if isinstance(error, RequestError) else str(error)
            why = f"{self._name} cannot be made to ask before it acts: {said}."
            if self._name not in conf.bridge_acp_unasked:
                hint = f"BRIDGE_ACP_UNASKED={self._name} lets it run all the same."
                raise WillNotAsk(f"{why} {hint}") from error
            log.warning("acp_agent_does_not_ask", agent=self._name, why=why)
            self._asking = None
            return False
        return recipe.asks

    def _choose(self, recipe: Recipe, offer: Offer | None) -> None:
        """Choose the mode to set, if any. Raises WillNotAsk."""
        known, self._held = recipe.modes, recipe.held
        ids, self._mode, self._option = offer or ((), "", None)
        self._wanted = next((mode for mode in known if mode in ids), None)
        if self._wanted is None:
            has = f"of its modes ({', '.join(ids)}) none is known to do that"
            raise WillNotAsk(has if ids else "it offers no modes")
        self._mode = self._wanted
        self._asking = (self._wanted,)  # from here on, what it reports of its mode counts

    async def _set(self) -> None:
        """Set the mode. Raises RequestError, and WillNotAsk when the agent takes another."""
        if self._wanted is None:
            return
        options = {self._option: self._wanted} if self._option else {}
        if self._option is None:
            await self._conn.set_session_mode(session_id=self._session_id, mode_id=self._wanted)
        for option, value in {**options, **self._held}.items():
            self._options = {}
            # droid's answer is empty: it sends an update before
            with contextlib.suppress(ValidationError):
                answer = await self._conn.set_config_option(
                    config_id=option, session_id=self._session_id, value=value
                )
                self._options = _values_of(answer)
            if (took := self._options.get(option)) != value:
                raise WillNotAsk(f"it takes {took} for {value} ({option})")

    def _may_act_unasked(self) -> bool:
        return self._asking is not None and self._mode not in ("", *self._asking)

    def take(self, update: Any) -> bool:
        """Note the mode that an update reports; return whether it reports one."""
        if isinstance(update, schema.ConfigOptionUpdate):
            self._options = _values_of(update)
        elif isinstance(update, schema.CurrentModeUpdate) and self._option is not None:
            self._options[self._option] = update.current_mode_id
        if (mode := mode_in(update, self._held)) is None:
            return False
        self.reported(mode)
        return True

    def reported(self, mode: str) -> None:
        """Set the asking mode again when the agent reports a mode that may not ask."""
        self._mode = mode
        under_way = self._returning is not None and not self._returning.done()
        if self._may_act_unasked() and not under_way:
            self._returning = asyncio.create_task(self._return())

    async def _return(self) -> None:
        while self._may_act_unasked():
            left_for = self._mode
            log.warning("acp_agent_changed_its_mode", agent=self._name, mode=left_for)
            self._returns += 1
            try:
                if self._wanted is None or self._returns > limits.ACP_MODE_RETURNS:
                    raise WillNotAsk(left_for)
                self._mode = self._wanted  # unless it reports another again, until it has answered
                async with asyncio.timeout(limits.ACP_MODE_SECONDS):
                    await self._set()
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
        return not self._may_act_unasked()

    async def _wait_returned(self) -> None:
        if self._returning is not None:
            await asyncio.wait({self._returning})

    def close(self) -> None:
        self._asking = None
        if self._returning is not None and self._returning is not asyncio.current_task():
            self._returning.cancel()
