"""What claude-code lets a person choose: model, effort, and to plan first (D69)."""

import re
from pathlib import Path
from typing import Any

import pytest

from sessions_app.agents.driver import NotOffered, Verdict
from sessions_app.agents.events import ApprovalAsked, ToolStopped, ToolSucceeded
from tests.agents.claude_model import Model, Text, Tool
from tests.agents.drive import APPROVED, Drive, only

pytestmark = pytest.mark.asyncio(loop_scope="module")
PLAN = "# The plan\n\n1. Do **it**\n"
EXIT: dict[str, Any] = {}  # the program adds what stands in its file of the plan


def value(session: Drive, option: str) -> str:
    return next(one.value for one in session.driver.offers.options if one.id == option)


def kinds_of(session: Drive) -> dict[str, str]:
    return {one.id: one.kind for one in session.driver.offers.options}


async def plan_file(model: Model, session: Drive) -> str:
    """Where the agent keeps its plan, as it tells its model in plan mode."""
    await session.turn("play:hello")
    found = re.search(r"/[^ \"\\]*/plans/[^ \"\\]*\.md", str(model.requests[-1]["messages"]))
    assert found, model.requests[-1]["messages"]
    return found[0]


async def test_the_model_and_the_effort(model: Model, session: Drive) -> None:
    """The model's server sees what was chosen; only what is offered is."""
    assert kinds_of(session) == {"model": "model", "effort": "effort", "plan": "plan"}
    option = session.driver.offers.options[0]
    assert option.value == "default" and {"default", "haiku"} <= {c.value for c in option.choices}
    await session.turn("play:hello")
    before = model.requests[-1]["model"]
    await session.driver.choose("model", "haiku")
    await session.driver.choose("effort", "low")
    await session.turn("play:hello")
    body = model.requests[-1]
    assert "haiku" in body["model"] != before
    assert body["output_config"]["effort"] == "low"
    assert (value(session, "model"), value(session, "effort")) == ("haiku", "low")
    for what in (("model", "nonsense"), ("effort", "huge"), ("plan", "acceptEdits"), ("mode", "x")):
        with pytest.raises(NotOffered):
            await session.driver.choose(*what)


async def test_the_model_by_a_command(session: Drive) -> None:
    """The agent's own command is seen, too."""
    await session.turn("/model haiku")
    await session.turn("play:hello")
    assert value(session, "model") == "haiku"


async def test_commands(session: Drive) -> None:
    """None that would change how it asks."""
    names = {one.name for one in session.driver.offers.commands}
    assert {"compact", "model", "clear"} <= names
    wrong = ("permission", "config", "mode-", "hooks", "add-dir")
    assert not [name for name in names if any(word in name for word in wrong)]


async def test_a_plan_that_is_refused_and_one_that_is_approved(
    model: Model, session: Drive
) -> None:
    """Everything asks while it plans; why it is refused the model reads; then it may begin."""
    await session.driver.choose("plan", "on")
    plan, file = await plan_file(model, session), session.directory / "made"
    prompt = model.play(
        "plan",
        [Tool("Bash", {"command": "ls"})],
        [Tool("Write", {"file_path": plan, "content": PLAN})],
        [Tool("ExitPlanMode", EXIT)],
        [Tool("Bash", {"command": "echo again"})],
        [Tool("ExitPlanMode", EXIT)],
        [Tool("Write", {"file_path": str(file), "content": "it"})],
        [Text("Done.")],
    )
    refused = Verdict("rejected", reason="Say how you test it.")
    answers = [APPROVED, APPROVED, refused, APPROVED, APPROVED, APPROVED]
    said = await session.turn(prompt, *answers)
    asked = [one.call for one in said if isinstance(one, ApprovalAsked)]
    tools = ["Bash", "Write", "ExitPlanMode", "Bash", "ExitPlanMode", "Write"]
    assert [call.tool for call in asked] == tools
    assert asked[2].params["plan"] == asked[4].params["plan"] == PLAN
    assert only(ToolStopped, said).reason == "Say how you test it."
    assert "Say how you test it." in str(model.requests[-1]["messages"])
    planning = next(i for i, one in enumerate(said) if isinstance(one, ToolStopped))
    assert not [one for one in said[:planning] if "made" in str(one)]
    assert len([one for one in said if isinstance(one, ToolSucceeded)]) == 5
    assert file.read_text() == "it" and value(session, "plan") == "off"


async def test_the_agent_plans_by_itself(model: Model, session: Drive) -> None:
    """Its own way into the plan mode is shown as the option; a person takes it out again."""
    prompt = model.play("enters", [Tool("EnterPlanMode", {})], [Text("I plan.")])
    await session.turn(prompt)
    assert value(session, "plan") == "on"
    await session.driver.choose("plan", "off")
    touch = model.play("touch", [Tool("Bash", {"command": "touch made"})], [Text("Then not.")])
    await session.turn(touch, Verdict("rejected"))
    assert value(session, "plan") == "off" and not Path(session.directory, "made").exists()
