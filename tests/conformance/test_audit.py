"""The admin site (issue, Build 1; D15, D38): approvals by state with who decided, when and from
which device; an audit trail that nobody changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.conformance import agents
from tests.conformance.admin import Admin, links_of, rows_of, text_of
from tests.conformance.approvals import ask, decide, post
from tests.conformance.bridge import Bridge, eventually
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, commit, committed, session_in
from tests.conformance.samples import hook, new_id

pytestmark = pytest.mark.spec("admin.audit")
STATES = ("pending", "approved", "rejected", "modified")


class Site:
    """The admin site's lists of approvals and of the audit trail, by the words that lead there."""

    def __init__(self, admin: Admin) -> None:
        self.admin, lists = admin, admin.lists()
        (self.approvals,) = {path for words, path in lists.items() if "approval" in words}
        (self.trail,) = {path for words, path in lists.items() if "audit" in words}

    def find(self, path: str, *words: str) -> list[str]:
        """The rows of a list that have all these words."""
        rows = rows_of(self.admin.page(path))
        return [row for row in rows if all(word.lower() in row.lower() for word in words)]


@pytest.fixture(scope="module")
def site(shared: Bridge) -> Site:
    return Site(Admin(shared, f"ada-{new_id()[:8]}"))


def filtered(admin: Admin, path: str, state: str) -> str:
    """The list under the filter that the page itself offers for that state."""
    link = next(
        link
        for link in links_of(admin.page(path))
        if link.startswith("?") and link.endswith(f"={state}")
    )
    return f"{path}{link}"


@pytest.mark.spec("record.decision", "record.decided_at")
def test_approvals_by_state(shared: Bridge, site: Site, sid: str, joined: Phone) -> None:
    """Issue: kept for manual handling, filtered by state, with who decided, when and from which
    device. D37, D38: what the machine decided has no device; nobody writes down a decision.
    """
    pairing, mark = shared.pairing(), new_id()[:13]
    with_name = shared.phone(pairing).ready()
    for state in STATES:
        call_id = ask(shared, joined, sid, {"command": f"ls {mark} {state}"})
        if state != "pending":
            decide(with_name, sid, call_id, state)
    for state in STATES:
        (row,) = site.find(filtered(site.admin, site.approvals, state), mark)
        assert f"{mark} {state}" in row
        if state == "pending":
            assert pairing.name not in row
        else:
            assert pairing.name in row and re.search(r"20\d\d", row), "who and when"
    assert len(site.find(site.approvals, mark)) == 4
    with_name.close()
    assert_unchangeable(site.admin, site.approvals, f"{mark} pending", {"decision": "approved"})
    assert site.find(filtered(site.admin, site.approvals, "pending"), mark)
    ask(shared, joined, sid, {"command": f"ls {mark} granted"})
    shared.accept(post(sid, {"command": f"ls {mark} granted"}), hook("Stop", sid))
    for state, what in (("approved", "granted"), ("rejected", "pending")):
        (row,) = site.find(filtered(site.admin, site.approvals, state), f"{mark} {what}")
        assert "agent" in row.lower()


@pytest.mark.spec("record.*")
def test_the_whole_record(shared: Bridge, site: Site, sid: str, joined: Phone) -> None:
    """Spec, Tool call / approval record: all its fields are kept and can be looked at, with who
    decided, when and on which device.
    """
    mark = new_id()[:13]
    call_id = ask(
        shared,
        joined,
        sid,
        {"command": f"ls {mark}"},
        tool_call_id=f"call-{mark}",
        risk="critical",
        reasoning=f"because {mark}",
    )
    decide(joined, sid, call_id, "modified", {"command": f"ls -l {mark}"})
    shared.accept(
        post(sid, {"command": f"ls -l {mark}"}, tool_call_id=call_id, result=f"total {mark}")
    )
    joined.expect("tool_result", session_id=sid)
    page = site.admin.page(site.approvals)
    row = next(row for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL) if mark in row)
    link = next(link for link in links_of(row) if link.startswith(site.approvals))
    text = text_of(site.admin.page(link))
    for part in (
        f"call-{mark}",
        "Bash",
        f"ls {mark}",
        f"ls -l {mark}",
        f"because {mark}",
        f"total {mark}",
    ):
        assert part in text, part
    assert re.search(
        r"Asked by the agent\. .* Modified on the device phone-\w+ \(#\d+\)\. .*", text
    )
    assert "The tool has run." in text
    assert "critical" in text.lower() and "modified" in text.lower() and "prompt before" in text, (
        "the session, by its title"
    )


def assert_unchangeable(admin: Admin, path: str, mark: str, fields: dict[str, str]) -> None:
    """Neither added, nor changed, nor deleted, singly or many at once."""
    row = next(
        row for row in re.findall(r"<tr.*?</tr>", admin.page(path), re.DOTALL) if mark in row
    )
    before = text_of(row)
    own = next(link for link in links_of(row) if link.startswith(path))
    key = own.removeprefix(path).split("/")[0]
    assert admin.get(f"{path}add/").status == 403
    admin.page(own)
    assert admin.post(own, fields).status == 403
    assert admin.get(f"{path}{key}/delete/").status == 403
    assert admin.post(f"{path}{key}/delete/", {"post": "yes"}).status == 403
    admin.page(path)
    answer = admin.post(path, {"action": "delete_selected", "_selected_action": key, "post": "yes"})
    assert answer.status in (200, 302, 403), answer
    assert before in [
        text_of(row) for row in re.findall(r"<tr.*?</tr>", admin.page(path), re.DOTALL)
    ]


def test_the_trail_of_decisions(shared: Bridge, site: Site, sid: str, joined: Phone) -> None:
    """Issue: every decision, by a device and at the machine, once; append-only."""
    pairing, mark = shared.pairing(), new_id()[:13]
    phone = shared.phone(pairing).ready()
    by_device = ask(shared, joined, sid, tool_call_id=f"device-{mark}")
    decide(phone, sid, by_device, "rejected")
    decide(phone, sid, by_device, "approved")  # comes too late: it decides nothing
    ask(shared, joined, sid, {"command": "pwd"}, tool_call_id=f"agent-{mark}")
    shared.accept(hook("Stop", sid))
    (row,) = site.find(site.trail, f"device-{mark}")
    assert "decision" in row and pairing.name in row and "rejected" in row and sid in row
    (row,) = site.find(site.trail, f"agent-{mark}")
    assert "decision" in row
    assert "agent" in row.lower().replace(f"agent-{mark}", "")
    assert "rejected" in row
    phone.close()
    changed = {"action": "pairing", "details": "{}"}
    assert_unchangeable(site.admin, site.trail, f"device-{mark}", changed)


def test_the_trail_of_commits(shared: Bridge, site: Site, repository: Repository) -> None:
    """Issue: every client action that changes something: a commit; one that is refused changes
    nothing, one that is repeated is one.
    """
    pairing = shared.pairing()
    phone = shared.phone(pairing).ready()
    repository.commit_files({"a": "1\n"})
    sid = session_in(shared, phone, repository.path)
    assert commit(phone, sid, "Nothing")["type"] == "error"
    repository.write("a", "2\n")
    summary, id_ = {}, new_id()
    for _ in range(2):
        phone.send(
            "git_commit", {"session_id": sid, "message": "Something", "files": ["a"]}, id=id_
        )
        summary = committed(
            phone.until(lambda message: message.get("id") == id_, "the commit"), sid
        )
    (row,) = site.find(site.trail, sid)
    assert "commit" in row and pairing.name in row and summary["hash"][:7] in row, row
    phone.close()


def test_the_trail_of_sessions(make_bridge: Callable[..., Bridge]) -> None:
    """Issue: every client action that changes something, with the device that did it: what is said
    to an agent counts by its length, not by its words.
    """
    bridge = make_bridge("trail")
    pairing = bridge.pairing()
    phone = bridge.phone(pairing).ready()
    sid = agents.begin(bridge, phone)
    agents.say(phone, sid, "/sleep 60")
    phone.expect("stream_chunk", session_id=sid)
    phone.send("session_interrupt", {"session_id": sid})
    phone.expect("stream_end", session_id=sid, finish_reason="stop")
    assert bridge.stop() == 0
    bridge.start()
    phone.ready()
    assert agents.start(phone, bridge.root)["type"] == "session_ready", (
        "another session, which has entries of its own"
    )
    assert agents.start(phone, bridge.root, sid, resume=True)["type"] == "session_ready"
    assert agents.start(phone, bridge.root, sid, resume=True)["type"] == "session_ready", (
        "it runs: it is only joined"
    )
    agents.end(phone, sid)
    for type_, payload in (
        ("message", {"content": "too late", "role": "user"}),
        ("session_interrupt", {}),
        ("session_end", {"reason": "user_request"}),
    ):
        assert phone.request(type_, {"session_id": sid, **payload})["type"] == "error", (
            "what is refused changes nothing"
        )
    phone.close()

    site = Site(Admin(bridge, "ada"))
    rows = site.find(site.trail, sid)
    found = [
        re.search(rf"(\w+) Device {re.escape(pairing.name)} (.*){sid} (.*)", row)
        for row in reversed(rows)
    ]
    assert all(found), rows
    assert [(one[1], one[2].strip()) for one in found if one] == [
        ("session_start", "demo"),
        ("message", "-"),
        ("interrupt", "-"),
        ("session_resume", "demo"),
        ("session_end", "-"),
    ]
    assert '{"characters": 9}' in rows[-2] and "/sleep" not in rows[-2], rows


def test_the_trail_of_devices(shared: Bridge, site: Site) -> None:
    """Issue: pairing and revoking; a later connection is neither."""
    pairing = shared.pairing()
    for _ in range(2):
        shared.phone(pairing).ready().close()
    (row,) = site.find(site.trail, pairing.name)
    assert "pair" in row.lower(), row
    shared.manage("revoke_device", pairing.name)
    eventually(lambda: len(site.find(site.trail, pairing.name)) == 2)
    assert [row for row in site.find(site.trail, pairing.name) if "revo" in row.lower()]


def test_nobody_else_sees_it(shared: Bridge, site: Site) -> None:
    """D14: the admin site is for its users: no token opens it."""
    for path in (site.approvals, site.trail):
        for token in (None, shared.admin_token, shared.device_token(), shared.hook_token):
            answer = shared.get(path, token)
            assert answer.status in (302, 401, 403) and b"result_list" not in answer.body, answer
