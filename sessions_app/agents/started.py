"""Keep what each agent showed when this process last started it."""

from dataclasses import dataclass


@dataclass(slots=True)
class Start:
    """Hold what one start showed.

    ``asks`` is None when nobody knows; ``trouble`` says why it cannot be made to ask.
    """

    version: str = ""
    asks: bool | None = None
    trouble: str = ""


last: dict[str, Start] = {}  # by the agent's name, once it has introduced itself
