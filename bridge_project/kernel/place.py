"""Tell a clone from an installed package (D78).

Where its data is, and how its commands are typed; it reads no setting.
"""

import os
import platform
import shlex
from pathlib import Path
from typing import Final

PROJECT_DIR: Final = Path(__file__).resolve().parents[2]
IN_CLONE: Final = (PROJECT_DIR / "manage.py").is_file()  # else it was installed as a package
PROGRAM: Final = "agent-bridge"
# what is typed after it, or after `make` → the management command, where that has another name
VERBS: Final = {
    "run": "serve",
    "qr": "mint_pairing_qr",
    "hooks": "install_hooks",
    "admin": "make_admin",
}


def default_data_dir() -> Path:
    """Return `var` of the clone; if installed, a directory of the user's."""
    if IN_CLONE:
        return PROJECT_DIR / "var"
    if platform.system() == "Darwin":
        return Path.home() / "Library/Application Support" / PROGRAM
    given = os.environ.get("XDG_DATA_HOME", "")  # which has no meaning when it is relative
    home = Path(given) if os.path.isabs(given) else Path.home() / ".local/share"
    return home / PROGRAM


def short(verb: str, arguments: str = "") -> str:
    """Return a command of every day as it is typed, without a data directory."""
    if not IN_CLONE:
        return f"{PROGRAM} {verb} {arguments}".rstrip()
    return f"make {verb}" + (f" ARGS={shlex.quote(arguments)}" if arguments else "")
