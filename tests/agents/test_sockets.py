"""D77: hosts' sockets where there is no /proc, and their names may be too long for the system."""

from pathlib import Path

import pytest

from bridge_project.kernel import ways
from sessions_app.agents.host import sockets


@pytest.mark.parametrize("letters", [1, 100])
def test_a_name_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: int
) -> None:
    monkeypatch.setitem(ways.linux, "sockets", False)
    path = tmp_path / ("d" * letters) / "host.socket"
    path.parent.mkdir()
    with sockets.listen(path) as listening, sockets.connect(path):
        assert path.is_socket()
        listening.settimeout(60)
        listening.accept()[0].close()
