"""`install_hooks`: merges, never clobbers, changes nothing twice, gives the file back (D43)."""

import json
import os
import signal
import stat
import tomllib
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import CommandError, call_command

from hooks_app.producer.agents import AGENTS, CLAUDE, HookedAgent
from hooks_app.producer.install import (
    SettingsError,
    answering,
    install,
    installed,
    is_empty,
    remove,
)
from hooks_app.producer.shell_command import (
    HOOK_MARK,
    answer_command,
    hook_command,
    quoted,
)
from tests.run.terminal import Program

SPOOL = '/home/dev/my bridge\'s "data"/spool'
FIRST_FORM = (
    f"exec >/dev/null 2>&1;umask 077;set -C;w=;if cd {quoted(SPOOL)}&&[ ! -e full ];then "
    "cat>$$;fi;exit 0"
)
# an agent's settings as somebody has written them
THEIRS = (Path(__file__).parents[1] / "fixtures/agent-settings.json").read_text(encoding="utf-8")


def commands(text: str) -> dict[str, list[str]]:
    return {
        event: [hook["command"] for entry in entries for hook in entry["hooks"]]
        for event, entries in json.loads(text)["hooks"].items()
    }


def test_two_bridges_do_not_touch_each_other() -> None:
    other = "/srv/other/spool"
    both = install(install(THEIRS, SPOOL), other)
    assert commands(both)["Stop"] == [hook_command(SPOOL), hook_command(other)]
    assert commands(remove(both, SPOOL))["Stop"] == [hook_command(other)]


def test_an_older_command_is_renewed_and_a_changed_timeout_kept() -> None:
    once = install("{}", SPOOL)
    older = once.replace(
        json.dumps(hook_command(SPOOL))[1:-1], json.dumps(f"{FIRST_FORM}{HOOK_MARK}")[1:-1]
    ).replace('"timeout": 10', '"timeout": 3')
    again = install(older, SPOOL)
    assert commands(again) == commands(once)
    assert json.loads(again)["hooks"]["Stop"][0]["hooks"][0]["timeout"] == 3
    assert remove(older, SPOOL) == "{}\n"


def test_answering_is_chosen_kept_and_taken_back() -> None:
    """Only the hook of a permission request waits, and only it has long to do so (D66)."""
    plain = install(THEIRS, SPOOL)
    waits = install(plain, SPOOL, answers=True)
    assert waits == install(THEIRS, SPOOL, answers=True) == install(waits, SPOOL)
    entry = json.loads(waits)["hooks"]["PermissionRequest"][-1]["hooks"][0]
    assert (entry["command"], entry["timeout"]) == (answer_command(SPOOL), 86400)
    before, after = commands(plain), commands(waits)
    assert [event for event in after if after[event] != before[event]] == ["PermissionRequest"]
    assert answering(waits, SPOOL) and not answering(plain, SPOOL)
    assert install(waits, SPOOL, answers=False) == plain
    assert remove(waits, SPOOL) == remove(plain, SPOOL)


def test_ours_in_an_entry_of_theirs_goes_alone() -> None:
    listed = ("x", hook_command(SPOOL), "y")
    entry = {"hooks": [{"type": "command", "command": command} for command in listed]}
    mixed = json.dumps({"hooks": {"Stop": [entry]}})
    assert commands(install(mixed, SPOOL))["Stop"] == list(listed)
    assert commands(remove(mixed, SPOOL))["Stop"] == ["x", "y"]


SETTINGS = (
    "",
    " { } ",
    "\ufeff{}",
    '{\r\n    "hooks": {\r\n    }\r\n}\r\n',
    THEIRS,
    json.dumps(
        {"hooks": {"Stop": [5, {"hooks": "x"}, {"hooks": [7, {"command": 1}]}], "Other": []}}
    ),
    '{"a":[1.50,{"b":null}],"hooks":{"PreToolUse":[{"hooks":[]}]},"z":"\\u00fc"}',
)


def meaning(text: str) -> Any:
    """The settings without empty event lists and hook maps, which removing takes for its own."""
    value = json.loads(text.lstrip("\ufeff") or "{}")
    if isinstance(value.get("hooks"), dict):
        value["hooks"] = {event: listed for event, listed in value["hooks"].items() if listed}
        if not value["hooks"]:
            del value["hooks"]
    return value


def run(file: Path, spool: Path, *arguments: str) -> str:
    out, data = StringIO(), SimpleNamespace(bridge_data_dir=spool.parent)
    with patch("hooks_app.management.commands.install_hooks.conf", data):
        where = ("--settings", str(file), "--yes")
        call_command("install_hooks", *where, *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("text", SETTINGS)
def test_any_settings_survive_and_come_back_byte_for_byte(text: str, tmp_path: Path) -> None:
    file, spool = tmp_path / "settings.json", str(tmp_path / "spool")
    file.write_bytes(text.encode())
    run(file, tmp_path / "spool")
    once = file.read_text()
    assert install(once, spool) == once and installed(once, spool)
    found, before = (json.loads(one.lstrip("\ufeff") or "{}") for one in (once, text))
    assert list(found) == list(before | {"hooks": {}}), "what is not ours keeps its place"
    hooks, theirs = found.pop("hooks"), before.pop("hooks", {})
    assert found == before
    for event in AGENTS[CLAUDE].events:
        assert hooks[event][:-1] == theirs.get(event, [])
        assert hooks[event][-1]["hooks"][0]["command"] == hook_command(spool)
    assert hooks["PreToolUse"][-1]["matcher"] == "*"
    assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700
    assert meaning(remove(once, spool)) == meaning(text)
    run(file, tmp_path / "spool", "--remove")
    assert file.read_bytes() == text.encode()
    assert sorted(os.listdir(tmp_path)) == ["settings.json", "spool"]


def test_a_file_that_was_not_there_goes_again(tmp_path: Path) -> None:
    file = tmp_path / ".claude" / "settings.json"
    run(file, tmp_path / "spool")
    assert "nothing to do" in run(file, tmp_path / "spool")
    run(file, tmp_path / "spool", "--remove")
    assert not file.parent.exists()
    assert "nothing to do" in run(file, tmp_path / "spool", "--remove")


def test_the_original_is_kept_beside_it_and_what_was_changed_meanwhile_stays(
    tmp_path: Path,
) -> None:
    file = tmp_path / "settings.json"
    file.write_text(THEIRS)
    for _ in range(2):
        run(file, tmp_path / "spool")
    [backup] = tmp_path.glob("settings.json.before-bridge-*")
    assert backup.read_text() == THEIRS
    later = json.loads(file.read_text())
    later["permissions"]["later"] = True
    file.write_text(json.dumps(later))
    run(file, tmp_path / "spool", "--remove")
    expected = json.loads(THEIRS)
    expected["permissions"]["later"] = True
    assert meaning(file.read_text()) == meaning(json.dumps(expected))
    assert list(tmp_path.glob("settings*")) == [file]


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "agent.json", tmp_path / "settings.json"
    target.write_text("{}")
    target.chmod(0o640)
    link.symlink_to(target)
    run(link, tmp_path / "spool")
    assert link.is_symlink() and installed(target.read_text(), str(tmp_path / "spool"))
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    run(link, tmp_path / "spool", "--remove")
    assert link.is_symlink() and target.read_text() == "{}"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b" ", "not JSON"),
        (b"{,}", "not JSON"),
        (b"// c\n{}", "not JSON"),
        (b"[" * 9999, "not JSON"),
        (b"\xff\xfe", ""),
        (b"[]", "no object"),
        (b'{"hooks": []}', '"hooks"'),
        (b'{"hooks": {"Stop": {}}}', '"hooks"'),
    ],
)
def test_what_is_no_settings_file_is_left_alone(tmp_path: Path, data: bytes, why: str) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(data)
    for arguments in ([], ["--remove"]):
        with pytest.raises(CommandError, match="Nothing was changed") as caught:
            run(file, tmp_path / "spool", *arguments)
        assert why in str(caught.value)
        assert file.read_bytes() == data
        assert not list(tmp_path.glob("*.before-bridge-*"))


def test_it_asks_and_without_a_terminal_does_nothing_unless_told(tmp_path: Path) -> None:
    file, data = tmp_path / "settings.json", tmp_path / "data"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = kept | {"BRIDGE_DATA_DIR": str(data)}
    command = ("install_hooks", "--settings", str(file))
    reports = "This adds one command, the same, to 14 events of"
    waits = "to 13 events, and to PermissionRequest one that waits for an answer, in"
    for answer, reply in (("", None), ("", ""), ("", "y"), ("y", "y")):
        file.write_text("{}")
        with Program(environment, *command, terminal=reply is not None) as program:
            if reply is not None:
                program.until("beside its own dialog? [y/N]")
                program.say(answer)
                program.until("Write this? [y/N]")
                program.say(reply)
            assert program.ended() == (1 if reply is None else 0), program.shown
        assert (waits if answer == "y" else reports) in program.shown
        asked_for = answer == reply == "y"
        assert ("ask nobody, until" in program.shown) is asked_for
        assert ("again with --yes" in program.shown) is (reply is None)
        assert (file.read_text() != "{}") is (data / "spool").exists() is (reply == "y")
        assert answering(file.read_text(), str(data / "spool")) is (answer == "y")
    file.write_text("{}")
    with Program(environment, *command, terminal=True) as program:
        program.until("[y/N]")
        program.process.send_signal(signal.SIGINT)  # as Ctrl-C does there
        assert program.ended() == 130 and "Traceback" not in program.shown
        assert file.read_text() == "{}"
    for given in ("--remove", "--answer", "--no-answer"):
        file.write_text("{}" if given != "--remove" else install("{}", str(data / "spool")))
        with Program(environment, *command, given, terminal=False) as program:
            assert program.ended() == 1, program.shown
        assert f" make hooks ARGS='--settings {file} {given} --yes'" in program.shown


# -- other agents than Claude Code -----------------------------------------------------------------

OTHERS = [agent for agent in AGENTS.values() if agent.name != CLAUDE]
KIMIS = """# mine
default_model = "k" # not the best

[[hooks]]
event = "Stop"
command = "mine"

[models.k]
max_context_size = 1_000
"""
COPILOTS = {"version": 1, "hooks": {"preToolUse": [{"type": "command", "bash": "mine"}]}}
CLAUDES = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}, "z": 1}


def theirs(agent: HookedAgent) -> str:
    """Settings as somebody has written them."""
    if agent.form == "toml":
        return KIMIS
    return json.dumps(COPILOTS if agent.form == "copilot" else CLAUDES)


def listed(text: str, agent: HookedAgent) -> list[str]:
    """The commands of all hooks, in order."""
    if agent.form == "toml":
        return [one["command"] for one in tomllib.loads(text).get("hooks", [])]
    entries = [one for each in json.loads(text).get("hooks", {}).values() for one in each]
    hooks = [hook for entry in entries for hook in entry.get("hooks", [entry])]
    return [hook.get("command") or hook["bash"] for hook in hooks]


def there(home: Path, agent: HookedAgent) -> Path:
    return home / agent.home[2:] / agent.file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without agents, and no program of one in PATH."""
    for agent in AGENTS.values():
        monkeypatch.delenv(agent.variable or "NONE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    return tmp_path


def command(home: Path, *arguments: str) -> str:
    out, data = StringIO(), SimpleNamespace(bridge_data_dir=home / "data")
    (home / "data").mkdir(exist_ok=True)
    with patch("hooks_app.management.commands.install_hooks.conf", data):
        call_command("install_hooks", *arguments, "--yes", stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("agent", OTHERS, ids=lambda agent: agent.name)
def test_settings_of_another_agent_come_back_byte_for_byte(agent: HookedAgent, home: Path) -> None:
    file, text, spool = there(home, agent), theirs(agent), str(home / "data/spool")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    said = command(home, agent.name)
    once = file.read_text()
    assert agent.then in said and installed(once, spool, agent=agent)
    assert len(listed(once, agent)) == len(agent.events) + 1 and "mine" in listed(once, agent)
    assert "nothing to do" in command(home, agent.name)
    both = install(once, "/srv/other/spool", agent=agent)
    assert listed(remove(both, spool, agent=agent), agent).count("mine") == 1
    assert len(listed(remove(both, spool, agent=agent), agent)) == len(agent.events) + 1
    command(home, "--remove")
    assert file.read_text() == text and os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize("agent", OTHERS, ids=lambda agent: agent.name)
def test_only_the_event_that_asks_waits(agent: HookedAgent) -> None:
    plain, waits = (install("", SPOOL, agent=agent, answers=one) for one in (False, True))
    assert answering(waits, SPOOL, agent=agent) is bool(agent.answers)
    changed = [one for one in listed(waits, agent) if one not in listed(plain, agent)]
    assert len(changed) == bool(agent.answers)
    assert install(waits, SPOOL, agent=agent) == waits
    assert install(waits, SPOOL, agent=agent, answers=False) == plain
    assert is_empty(remove(waits, SPOOL, agent=agent), agent)


@pytest.mark.parametrize("agent", OTHERS, ids=lambda agent: agent.name)
@pytest.mark.parametrize("data", [b"{,}", b"\xff", b"hooks = 1", b'{"hooks": 1}', b"hooks = []\n"])
def test_a_foreign_or_broken_file_is_never_written(
    agent: HookedAgent, data: bytes, home: Path
) -> None:
    """A list of hooks in a line, as TOML allows it, takes no table at the file's end."""
    file = there(home, agent)
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    with pytest.raises(CommandError, match="Nothing was changed"):
        command(home, agent.name)
    assert file.read_bytes() == data and os.listdir(file.parent) == [file.name]


def test_lines_of_ours_that_somebody_has_cut_in_two_are_left_to_him() -> None:
    agent = AGENTS["kimi"]
    cut = install(KIMIS, SPOOL, agent=agent).rpartition("# agent-bridge")[0]
    for change in (install, remove):
        with pytest.raises(SettingsError, match="by hand"):
            change(cut, SPOOL, agent=agent)


def test_what_is_found_gets_them_and_a_broken_file_stops_no_other(home: Path) -> None:
    for name in ("codex", "grok", "qwen"):
        there(home, AGENTS[name]).parent.mkdir(parents=True)
    there(home, AGENTS["codex"]).write_text("{,}")
    with pytest.raises(CommandError, match=r"hooks\.json: it is not JSON"):
        command(home)
    have = [agent.name for agent in AGENTS.values() if there(home, agent).exists()]
    assert have == ["codex", "qwen", "grok"]
    there(home, AGENTS["codex"]).unlink()
    command(home, "--remove")
    assert not [agent.name for agent in AGENTS.values() if there(home, agent).exists()]


def test_a_settings_file_is_one_agents(home: Path) -> None:
    with pytest.raises(CommandError, match="one agent's"):
        command(home, "codex", "qwen", "--settings-file", str(home / "x"))
