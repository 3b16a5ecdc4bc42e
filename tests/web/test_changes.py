"""Changes and files, on a real repository with what real ones have."""

from pathlib import Path

import pytest

from tests.conformance import agents
from tests.conformance.bridge import Bridge
from tests.conformance.repositories import Repository
from tests.conformance.samples import new_id
from tests.web.browser import NETWORK, Page

pytestmark = pytest.mark.web

KINDS = "[...document.querySelectorAll('.file .status > :first-child')].map((n) => n.textContent)"
MARKUP = "<img src=x onerror=alert(1)>.txt"
HIDDEN = "invoice\u202efdp.exe"  # looks like "invoiceexe.pdf"
NAMES = ("with space.txt", "-rf", "ünïcödé ✓.txt", 'quo"te.txt', "new\nline.txt", MARKUP, HIDDEN)
LONG = "deep/" + "a-rather-long-directory-name/" * 4 + "and_a_file_with_a_long_name.py"
LINES = 5_000


def numbered(count: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(1, count + 1))


@pytest.fixture
def repository(bridge: Bridge) -> Repository:
    """One commit, with names of every kind."""
    repository = Repository(bridge.root / new_id())
    repository.commit_files(
        {
            "app.py": "def greet(name):\n    return 'Hello ' + name\n",
            "old_name.py": numbered(40, "kept = "),
            "gone.txt": "nobody needs this\n",
            "logo.png": bytes(range(256)),
            "large.txt": numbered(LINES),
            "both.txt": "one\ntwo\nthree\n",
            "wide.txt": "short\n",
            LONG: "pass\n",
        }
    )
    return repository


def make_changes(repository: Repository) -> None:
    """Leave a change of every kind in the work tree."""
    repository.git("mv", "old_name.py", "new_name.py")
    changes: dict[str, str | bytes] = {
        "app.py": "def greet(name):\n    return f'Hello, {name}!'\n",
        "logo.png": bytes(reversed(range(256))),
        "large.txt": numbered(LINES, "changed"),
        "both.txt": "one\n2\nthree\n",
        "wide.txt": "a line that is far too wide for a phone " * 20 + "\n",
        LONG: "return\n",
        "new directory/first.txt": "1\n",
        "new directory/second.txt": "2\n",
        "empty.txt": "",
        "of_windows.txt": "first\r\nlast\r\n",
        **dict.fromkeys(NAMES, "something\n"),
    }
    repository.write_files(changes)
    (repository.path / "gone.txt").unlink()
    repository.git("add", "both.txt")
    repository.write("both.txt", "one\n2\n3\n")


def session_in(bridge: Bridge, directory: Path) -> str:
    with bridge.phones() as [phone]:
        return str(agents.start(phone, directory)["payload"]["session_id"])


def changes(page: Page, session_id: str) -> Page:
    page.open(f"s/{session_id}/changes").find(".file")
    return page


def choose(page: Page, name: str) -> None:
    page.js(
        "[...document.querySelectorAll('.file')].find((node) =>"
        " node.querySelector('summary').textContent.includes(arguments[0]))"
        ".querySelector('.pick input').click()",
        name,
    )


def commit(page: Page, message: str) -> None:
    page.type("form.commit textarea", message)
    page.tap("form.commit button", "Commit")


def test_every_kind_of_change(page: Page, bridge: Bridge, repository: Repository) -> None:
    make_changes(repository)
    changes(page, session_in(bridge, repository.path))
    assert page.js(KINDS) == [*"MMMDMMRM", *"NNNNNNNNNN"]
    page.wait_text("main", "+5000", "<img src=x onerror=alert(1)>.txt")
    assert page.js("document.querySelectorAll('.file img').length") == 0
    page.find(".file .odd", "U+202E")  # a name that reads as another
    page.find(".file .odd", "U+000A")
    for name, says in (
        ("app.py", "return f'Hello, {name}!'"),
        ("both.txt", "Not staged"),
        ("gone.txt", "nobody needs this"),
        ("logo.png", "A binary file"),
        ("new_name.py", "Renamed from old_name.py"),
        ("new directory/", "new directory/second.txt"),
        ("empty.txt", "An empty file"),
        ("of_windows.txt", "last"),
        ("-rf", "something"),
        ('quo"te', "something"),
    ):
        page.tap(".file summary", name)
        page.wait_text(says)
    assert not page.js("[...document.querySelectorAll('.code .odd')].length")


def test_a_session_below_the_top(page: Page, bridge: Bridge, repository: Repository) -> None:
    """The repository is named, since a commit is of all of it; not where it is the directory."""
    repository.write("deep/new.txt", "1\n")
    changes(page, session_in(bridge, repository.path))
    page.wait_gone("The repository is")
    changes(page, session_in(bridge, repository.path / "deep"))
    page.wait_text(f"The repository is {repository.path}")


def test_a_large_difference_has_parts(page: Page, bridge: Bridge, repository: Repository) -> None:
    make_changes(repository)
    changes(page, session_in(bridge, repository.path))
    page.tap(".file summary", "large.txt")
    page.find(".diff button", "Show more (9600 lines)")
    assert page.js("document.querySelectorAll('.line').length") == 400
    page.tap(".diff button", "Show more")
    page.wait("document.querySelectorAll('.line').length === 800")
    page.tap(".file summary", "large.txt")
    page.tap(".file summary", "wide.txt")
    wide = "[...document.querySelectorAll('.diff')].some((n) => n.scrollWidth > n.clientWidth + 1)"
    page.find("button[aria-pressed=true]", "Wrap")
    assert not page.js(wide)
    page.tap("button[aria-pressed=true]", "Wrap")
    page.wait(wide)
    assert not page.js("document.body.scrollWidth > innerWidth")


def test_chosen_files_are_committed(page: Page, bridge: Bridge, repository: Repository) -> None:
    make_changes(repository)
    changes(page, session_in(bridge, repository.path))
    assert not page.js("document.querySelector('form.commit').checkVisibility()")
    for name in ("app.py", "new_name.py", "-rf", "new directory/"):
        choose(page, name)
    commit(page, "Greet with an exclamation mark")
    page.wait_text("Committed 5 files as", "Greet with an exclamation mark")
    shown = repository.git("show", "--name-only", "--format=%an %s", "HEAD").splitlines()
    assert shown[0] == "Ada Greet with an exclamation mark"
    new = {"new directory/first.txt", "new directory/second.txt"}
    assert set(shown[2:]) == {"app.py", "new_name.py", "-rf"} | new
    page.wait_gone("app.py")
    page.tap("button", "Choose all")
    commit(page, "The rest")
    page.wait_text("Nothing has changed.")
    assert repository.porcelain() == ""


def test_a_hook_that_refuses(page: Page, bridge: Bridge, repository: Repository) -> None:
    """What the hook says is on the screen, and the message is still there for another try."""
    make_changes(repository)
    hook = repository.hook("pre-commit", "echo 'lint: app.py:2 is too long' >&2\nexit 1")
    changes(page, session_in(bridge, repository.path))
    choose(page, "app.py")
    commit(page, "Try it")
    page.tap("dialog button", "Trust and commit")
    page.wait_text("Not committed", "lint: app.py:2 is too long")
    for tab in ("Chat", "Changes"):
        page.tap(".tabs a", tab)
    page.wait_equal("document.querySelector('form.commit textarea').value", "Try it")
    hook.unlink()
    page.tap("form.commit button", "Commit 1 file")
    page.wait_text("Committed 1 file as")
    page.wait_gone("too long")


def test_the_list_follows_what_happens(page: Page, bridge: Bridge, repository: Repository) -> None:
    page.expected.append(NETWORK)
    session_id = session_in(bridge, repository.path)
    page.open(f"s/{session_id}/changes").wait_text("Nothing has changed.")
    repository.write("made.txt", "by the agent\n")
    with bridge.phones() as [phone]:
        agents.start(phone, repository.path, session_id)
        agents.ask(phone, session_id, "done?")
    page.find(".file", "made.txt")
    page.offline()
    page.wait_text("Offline")
    page.tap(".tabs a", "Files")
    page.wait_text("Waits for the connection.")
    page.offline(False)
    page.find(".row-link", "made.txt")


def test_long_lists_come_in_parts(page: Page, bridge: Bridge, repository: Repository) -> None:
    names = [f"many/{number}.txt" for number in range(250)]
    repository.commit_files(dict.fromkeys(names, "old\n"))
    repository.write_files(dict.fromkeys(names, "new\n"))
    session_id = session_in(bridge, repository.path)
    for tab, rows, unit in (("changes", ".file", "files"), ("files/many", ".row", "entries")):
        page.open(f"s/{session_id}/{tab}").find(f"ul.files {rows}")
        assert page.js("document.querySelectorAll(arguments[0]).length", rows) == 200
        page.tap("button.more", f"Show more (50 {unit})")
        page.wait("document.querySelectorAll(arguments[0]).length === 250", rows)
    page.js("document.querySelector('.scroller').scrollTop = 10000")
    seen = (
        "[...document.querySelectorAll('.files a')].find((a) => a.getClientRects()[0]?.top > 300)"
    )
    page.js(f"{seen}.click()")
    page.find("ol.code")
    page.driver.back()
    page.wait_equal("document.querySelector('.scroller').scrollTop", 10000)


def test_no_repository_is_said(page: Page, bridge: Bridge) -> None:
    directory = bridge.root / new_id()
    directory.mkdir()
    page.open(f"s/{session_in(bridge, directory)}/changes")
    page.wait_text("Not a git repository")


def test_files_are_read_by_pages(page: Page, bridge: Bridge, repository: Repository) -> None:
    make_changes(repository)
    session_id = session_in(bridge, repository.path)
    page.open(f"s/{session_id}/files")
    page.tap(".row-link", "deep")
    page.tap(".row-link", "a-rather-long")
    page.tap("nav.path a", repository.path.name)
    page.tap(".row-link", "large.txt")
    page.wait_text("5000 lines", "changed 400", "Show more (4600 lines)")
    page.tap("button", "Show more")
    page.wait("document.querySelectorAll('ol.code li').length === 800")
    page.driver.refresh()  # its address names the file
    page.wait_text("changed 400")
    for name, says in (
        ("logo.png", "A binary file of 256 B"),
        ("of_windows.txt", "2 lines, 13 B"),
        ("quo%22te.txt", "something"),
        ("new%0Aline.txt", "something"),
        ("none.txt", "no such file"),
        ("%2Fetc%2Fpasswd", "/etc/passwd"),
    ):
        page.open(f"s/{session_id}/files/{name}").wait_text(says)
        assert "root:" not in page.text and "U+000D" not in page.text


def test_a_path_in_an_answer_is_a_link(page: Page, bridge: Bridge, repository: Repository) -> None:
    """In its words, in code and as a link's target; what is no path stays text."""
    session_id = session_in(bridge, repository.path)
    said = f"Look at {LONG}#l1, `app.py:1` and [the file](./app.py#L2). Yes and/or no, 24/7.5."
    with bridge.phones() as [phone]:
        agents.start(phone, repository.path, session_id)
        agents.ask(phone, session_id, said)
    page.open(f"s/{session_id}").find(".markdown a", "app.py")
    links = "[...document.querySelectorAll('.markdown a')].map((a) => a.innerText)"
    page.wait_equal(links, [f"{LONG}#l1", "app.py:1", "the file"])
    page.tap(".markdown a", "the file")
    page.wait_text("return 'Hello ' + name")
    page.open(f"s/{session_id}").tap(".markdown a", LONG)
    page.wait_text("pass")


def test_programs_of_the_repository_run_when_they_are_trusted(
    page: Page, bridge: Bridge, repository: Repository
) -> None:
    """D63: what would run is shown first; nothing is committed before a person has trusted it."""
    repository.hook("pre-commit", "echo ran >> ran.txt")
    repository.write("app.py", "changed = True\n")
    head = repository.git("rev-parse", "HEAD")
    changes(page, session_in(bridge, repository.path))
    choose(page, "app.py")
    commit(page, "With its hook")
    page.wait_text("Run its programs?", "pre-commit", str(repository.path))
    assert repository.git("rev-parse", "HEAD") == head
    page.tap("dialog button", "Trust and commit")
    page.wait_text("Committed 1 file as", "With its hook")
    assert (repository.path / "ran.txt").read_text() == "ran\n"


def test_commits_are_pushed_after_a_look_at_them(
    page: Page, bridge: Bridge, repository: Repository
) -> None:
    """D64: to the same name at the only remote, and only when there is something to push."""
    remote = bridge.root / f"{new_id()}.git"
    repository.git("init", "--bare", str(remote))
    repository.git("remote", "add", "origin", str(remote))
    page.open(f"s/{session_in(bridge, repository.path)}/changes")
    page.wait_text("Nothing has changed.")
    page.tap("button", "Push…")
    page.wait_text("origin/main", "Push 1 commit")
    assert repository.git("ls-remote", "origin") == ""
    page.tap("dialog button", "Push 1 commit")
    page.wait_text("Pushed 1 commit to origin/main.")
    head = repository.git("rev-parse", "HEAD").strip()
    assert head in repository.git("ls-remote", "origin")
    page.wait_gone("Push…")
    repository.git("update-ref", "-d", "refs/heads/main", cwd=remote)
    repository.git("fetch", "-q", "--prune", "origin")
    page.tap("button", "Refresh")
    page.wait_text("origin/main is not there", "Push…")


def test_a_session_begins_in_a_work_tree(
    page: Page, bridge: Bridge, repository: Repository
) -> None:
    page.open("new")
    page.wait("document.querySelectorAll('#agent option').length")
    page.js("document.querySelector('#agent').value = 'demo'")
    page.wait("document.querySelector('#directory').value", what="a directory is proposed")
    page.js("document.querySelector('#directory').value = arguments[0]", str(repository.path))
    page.tap("summary", "More")
    page.type("#worktree", "side")
    page.type("#prompt", "Hello there")
    page.tap("button", "Start")
    page.wait_text("you say: Hello there")
    page.wait_text("side")
    assert (repository.path / ".worktrees" / "side" / "app.py").exists()
