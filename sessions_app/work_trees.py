"""Begin sessions in work trees of their own; ``files_app`` sets who makes them (D64)."""

from collections.abc import Callable
from typing import Any

# device, session id, directory, branch, trust; again: this request may have made it → directory
make: Callable[..., str]
# session id; removes what was made for it, if nothing would be lost
remove: Callable[[str], Any]
