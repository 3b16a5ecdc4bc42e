"""Agents are found by looking: which programs count, and what is said of the others (D75)."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge_project.kernel import config
from bridge_project.kernel.setting_types import FOUND_AGENTS
from sessions_app.agents.acp import recipes
from sessions_app.agents.claude import program as claude
from tests.attack.conftest import answer
from tests.attack.moody_lines import moody, plays, put
from tests.conformance.agents import end, say, start
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.faults.quick import QuickBridge
from tests.servers import wait_until
from tests.short import short

COPILOT = "https://agentclientprotocol.com/protocol/session-modes#agent"
LOOKED_FOR = FOUND_AGENTS[1:]  # claude-code may be part of the tests' environment
ELSEWHERE = "lies where others may write, or where sessions work"


def infos(bridge: Bridge) -> dict[str, dict[str, Any]]:
    """What /info says of the agents that are looked for."""
    told = bridge.get("/api/v1/info", bridge.hook_token).json()["agents"]
    return {one["name"]: one for one in told}


def real_modes(name: str, *modes: str, **more: Any) -> str:
    return moody(name=name, modes=list(modes), option=True, **more)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("found").resolve()


@pytest.fixture(scope="module")
def bridge(place: Path) -> Iterator[Bridge]:
    """One whose PATH has a program of each kind that must not mislead it."""
    good, bad, shared = place / "good", place / "bad", place / "shared"
    directory = QuickBridge(place / "bridge", **short("AGENT_VERSION_SECONDS"))
    put(good / "opencode", f'{plays("opencode")} "$@"')
    bad.mkdir()
    (bad / "opencode").symlink_to(place / "nowhere")
    (bad / "gemini").mkdir()
    (bad / "kimi").write_text("no program")
    behind = put(place / "lib/gemini.sh", moody(name="gemini-cli", modes=["yolo", "default"]))
    (good / "gemini").symlink_to("../lib/gemini.sh")
    assert behind.exists()
    put(good / "kimi", real_modes("Kimi Code CLI", "yolo", "default"), version="sleep 1000")
    put(
        good / "droid",
        real_modes("@factory/cli", "auto-high", "normal", takes="auto-high"),
        version="false",
    )
    copilot = real_modes("Copilot", COPILOT, allow_all="on")
    put(good / "copilot", copilot, version="echo 'The CLI 1.0.102.'; echo Update!")
    put(shared / "vibe-acp", moody(modes=["ask"]))
    shared.chmod(0o777)
    planted = put(directory.root / "bin/qwen", moody(modes=["default"]))
    put(directory.root / "lib/claude-agent-acp", moody(modes=["default"]))
    (good / "claude-agent-acp").symlink_to(directory.root / "lib/claude-agent-acp")
    parts = [os.path.relpath(good), "", ".", bad, shared, planted.parent, good, "/usr/bin", "/bin"]
    more = {"PATH": os.pathsep.join(map(str, parts)), "HOME": str(place)}
    directory.settings |= more | {"BRIDGE_AGENTS": ",".join(LOOKED_FOR)}
    with directory as bridge:
        bridge.pin = bridge.pairing().pin
        yield bridge


def test_what_is_found(bridge: Bridge, place: Path) -> None:
    """Nothing that a session or a stranger may have put there; no path of the machine is told."""
    found = infos(bridge)
    assert list(found) == [*LOOKED_FOR, "demo"]
    able = ["opencode", "gemini", "copilot", "kimi", "droid", "demo"]
    assert [name for name, one in found.items() if one["can_start"]] == able
    assert {found[name]["version"] for name in able[:2]} == {"1.2.3"}
    assert found["copilot"]["version"] == "1.0.102"
    for name in ("qwen", "vibe", "claude-agent-acp"):
        assert ELSEWHERE in found[name]["reason"], name
    # said, and not fatal
    assert "did not end within 1 s" in found["kimi"]["reason"] and "version" not in found["kimi"]
    assert "kimi" not in found["opencode"].get("reason", "")
    assert "ended with code 1" in found["droid"]["reason"]
    assert str(place) not in str(found)


def test_what_a_start_and_a_doctor_say(bridge: Bridge, place: Path) -> None:
    """On the machine the paths are named; of what is missing only that it is, and who says why."""
    wait_until(lambda: "Not ready here" in bridge.log.read_text(), bridge.tail)
    lines = bridge.log.read_text().splitlines()
    assert "Agents (default: opencode):" in lines
    for name, version in (("opencode", "1.2.3"), ("copilot", "1.0.102")):
        assert [name, version, str(place / "good" / name)] in [line.split() for line in lines]
    (missing,) = (line for line in lines if "Not ready here" in line)
    assert {"qwen", "vibe", "claude-agent-acp"} <= set(re.findall(r"[\w-]+", missing))
    assert "opencode" not in missing and "doctor" in missing

    told = json.loads(bridge.run(["manage.py", "doctor", "--json"]).stdout)["checks"]
    said = {one["text"].split()[0]: one for one in told if one["check"] == "agents"}
    assert f"opencode (1.2.3) is there: {place}/good/opencode" in said["opencode"]["text"]
    assert (said["opencode"]["level"], said["kimi"]["level"]) == ("ok", "warning")
    assert ELSEWHERE in said["vibe"]["text"]


def test_the_first_of_them_is_the_primary_agent(bridge: Bridge, phone: Phone) -> None:
    ready = start(phone, bridge.root, agent="primary-agent")["payload"]
    assert (ready["agent"], ready["asks"]) == ("opencode", True)
    end(phone, ready["session_id"])


@pytest.mark.parametrize("agent", ["opencode", "gemini", "copilot", "kimi"])
def test_what_is_found_asks_and_a_refused_command_does_not_run(
    bridge: Bridge, phone: Phone, agent: str
) -> None:
    """By a script, a link, and whatever option it would have begun with."""
    ready = start(phone, bridge.root, agent=agent)["payload"]
    # gemini runs what only reads unasked
    assert ready["asks"] is (None if agent == "gemini" else True)
    for prompt in ("/act", *(["/stray allow_all"] if agent == "copilot" else [])):
        say(phone, ready["session_id"], f"{prompt} {agent}")
        answer(phone, ready["session_id"], "rejected")
        assert not (bridge.root / agent).exists()
    end(phone, ready["session_id"])


def test_one_that_does_not_confirm_the_mode_does_not_start(bridge: Bridge, phone: Phone) -> None:
    """It is said afterwards, too, that it does not ask."""
    refused = start(phone, bridge.root, agent="droid")["payload"]
    assert refused["code"] == "AGENT_UNAVAILABLE", refused
    assert "auto-high for normal" in refused["message"]
    assert infos(bridge)["droid"]["asks"] is False
    assert "cannot be made to ask" in infos(bridge)["droid"]["reason"]


def test_another_program_of_that_name_is_an_unknown_agent(tmp_path: Path) -> None:
    """Its own name counts: what was seen of one agent is not promised of another."""
    programs = put(tmp_path / "bin/gemini", moody(name="stargazer", modes=["default"])).parent
    path = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}
    with QuickBridge(tmp_path / "bridge", BRIDGE_AGENTS="gemini", **path) as bridge:
        bridge.pin = bridge.pairing().pin
        with bridge.phones() as (phone,):
            ready = start(phone, bridge.root, agent="gemini")["payload"]
            assert ready["asks"] is None
            phone.expect("notification", session_id=ready["session_id"])
            end(phone, ready["session_id"])


def test_where_a_service_looks(tmp_path: Path) -> None:
    """Its PATH is short; BRIDGE_AGENTS narrows, and a line replaces what is found."""
    home = tmp_path / "home"
    put(home / ".local/bin/opencode", plays("opencode"))
    (home / ".npmrc").write_text("fund=false\nprefix=${HOME}/mine\n")
    put(home / "mine/bin/qwen", real_modes("qwen-code", "auto", "default"))
    for version in ("v9.1.0", "v22.1.0"):
        put(home / f".nvm/versions/node/{version}/bin/gemini", f"nod-{version}")
        beside = home / f".nvm/versions/node/{version}/bin/nod-{version}"
        put(beside, moody(name="gemini-cli", modes=["default"]), version=f"echo {version}")
    put(tmp_path / "elsewhere/kimi", moody(name="Kimi", modes=["default"]))
    settings = {
        "BRIDGE_AGENTS": "qwen, gemini, kimi",
        "BRIDGE_ACP_AGENTS": f"kimi={tmp_path}/elsewhere/kimi",
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
    }
    with QuickBridge(tmp_path / "bridge", **settings) as bridge:
        bridge.pin = bridge.pairing().pin
        found = infos(bridge)
        assert [name for name in found if found[name]["can_start"]] == [
            *("kimi", "gemini", "qwen", "demo")
        ]
        with bridge.phones() as (phone,):
            ready = start(phone, bridge.root, agent="gemini")["payload"]
            assert ready["agent"] == "gemini", f"{ready}: it has what lies beside it"
            end(phone, ready["session_id"])
            phone.close()
            offered = phone.connect().auth()["payload"]["supported_agents"]
            assert offered == list(found)


def test_claude_code_runs_the_program_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the small part of its SDK, which brings none."""
    root = Path(config.conf.allowed_roots[0])
    monkeypatch.setattr(claude, "package", lambda: tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{root}:/usr/bin:/bin")
    assert "is not installed, or not where the bridge looks" in str(claude.problem())
    mine = put(tmp_path / "bin/claude", "true")
    monkeypatch.setenv("PATH", f"{mine.parent}:/usr/bin:/bin")
    assert (claude.problem(), claude.program(), claude.asked().version) == (None, mine, "1.2.3")
    monkeypatch.setitem(config.conf.__dict__, "allowed_roots", (str(tmp_path),))
    assert ELSEWHERE in str(claude.problem()) and claude.program() is None
    monkeypatch.setattr(claude, "package", lambda: None)
    assert "--no-binary" not in claude.mend()
    monkeypatch.setitem(config.conf.__dict__, "allowed_roots", (str(root),))
    assert "--no-binary=claude-agent-sdk" in claude.mend()


def test_a_bad_name_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("codex-acp", "off,qwen", "demo"):
        monkeypatch.setenv("BRIDGE_AGENTS", value)
        with pytest.raises(config.ConfError, match=r"^BRIDGE_AGENTS: must be `off` or"):
            config.load()
    monkeypatch.setenv("BRIDGE_AGENTS", "qwen")
    monkeypatch.setenv("BRIDGE_DEFAULT_AGENT", "kimi")
    with pytest.raises(config.ConfError, match=r"^BRIDGE_DEFAULT_AGENT: names no agent"):
        config.load()


@pytest.mark.parametrize(
    "line",
    [
        "codex=codex-acp",
        "mine=env A=1 ./codex-acp -c x=y",
        "x=npx @zed-industries/codex-acp@0.16",
    ],
)
def test_an_old_line_of_codex_stops_the_start(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """It would run what only reads unasked (D75)."""
    monkeypatch.setenv("BRIDGE_ACP_AGENTS", f"other=my-agent; {line}")
    with pytest.raises(config.ConfError, match=r"install `codex`.*remove this line"):
        config.load()


def test_every_agent_that_is_looked_for_has_a_row() -> None:
    assert {"claude-code", "codex", *recipes.ROWS} == set(FOUND_AGENTS)
