"""What comes with a prompt is given to an ACP agent as it can take it (D70)."""

import base64
import json
from pathlib import Path

import pytest

from sessions_app.agents.driver import Attached
from sessions_app.agents.events import TurnEnded
from tests.agents.conftest import Open
from tests.agents.drive import Drive, text

pytestmark = pytest.mark.asyncio(loop_scope="module")

PICTURE = b"\x89PNG, or so"


async def give(drive: Drive, place: Path, given: str) -> str:
    """What the agent says when it is given the picture in this way."""
    path = place / "kept"
    path.write_bytes(PICTURE)
    await drive.driver.give("Look.", [Attached("1", "a b.png", "image/png", given, path)])
    await drive.said_one(TurnEnded)
    return text(drive.said)


async def test_an_agent_that_sees_is_given_pictures(opened: Open, tmp_path: Path) -> None:
    drive = await opened(mode="sees")
    assert drive.driver.picture_bytes > 0
    assert (await give(drive, tmp_path, "picture")).endswith(": Look.")
    lines = map(json.loads, (tmp_path / "journal").read_text().splitlines())
    [seen] = [line for line in lines if line["what"] == "picture"]
    assert (seen["kind"], base64.b64decode(seen["data"])) == ("image/png", PICTURE)


async def test_any_other_is_told_the_path_of_a_copy(opened: Open, tmp_path: Path) -> None:
    drive = await opened()
    assert drive.driver.picture_bytes == 0
    said = await give(drive, tmp_path, "file")
    copy = Path(said.splitlines()[-1])
    assert (copy.name, copy.read_bytes()) == ("a b.png", PICTURE)
    assert copy.stat().st_mode & 0o077 == 0 or copy.parent.parent.parent.stat().st_mode & 0o077 == 0
    await drive.close()
    assert not copy.exists()
