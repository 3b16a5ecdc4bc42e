"""Tell a clone from an installed package (D78).

Where its data is, and how its commands are typed; it reads no setting.
"""

import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Final, NamedTuple

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


class Installer(NamedTuple):
    """Describe what installed the bridge, by its commands."""

    add: str  # adds what is named behind it to the bridge's environment
    again: str  # behind that: also when it is there
    source: str  # behind that, with a package's name: built here, without what a wheel brings
    remove: str  # removes the bridge


def installer() -> Installer:
    """Return what installed the bridge.

    The environments of pipx and of uv may have no pip.
    """
    python = shlex.quote(".venv/bin/python" if IN_CLONE else sys.executable)
    if not IN_CLONE and (Path(sys.prefix) / "pipx_metadata.json").exists():
        source = "--pip-args=--no-binary="
        return Installer(f"pipx inject {PROGRAM}", "--force", source, f"pipx uninstall {PROGRAM}")
    if not IN_CLONE and (Path(sys.prefix) / "uv-receipt.toml").exists():
        add, remove = f"uv pip install --python {python}", f"uv tool uninstall {PROGRAM}"
        return Installer(add, "--reinstall", "--no-binary=", remove)
    pip = f"{python} -m pip"
    remove = f"{pip} uninstall {PROGRAM}"
    return Installer(f"{pip} install", "--force-reinstall", "--no-binary=", remove)


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
