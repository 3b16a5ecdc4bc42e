"""The driver and its stand-in hold to the schema that the pinned codex writes of its protocol."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sessions_app.agents.codex import sessions
from tests.agents.codex.conftest import Open
from tests.agents.codex.test_asking import ADD, ASKS_ONE, SERVERS_TOOL
from tests.agents.drive import APPROVED, REJECTED
from tests.agents.install import AGENTS, REQUIRED, missing_agents

pytestmark = [pytest.mark.agents, pytest.mark.asyncio(loop_scope="module")]

Json = dict[str, Any]
CODEX = AGENTS / "node_modules/.bin/codex"
# our requests → the schema of codex's answer, and codex's → that of ours
ANSWERS = {
    "initialize": "v1/InitializeResponse",
    "account/read": "v2/GetAccountResponse",
    "model/list": "v2/ModelListResponse",
    "thread/start": "v2/ThreadStartResponse",
    "thread/resume": "v2/ThreadResumeResponse",
    "thread/items/list": "v2/ThreadItemsListResponse",
    "thread/list": "v2/ThreadListResponse",
    "turn/start": "v2/TurnStartResponse",
    "turn/steer": "v2/TurnSteerResponse",
    "turn/interrupt": "v2/TurnInterruptResponse",
    "item/commandExecution/requestApproval": "CommandExecutionRequestApprovalResponse",
    "item/fileChange/requestApproval": "FileChangeRequestApprovalResponse",
    "item/permissions/requestApproval": "PermissionsRequestApprovalResponse",
    "item/tool/requestUserInput": "ToolRequestUserInputResponse",
    "mcpServer/elicitation/request": "McpServerElicitationRequestResponse",
}
# what the stand-in does in a turn: each kind of item and question once
TURNS = [
    "say('One ', 'two.')",
    ASKS_ONE + "over(item, exitCode=0, durationMs=1, aggregatedOutput='')",
    f"item = change({ADD})\nmay(item)\nover(item)",
    SERVERS_TOOL + "over(item, result={'content': []})",
    """ask('item/permissions/requestApproval', itemId='i', startedAtMs=1, environmentId=None,
        cwd=HERE, reason='r', permissions={'network': {'enabled': True}, 'fileSystem': None})""",
    """ask('item/tool/requestUserInput', itemId='q', isBlocking=True, autoResolutionMs=None,
        questions=[{'id': 'c', 'header': 'h', 'question': 'q', 'isOther': True, 'isSecret': False,
                    'options': [{'label': 'Red', 'description': 'r'}]}])""",
    """note('turn/plan/updated', turnId=id, explanation=None,
        plan=[{'step': 'Look', 'status': 'inProgress'}])
last = {'totalTokens': 30, 'inputTokens': 20, 'outputTokens': 10, 'cachedInputTokens': 0,
        'reasoningOutputTokens': 0, 'cacheWriteInputTokens': 0}
note('thread/tokenUsage/updated', tokenUsage={'total': last, 'last': last})
server.note('account/rateLimits/updated', rateLimits={'primary': {'usedPercent': 1}})
note('thread/name/updated', threadName='Name')
note('error', error={'message': 'Reconnecting'}, willRetry=True)
note('item/reasoning/summaryTextDelta', itemId='r', delta='t', summaryIndex=0)
item = command('bash')
note('item/commandExecution/terminalInteraction', itemId=item['id'], processId='1', stdin='x')
over(item, exitCode=0)""",
]


class Oracle:
    def __init__(self, place: Path) -> None:
        command = [str(CODEX), "app-server", "generate-json-schema", "--out", str(place)]
        home = {"CODEX_HOME": str(place), "HOME": str(place)}
        subprocess.run(command, check=True, timeout=60, env={**os.environ, **home})
        self.place = place

    def faults(self, journal: Path) -> Iterator[str]:
        """What is wrong with a conversation."""
        asked: dict[tuple[str, Any], str] = {}  # who asked, and by which number → how
        for line in map(json.loads, journal.read_text().splitlines()):
            [(way, message)] = line.items()
            method = message.get("method")
            client = way == "in"
            if method is None:
                schema = self.of(ANSWERS[asked["out" if client else "in", message["id"]]])
                message = message.get("result")
            elif "id" in message:
                asked[way, message["id"]] = method
                schema = self.branch("ClientRequest" if client else "ServerRequest", method)
            else:
                name = "ClientNotification" if client else "ServerNotification"
                schema = self.branch(name, method)
            for fault in jsonschema.Draft7Validator(schema).iter_errors(message):
                yield f"{way} {method or schema['title']} {fault.json_path}: {fault.message[:300]}"

    def of(self, name: str) -> Json:
        found: Json = json.loads((self.place / f"{name}.json").read_text())
        return found

    def branch(self, name: str, method: str) -> Json:
        whole = self.of(name)
        fits = [one for one in whole["oneOf"] if method in one["properties"]["method"]["enum"]]
        assert fits, f"{method} is no {name}"
        found: Json = fits[0] | {"definitions": whole.get("definitions", {})}
        return found


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    if why_not := missing_agents():
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(why_not)
    return Oracle(tmp_path_factory.mktemp("schema"))


async def test_a_conversation(
    oracle: Oracle, opened: Open, install: Callable[..., None], journal: Path
) -> None:
    for resume_id in (None, "0199a213-81c0-7800-8aa1-bbab2a035a53"):
        drive = await opened(resume_id=resume_id)
        await drive.driver.choose("model", "large")
        for answer in (APPROVED, REJECTED):
            for code in TURNS:
                await drive.turn(code, answer)
        drive.answers.clear()
        await drive.driver.prompt("wait()")
        await drive.driver.steer("more", "m-1")
        await drive.driver.interrupt()
        await drive.driver.close()
    install()
    await sessions.listed()
    assert set(oracle.faults(journal)) == set()


def test_the_oracle_finds_faults(oracle: Oracle, tmp_path: Path) -> None:
    start = {"id": 1, "method": "thread/start", "params": {"sandbox": "none"}}
    lines = [{"in": start}, {"out": {"id": 1, "result": {}}}]
    (tmp_path / "journal").write_text("\n".join(map(json.dumps, lines)))
    assert len({*oracle.faults(tmp_path / "journal")}) > 1
