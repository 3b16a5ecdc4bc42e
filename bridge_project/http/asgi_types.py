"""Name the types of ASGI applications."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

Message = dict[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]  # scope, receive, send


class ClientSocket(Protocol):
    """Describe ``scope["bridge.socket"]``: our edge's WebSocket, or its stand-in."""

    @property
    def last_progress(self) -> float: ...

    @property
    def last_frame(self) -> float: ...

    def buffered(self) -> int: ...

    def authenticated(self) -> None: ...

    def send_frames(self, frames: Sequence[bytes]) -> int: ...

    async def drain(self) -> None: ...

    def abort(self) -> None: ...
