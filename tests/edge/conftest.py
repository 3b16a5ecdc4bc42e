"""A running edge for each module, and another for whoever needs its own settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.edge.edge import Edge


@pytest.fixture(scope="module")
def edge(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Edge]:
    """TLS on every interface as by default, and a plain port whose trusted proxy is 127.0.0.1."""
    # one of them comes to be as a user's does
    data, cold = tmp_path_factory.mktemp("edge") / "data", request.path.stem == "test_http"
    with Edge(
        data, plain=True, cold=cold, BRIDGE_TRUSTED_PROXIES="127.0.0.1", BRIDGE_MAX_MESSAGE_MB="10"
    ) as running:
        yield running
        unexpected = [
            line
            for line in running.log.splitlines()
            if re.match(r"\w*(Error|Exception)\b", line) and "on purpose" not in line
        ]
        assert not unexpected and "Unhandled" not in running.log


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Edge]]:
    """More of them, forked from what has all imported."""
    running: list[Edge] = []

    def start(*arguments: str, plain: bool = False, **environment: Any) -> Edge:
        running.append(
            Edge(tmp_path / f"data{len(running)}", *arguments, plain=plain, **environment)
        )
        return running[-1].spawn() if "unready" in arguments else running[-1].start()

    yield start
    for one in running:
        one.kill()
