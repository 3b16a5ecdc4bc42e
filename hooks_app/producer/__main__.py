"""Write the forwarder for another machine as one file (D47)."""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

PACKAGE = Path(__file__).resolve().parent
BRIDGE = PACKAGE.parents[1] / "bridge_project"
# what only the bridge's own machine runs
NOT_IN_IT = frozenset({"__main__.py", "install.py", "server_forwarder.py"})
FROM_THE_BRIDGE = (
    *("kernel/private_files.py", "kernel/process_note.py"),
    *("protocol/agent_text.py", "protocol/risk.py"),
)
MAIN = "from hooks_app.producer import standalone\nstandalone.main()\n"


def make_one_file(target: Path) -> None:
    """Write the forwarder and all that it needs as one file for `python3`."""
    modules = [path for path in PACKAGE.glob("*.py") if path.name not in NOT_IN_IT]
    with ZipFile(target, "w", ZIP_DEFLATED, strict_timestamps=False) as archive:
        for module in (*modules, *(BRIDGE / name for name in FROM_THE_BRIDGE)):
            archive.write(module, module.relative_to(BRIDGE.parent))
        for package in ("hooks_app", *(f"bridge_project{p}" for p in ("", "/kernel", "/protocol"))):
            archive.writestr(f"{package}/__init__.py", "")
        archive.writestr("__main__.py", MAIN)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hooks_app.producer FILE")
    make_one_file(Path(sys.argv[1]))
