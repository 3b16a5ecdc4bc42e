"""Write the forwarder for another machine as one file (D47).

Run it as `python -m hooks_app.producer FILE`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

PACKAGE = Path(__file__).resolve().parent
PROJECT = PACKAGE.parents[1]
# what only the bridge's own machine runs
NOT_IN_IT = frozenset({"__main__.py", "install.py", "server_forwarder.py"})
FROM_THE_PROTOCOL = ("agent_text.py", "risk.py")
MAIN = "from hooks_app.producer import standalone\nstandalone.main()\n"


def make_one_file(target: Path) -> None:
    """Write the forwarder and all that it needs as one file for `python3`."""
    modules = [path for path in PACKAGE.glob("*.py") if path.name not in NOT_IN_IT]
    protocol = PROJECT / "bridge_project" / "protocol"
    with ZipFile(target, "w", ZIP_DEFLATED, strict_timestamps=False) as archive:
        for module in (*modules, *(protocol / name for name in FROM_THE_PROTOCOL)):
            archive.write(module, module.relative_to(PROJECT))
        for package in ("hooks_app", "bridge_project", "bridge_project/protocol"):
            archive.writestr(f"{package}/__init__.py", "")
        archive.writestr("__main__.py", MAIN)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hooks_app.producer FILE")
    make_one_file(Path(sys.argv[1]))
