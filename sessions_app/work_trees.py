"""Hold who makes and removes work trees of sessions, for files_app (D64)."""

from collections.abc import Callable
from typing import Any

# device, session id, directory, branch, trust; again: this request may have made it → directory
make: Callable[..., str]
# session id; removes what was made for it, if nothing would be lost
remove: Callable[[str], Any]
