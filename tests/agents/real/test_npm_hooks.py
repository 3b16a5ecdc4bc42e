"""An agent that the bridge runs and that runs its user's hooks too reports each call once
(`make test-agents`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.real.conftest import ASKING, Real, settle
from tests.agents.real.models import Model
from tests.agents.real.test_npm_bridge import turn
from tests.conformance.agents import begin, end
from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge

pytestmark = [pytest.mark.agents, pytest.mark.timeout(180)]


@pytest.fixture
def agent(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Real:
    found = next(one for one in ASKING if one.name == "claude-agent-acp")
    return settle(found, model, tmp_path, monkeypatch)


@pytest.fixture
def bridge(agent: Real, tmp_path: Path) -> Iterator[Bridge]:
    line = f"{agent.name}={shlex.join(agent.command)}"
    bridge = QuickBridge(tmp_path / "bridge", BRIDGE_ACP_AGENTS=line)
    bridge.start()
    bridge.pin = bridge.pairing().pin
    yield bridge
    bridge.stop()


def test_each_call_is_reported_once(bridge: Bridge, agent: Real, tmp_path: Path) -> None:
    """claude-agent-acp reads the user's settings, which have the bridge's hooks after `make hooks`,
    and beside them a hook of the user's, which shows that they are run.
    """
    settings, ran = tmp_path / "home/.claude/settings.json", tmp_path / "ran"
    settings.parent.mkdir()
    own = {"hooks": [{"type": "command", "command": f"echo hook >> {ran}"}]}
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [own], "SessionEnd": [own]}}))
    bridge.manage("install_hooks", "--settings", str(settings), "--yes")
    with bridge.phones(1) as (phone,):
        session = begin(bridge, phone, agent=agent.name)
        turn(phone, session, "do: run touch made", "approved")
        assert (bridge.root / "made").exists() and "hook" in ran.read_text()
        end(phone, session)
        spool = bridge.data / "spool"
        assert not [path for path in spool.iterdir() if path.name[0].isdigit()]
        [approval] = [one for one in phone.messages if one["type"] == "approval_required"]
        [result] = [one for one in phone.messages if one["type"] == "tool_result"]
        assert approval["payload"]["session_id"] == result["payload"]["session_id"] == session
        sessions = bridge.get("/api/v1/sessions", bridge.device_token()).json()["sessions"]
        assert [one["id"] for one in sessions] == [session]
