"""Code in colours: in files, differences and answers, readable on all that lies behind it."""

import re

import pytest

from devices_app.web_client import DIRECTORY
from tests.conformance import agents
from tests.conformance.bridge import Bridge
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository
from tests.conformance.samples import new_id
from tests.web.browser import PHONE, Page
from tests.web.test_screens import check

pytestmark = pytest.mark.web
COLOURED = (
    "[...(CSS.highlights.get(`code-${arguments[0]}`) ?? [])]"
    ".map((one) => one.startContainer.data.slice(one.startOffset, one.endOffset))"
)
BEHIND = ("surface", "sunk", "added", "removed")


def coloured(page: Page, kind: str, *texts: str) -> None:
    page.wait(f"JSON.stringify({COLOURED}) === JSON.stringify(arguments[1])", kind, list(texts))


def test_code_has_colours(page: Page, bridge: Bridge, phone: Phone, axe: str) -> None:
    repository = Repository(bridge.root / new_id())
    repository.commit_files({"app.py": "x = 1  # one\n", "long.py": f"y = '{'a' * 2001}'\n"})
    session = agents.start(phone, repository.path)["payload"]["session_id"]
    page.open(f"s/{session}/files/app.py")
    coloured(page, "comment", "# one")
    coloured(page, "number", "1")
    page.open(f"s/{session}/files/long.py").find("ol.code li")
    repository.write("app.py", "def f():\n    return 'two'\n")
    page.tap(".tabs a", "Changes")
    page.tap(".file summary", "app.py")
    coloured(page, "word", "def", "return")
    coloured(page, "text", "'two'")  # so none of the long line's
    check(page, axe, "return 'two'")
    page.show_as(PHONE, forced=True)  # where it would look as what is selected
    page.wait("CSS.highlights.size === 0")
    page.show_as(PHONE)
    coloured(page, "word", "def", "return")
    agents.ask(phone, session, "Look:\n\n```js\nlet a = 2;\n```\n\n```\njs\nlet b = 3;\n```\n")
    page.tap(".tabs a", "Chat")
    page.find("code", "let b = 3;")
    coloured(page, "word", "let")  # the other block's first line is code, not its language


def light(colour: str) -> float:
    """The relative luminance of WCAG."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    parts = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(part * share for part, share in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))


def test_colours_can_be_read() -> None:
    """At least 4.5 to 1, which axe does not see of a highlight."""
    style = (DIRECTORY / "app.css").read_text()
    found = re.findall(r"::highlight\((code-\w+)\) {\s*color: (#\w{6});", style)
    assert len(found) == 8
    for theme, colours in enumerate((found[:4], found[4:])):
        for place in BEHIND:
            behind = light(re.findall(rf"--{place}: (#\w{{6}});", style)[theme])
            for name, colour in colours:
                dark, bright = sorted((behind, light(colour)))
                assert (bright + 0.05) / (dark + 0.05) >= 4.5, (name, colour, place)
