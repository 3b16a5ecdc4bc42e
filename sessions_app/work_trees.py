"""Hold who makes and removes sessions' work trees; composition names them (D64)."""

from collections.abc import Awaitable, Callable

# device, session id, directory, branch, trust; again: this request may have made it → directory
make: Callable[..., str]
# session id; removes what was made for it, if nothing would be lost
remove: Callable[[str], Awaitable[None]]
