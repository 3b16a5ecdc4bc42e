"""Write the forwarder for another machine as one file (D47).

Run it as `python -m hooks_app.producer FILE`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipapp
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
PROJECT = PACKAGE.parents[1]
# what only the bridge's own machine runs
NOT_IN_IT = frozenset({"__main__.py", "install.py", "server_forwarder.py"})
FROM_THE_PROTOCOL = ("agent_text.py", "risk.py")


def make_one_file(target: Path) -> None:
    """Write the forwarder and all that it needs as one file for `python3`."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory)
        modules = [path for path in PACKAGE.glob("*.py") if path.name not in NOT_IN_IT]
        protocol = PROJECT / "bridge_project" / "protocol"
        for module in (*modules, *(protocol / name for name in FROM_THE_PROTOCOL)):
            copy = made / module.relative_to(PROJECT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            for package in copy.relative_to(made).parents[:-1]:
                (made / package / "__init__.py").touch()
            shutil.copy(module, copy)
        main = "hooks_app.producer.standalone:main"
        zipapp.create_archive(made, target, "/usr/bin/env python3", main, compressed=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hooks_app.producer FILE")
    make_one_file(Path(sys.argv[1]))
