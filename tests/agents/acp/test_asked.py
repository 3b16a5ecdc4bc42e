"""What a person is shown of an ACP agent's request, and what is said of its result (D76)."""

from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.events import ApprovalAsked, RanOther, ToolStarted
from tests.agents.conftest import Open
from tests.agents.drive import APPROVED, REJECTED, only, text

pytestmark = pytest.mark.asyncio(loop_scope="module")
HEADLINE = "Requesting approval to run command"


def words_of(*said: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": one}} for one in said]


async def asked_about(opened: Open, **call: Any) -> Any:
    return await asked_after("", opened, **call)


async def asked_after(before: str, opened: Open, **call: Any) -> Any:
    said = await (await opened(REJECTED)).turn(f"/do {before}\nallowed(ask('c', **{call}))")
    return only(ApprovalAsked, said).call


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("fs/read_text_file", {"path": "/etc/hostname"}),
        ("fs/write_text_file", {"path": "made", "content": "x"}),
        ("terminal/create", {"command": "touch made"}),
    ],
)
async def test_the_bridge_does_nothing_for_an_agent(
    opened: Open, root: Path, method: str, params: dict[str, str]
) -> None:
    """It offers neither files nor terminals, and nobody is asked."""
    drive = await opened(APPROVED)
    said = await drive.turn(
        f"/do n = request({method!r}, **{params}); answer(n)\n"
        "say(f\"{agent.capabilities} {agent.waiting[n]['error']['code']}\")"
    )
    assert "True" not in text(said) and text(said).endswith("-32601")
    assert not drive.of(ApprovalAsked) and not list(root.iterdir())


@pytest.mark.parametrize(
    ("call", "command", "risk"),
    [
        ({"kind": "execute", "content": words_of("rm -rf build && ./x")}, "rm -rf", "critical"),
        ({"kind": "execute", "content": words_of("./deploy.sh")}, "./deploy.sh", "high"),
        (
            {"kind": "execute", "content": words_of("ls"), "locations": [{"path": "."}]},
            "ls",
            "high",  # the title may be what runs
        ),
        ({"kind": "other", "content": words_of("Shell:", "./deploy.sh")}, "./deploy.sh", "high"),
        ({"kind": "read", "content": words_of("rm -rf build")}, "rm -rf build", "critical"),
        (
            {"rawInput": {"command": "ls"}, "content": words_of("rm -rf build")},
            "rm -rf build",
            "critical",
        ),
        ({"rawInput": {"command": "ls"}, "content": words_of("Lists files.")}, "Lists", "low"),
        ({"rawInput": {"x": 1}, "title": "sudo rm -rf /x"}, "sudo rm -rf /x", "critical"),
        (
            {
                "kind": "read",
                "rawInput": {"path": "a"},
                "content": [{"type": "diff", "path": "/etc/passwd", "newText": "evil"}],
            },
            "",
            "high",
        ),
    ],
)
async def test_what_stands_beside_the_parameters_is_shown_and_rated(
    opened: Open, call: dict[str, Any], command: str, risk: str
) -> None:
    """Also a command of which the title says nothing."""
    asked = await asked_about(opened, **({"title": HEADLINE} | call))
    assert command in asked.description and asked.risk_level == risk
    assert call.get("title", HEADLINE) in asked.description


async def test_a_text_without_parameters_stands_beside_the_title(opened: Open) -> None:
    """Either may be the command: one agent sends a headline with it, one a note."""
    for title, sent in ((HEADLINE, "rm -rf build"), ("rm -rf build", "[in the directory x]")):
        asked = await asked_about(opened, title=title, kind="execute", content=words_of(sent))
        assert (asked.tool, asked.params) == ("Bash", {"command": title})
        assert sent in asked.description and asked.risk_level == "critical"


async def test_a_text_that_is_too_long_for_a_description(opened: Open) -> None:
    """What is cut in the description stands in the parameters."""
    long = "word " * 1000 + "./hidden.sh"
    call = {"title": "Think", "kind": "think", "rawInput": {"a": 1}, "content": words_of(long)}
    asked = await asked_about(opened, **call)
    assert len(asked.description) <= 2000 and "./hidden.sh" in str(asked.params)


async def test_parameters_that_came_before_the_request(opened: Open) -> None:
    """As kimi's do: the request has none of its own; a text that they have stands once."""
    before = (
        "update('tool_call', toolCallId='c', title='Shell', kind='execute', status='pending')\n"
        "update('tool_call_update', toolCallId='c', rawInput={'command': 'rm -rf build'})"
    )
    asked = await asked_after(before, opened, title="Shell", content=words_of("rm -rf build"))
    assert asked.params == {"command": "rm -rf build"} and asked.risk_level == "critical"
    assert asked.description.count("rm -rf build") == 1


async def test_each_of_several_differences(opened: Open) -> None:
    """Of one file too."""
    content = [
        {"type": "diff", "path": path, "oldText": "old", "newText": new}
        for path, new in (("a", "one"), ("a", "two"), ("b", "three"))
    ]
    for given in ({}, {"rawInput": {"file_path": "a"}}):
        asked = await asked_about(opened, title="Edit", kind="edit", content=content, **given)
        assert all(new in str(asked.params) for new in ("one", "two", "three"))


async def test_paths_outside_the_roots_are_marked(opened: Open, root: Path) -> None:
    """A link that leads out is one; what lies inside is not."""
    (root / "link").symlink_to("/usr")
    diff = {"type": "diff", "path": "link/x", "newText": "x"}
    call = {"title": "Edit", "kind": "edit", "content": [diff], "rawInput": {"file_path": "in"}}
    asked = await asked_about(opened, **call, locations=[{"path": "/var/lib/y"}])
    assert asked.description.endswith("Outside the allowed roots: link/x, /var/lib/y")
    there = {"command": "ls", "cwd": "/var/lib"}
    asked = await asked_about(opened, title="ls", kind="execute", rawInput=there)
    assert asked.description.endswith("Outside the allowed roots: /var/lib")


@pytest.mark.parametrize(
    ("kind", "shown", "then", "ran"),
    [
        ("execute", {"command": "ls"}, {"rawInput": {"command": "rm x"}}, "rm x"),
        ("execute", {"command": "ls"}, {"rawInput": {"command": ["sh", "-c", "ls"]}}, ""),
        ("edit", {"path": "a"}, {"rawInput": {"path": "b"}}, "b"),
        ("edit", {"path": "a"}, {"content": [{"type": "diff", "path": "b", "newText": ""}]}, "b"),
        ("edit", {"path": "a"}, {"locations": [{"path": "{root}/a"}]}, ""),
        ("search", {"path": "a"}, {"locations": [{"path": "b"}]}, ""),
    ],
)
async def test_a_result_that_names_another_than_was_shown(
    opened: Open, root: Path, kind: str, shown: dict[str, str], then: dict[str, Any], ran: str
) -> None:
    """It is reported; nothing else is."""
    drive = await opened(APPROVED)
    said = await drive.turn(
        f"/do allowed(ask('c', title='Do', kind={kind!r}, rawInput={shown}))\n"
        f"then = {then}\n".replace("{root}", str(root))
        + "update('tool_call_update', toolCallId='c', status='completed', **then)"
    )
    assert [event.ran for event in said if isinstance(event, RanOther)] == [ran] * bool(ran)
    assert not drive.of(ToolStarted)
