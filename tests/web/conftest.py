"""Bridges and browsers for the web client's tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bridge import Bridge
from tests.faults.quick import QuickBridge, bridge_of_module
from tests.web.browser import BROWSER, DRIVER, Page
from tests.web.link import Link

MakePage = Callable[..., Page]
MakeBridge = Callable[..., Bridge]

HERE = Path(__file__).parent
LONGEST = 1800  # seconds: a minute on a quiet machine may be a quarter of an hour on another

# the tests' phones stay connected
ROOM = {
    "BRIDGE_DEMO_SHELL": "1",
    "BRIDGE_MAX_WEBSOCKETS": "100",
    "BRIDGE_MAX_SESSIONS": "100",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(LONGEST))


@pytest.fixture(scope="session")
def chromium() -> None:
    if BROWSER is None or DRIVER is None:
        pytest.skip("no chromium and chromedriver on this machine (apt install chromium-driver)")


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of the accessibility checker."""
    try:
        files = distribution("axe-playwright-python").files or []
    except PackageNotFoundError:
        pytest.skip("axe is not installed: make test-web")
    script = next(file for file in files if file.name == "axe.min.js")
    return Path(str(script.locate())).read_text()


@pytest.fixture
def make_bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeBridge]:
    """Start a bridge of a test's own, with settings."""
    with ExitStack() as ending:

        def make(**settings: Any) -> Bridge:
            directory = tmp_path_factory.mktemp("bridge")
            return ending.enter_context(QuickBridge(directory, **ROOM | settings))

        yield make


bridge = bridge_of_module(**ROOM)


@pytest.fixture(scope="module")
def _link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    made = Link()
    directory = tmp_path_factory.mktemp("bridge")
    with QuickBridge(directory, BRIDGE_PUBLIC_URL=made.url, **ROOM) as made.bridge:
        yield made
        made.close()


@pytest.fixture
def link(_link: Link) -> Link:
    """A network that can be cut, with a bridge at its end for which it is the only way."""
    _link.mend()
    return _link


@pytest.fixture
def make_page(tmp_path_factory: pytest.TempPathFactory, chromium: None) -> Iterator[MakePage]:
    """Open a browser of its own on a bridge; at the end none may have complained of anything."""
    made: list[Page] = []

    def make(bridge: Bridge, **more: Any) -> Page:
        made.append(Page(tmp_path_factory.mktemp("profile"), bridge, **more))
        return made[-1]

    yield make
    complaints = [text for page in made for text in page.close()]
    assert not complaints, "the console was told:\n" + "\n".join(complaints)


@pytest.fixture
def page(make_page: MakePage, bridge: Bridge) -> Page:
    """A browser that was just paired."""
    return make_page(bridge).pair()
