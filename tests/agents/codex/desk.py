"""A bridge beside a stand-in for codex's server at the desk (D80)."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from tests.agents.codex.conftest import STAND_IN
from tests.agents.codex.daemon import THREAD, Daemon
from tests.conformance.agents import start
from tests.conformance.phone import Message, Phone
from tests.faults.quick import QuickBridge

OTHERS = 2  # that are joined at once at most, in this bridge
FEW = f"from bridge_project.kernel import limits\nlimits.JOINED_SESSIONS = {OTHERS}\n"


class Desk:
    """A bridge, and a server of codex beside it."""

    def __init__(self, directory: Path, join: str = "codex", **settings: Any) -> None:
        program = directory / "bin" / "codex"
        program.parent.mkdir()
        self.bridge = QuickBridge(
            directory / "bridge",
            first=FEW,
            BRIDGE_JOIN=join,
            BRIDGE_AGENTS="codex",
            CODEX_HOME=str(directory / "codex"),
            PATH=f"{program.parent}:/usr/bin:/bin",
            **settings,
        )
        self.ids = [THREAD, *(f"{THREAD[:-1]}{number}" for number in range(OTHERS))]
        listed = [
            {"id": one, "cwd": str(self.bridge.root.resolve()), "preview": "Of the desk"}
            for one in self.ids
        ]
        spec = {"thread/list": {"data": listed, "nextCursor": None}}
        words = [sys.executable, "-IS", str(STAND_IN), json.dumps(spec), str(directory / "journal")]
        program.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
        program.chmod(0o755)
        self.daemon = Daemon(directory / "codex", self.bridge.root)
        self.daemon.spec["thread/loaded/list"] = {"data": self.ids, "nextCursor": None}

    def begin(self, phone: Phone, own: str = THREAD) -> Message:
        return start(phone, self.bridge.root, own, agent="codex", resume=True)
