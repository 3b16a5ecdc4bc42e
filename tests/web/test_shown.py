"""What an agent's programs and words are is what is shown: output, blocks, several edits."""

import json

import pytest

from tests.conformance import agents
from tests.conformance.approvals import post, pre
from tests.conformance.bridge import Bridge
from tests.conformance.samples import hook, new_session
from tests.web.actions import open_approval
from tests.web.browser import Page
from tests.web.conftest import MakePage
from tests.web.test_screens import check

pytestmark = pytest.mark.web

COLOURS = " ".join(f"\x1b[{code}m{code}\x1b[0m" for code in (*range(30, 38), *range(90, 98)))
OUTPUT = (
    f"\x1b]0;a title\x07{COLOURS}\n\x1b[1;32m✓\x1b[0m 3 tests \x1b[38;5;220mslow\x1b[m\n"
    "loading  10%\rloading 100%\n\x1b]8;;javascript:alert(1)\x1b\\a link\x1b]8;;\x1b\\"
    "\x1b]52;c;cm0gLXJm\x07 \x1b[8mhidden\x1b[m a\u202eb"
)
HARM = ("\x1b[31m" + "x" * 300_000, "\x1b[32mx\x1b[31my" * 50_000, "\x1b]0;" * 60_000)
TEXT = """Do this:

1. Run:
    ```sh
    a_b=1; rm *_old.txt
    ls
    ```
2. Then:
   - deeper
     ```
     x

     y
     ```
3. Look at this:

   | name | what it is for | how long it takes | who asked for it | since |
   |---|---|---|---|---|
   | parser | reads all the files | twenty minutes | somebody in the team | yesterday |

> As it said:
> ```
> one
>   two
> ```
""" + "\n".join(f"{'  ' * depth}- level {depth}" for depth in range(40))
EDITS = [
    {"old_string": "a = 1", "new_string": "a = 2"},
    {"old_string": "b = 1", "new_string": "b = 2", "replace_all": True},
    {"old_string": "c = 1", "new_string": "c = 2"},
]


def test_output_is_what_a_terminal_shows(make_page: MakePage, bridge: Bridge, axe: str) -> None:
    page = make_page(bridge).pair()
    session_id = new_session()
    run = {"command": "make \x1b[2K\rtest"}
    bridge.accept(
        hook("UserPromptSubmit", session_id, {"prompt": "go"}),
        pre(session_id, run, tool_use_id="t"),
        post(session_id, run, result=OUTPUT, tool_use_id="t"),
    )
    page.open(f"s/{session_id}").tap("details.tool summary", "Bash: make")
    output = "document.querySelector('.tool pre[aria-label=Output]')"
    numbers = " ".join(map(str, (*range(30, 38), *range(90, 98))))
    page.wait_equal(
        f"{output}.textContent",
        f"{numbers}\n✓ 3 tests slow\nloading 100%\na link hidden aU+202Eb",
    )
    assert page.js(f"{output}.querySelectorAll('a').length") == 0
    page.find(".tool .green.bold", "✓")
    page.find(".tool .yellow", "slow")
    page.find(".tool pre[aria-label=Input]", "make U+001B[2KU+000Dtest")  # a command is named
    check(page, axe, "loading 100%")


def test_output_that_is_to_do_harm(page: Page, bridge: Bridge) -> None:
    """The page goes on, with as few elements as ever."""
    for harm in HARM:
        session_id = new_session()
        bridge.accept(
            hook("UserPromptSubmit", session_id, {"prompt": "go"}),
            pre(session_id, tool_use_id="t"),
            post(session_id, result=harm[: 256 * 1024], tool_use_id="t"),
        )
        page.open(f"s/{session_id}").tap("details.tool summary", "Bash: ls")
        page.find("pre[aria-label=Output]")
        assert page.js("document.getElementsByTagName('*').length") < 3000


def test_blocks_stand_at_their_place(make_page: MakePage, bridge: Bridge, axe: str) -> None:
    page = make_page(bridge).pair()
    session_id = new_session()
    stop = {"reason": "task_completed", "message": TEXT}
    bridge.accept(
        hook("UserPromptSubmit", session_id, {"prompt": "go"}), hook("Stop", session_id, stop)
    )
    page.open(f"s/{session_id}").find(".markdown ol > li:nth-child(3)", "Look at this")
    code = "[...document.querySelectorAll('.markdown pre')].map((one) => one.textContent)"
    shown = ["a_b=1; rm *_old.txt\nls", "x\n\ny", "one\n  two"]
    assert page.js(code) == shown
    assert page.js("document.querySelectorAll('.markdown ol').length") == 1
    page.find(".markdown ol > li:first-child > pre")
    page.find(".markdown blockquote > pre", "two")
    page.find(".markdown", "level 39")
    wide = "((n) => n.scrollWidth > n.clientWidth)(document.querySelector('.markdown li .scroll'))"
    assert page.js(wide), "a wide table scrolls by itself"
    check(page, axe, "level 39")


def test_several_edits_are_several_differences(
    make_page: MakePage, bridge: Bridge, axe: str
) -> None:
    """Of one file, and of others (`more`); where it is decided, and afterwards."""
    page, phone = make_page(bridge).pair(), bridge.phone().ready()
    session_id = agents.begin(bridge, phone)
    more = [{"file_path": "other.py", "old_string": "d = 1", "new_string": "d = 2"}]
    call = {"file_path": "a.py", "edits": EDITS, "more": more}
    agents.say(phone, session_id, f"/tool MultiEdit {json.dumps(call)}")
    open_approval(page, "a.py")
    page.wait_text("Edit 1 of 3", "Edit 3 of 3", "other.py", "replace_all")
    assert page.js("document.querySelectorAll('dialog .diff').length") == 4
    texts = "[...document.querySelectorAll('dialog pre')].map((one) => one.textContent)"
    assert page.js(texts) == ["a.py", "true", "other.py"]
    check(page, axe, "Edit 1 of 3")
    page.js("document.querySelector('.sheet-body').scrollTop = 1e6")
    page.open(f"s/{session_id}").tap("details.tool summary", "MultiEdit: a.py")
    page.wait("document.querySelectorAll('.tool-body .diff').length === 4")
    assert "old_string" not in page.js("document.querySelector('.tool-body').textContent")
