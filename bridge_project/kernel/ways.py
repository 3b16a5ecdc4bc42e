"""Choose, at the start, how to do what only some systems have a call for (D77).

Each has two ways, in the module that is named beside it: Linux's own, and a portable one for all
other systems. `doctor` names what is chosen; docs/security.md says what is weaker.
"""

import os
import sys
from typing import Final, Literal

Way = Literal["paths", "agents", "programs", "children", "hooks", "sockets"]

# what is done → whether Linux's way is taken
linux: Final[dict[Way, bool]] = {
    "paths": hasattr(os, "O_PATH"),  # kernel/path_walk
    "agents": sys.platform == "linux",  # sessions_app/agents/process/launch
    "programs": hasattr(os, "pidfd_open"),  # kernel/processes, sessions_app/observed/desk
    "children": sys.platform != "darwin",  # kernel/child_process
    "hooks": sys.platform == "linux",  # sessions_app/approvals/held_hooks
    "sockets": sys.platform == "linux",  # sessions_app/agents/host/sockets
}
_NAMES: Final[dict[Way, tuple[str, str]]] = {
    "paths": (
        "O_NOFOLLOW_ANY and O_NOFOLLOW" if hasattr(os, "O_NOFOLLOW_ANY") else "O_NOFOLLOW",
        "O_PATH",
    ),
    "agents": ("process groups and ps", "subreapers"),
    "programs": ("psutil and ps", "pidfd and /proc"),
    "children": ("psutil", "waitid"),
    "hooks": ("kqueue", "poll"),
    "sockets": ("short links", "/proc/self/fd"),
}


def chosen() -> dict[Way, str]:
    """Return the name of the way that is taken for each."""
    return {way: _NAMES[way][is_linux] for way, is_linux in linux.items()}
