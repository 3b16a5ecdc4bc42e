"""The admin site's approvals by state, and an audit trail that nobody changes (D15, D38)."""

import re
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.conformance import agents
from tests.conformance.admin import Admin, links_of, rows_of, text_of
from tests.conformance.approvals import ask, decide, post
from tests.conformance.bridge import Bridge
from tests.conformance.delivery import send
from tests.conformance.phone import Phone
from tests.conformance.repositories import Repository, Work, committed
from tests.conformance.samples import hook, new_id
from tests.conformance.test_attachments import sent
from tests.conformance.test_bad_requests import ask_in
from tests.servers import wait_until

pytestmark = pytest.mark.spec("admin.audit")
STATES = ("pending", "approved", "rejected", "modified")


class Site(Admin):
    """The admin site's lists of approvals and of the audit trail."""

    approvals, trail = "/admin/sessions_app/toolcall/", "/admin/devices_app/auditentry/"

    def find(self, path: str, *words: str) -> list[str]:
        """The rows of a list that have all these words."""
        rows = rows_of(self.page(path))
        return [row for row in rows if all(word.lower() in row.lower() for word in words)]

    def own_page(self, path: str, mark: str) -> str:
        """The page of the first entry in a list that has this word."""
        rows = re.findall(r"<tr.*?</tr>", self.page(path), re.DOTALL)
        links = links_of(next(row for row in rows if mark in row))
        return next(link for link in links if link.startswith(path))


@pytest.fixture(scope="module")
def site(shared: Bridge) -> Site:
    return Site(shared, "ada")


def filtered(site: Site, path: str, state: str) -> str:
    """The list under the filter that the page itself offers for that state."""
    links = [link for link in links_of(site.page(path)) if link.startswith("?")]
    return path + next(link for link in links if link.endswith(f"={state}"))


@pytest.mark.spec("record.*")
def test_approvals_by_state(shared: Bridge, site: Site, sid: str, joined: Phone) -> None:
    """All fields of each, with who decided, when and on which device; nobody writes one down."""
    pairing, mark = shared.pairing(), new_id()[:13]
    changed = {"command": f"ls -l {mark}"}
    more = {"risk": "critical", "reasoning": f"because {mark}"}
    with closing(shared.phone(pairing).ready()) as phone:
        for state in STATES:
            more["tool_call_id"] = call_id = f"{state}-{mark}"
            ask(shared, joined, sid, {"command": f"ls {mark} {state}"}, **more)
            if state != "pending":
                decide(phone, sid, call_id, state, changed if state == "modified" else None)
    for state in STATES:
        (row,) = site.find(filtered(site, site.approvals, state), mark)
        assert f"{mark} {state}" in row
        assert (pairing.name in row) is (state != "pending"), "who"
        assert state == "pending" or re.search(r"20\d\d", row), "when"
    assert len(site.find(site.approvals, mark)) == 4
    assert_unchangeable(site, site.approvals, f"{mark} pending", {"decision": "approved"})
    assert site.find(filtered(site, site.approvals, "pending"), mark)
    shared.accept(post(sid, changed, tool_call_id=call_id, result=f"total {mark}"))
    joined.expect("tool_result", session_id=sid)
    text = text_of(site.page(site.own_page(site.approvals, f"{mark} modified")))
    parts = (call_id, "Bash", f"ls {mark} modified", *changed.values(), f"because {mark}")
    for part in (*parts, f"total {mark}", "critical", "prompt before"):
        assert part in text or part.capitalize() in text, part
    decided = rf"Modified on the device {pairing.name} \(#\d+\)\."
    assert re.search(rf"Asked by the agent\. .* {decided} .*The tool has run\.", text)


def assert_unchangeable(site: Site, path: str, mark: str, fields: dict[str, str]) -> None:
    """Neither added, nor changed, nor deleted, singly or many at once; no token opens the list."""
    bridge = site.bridge
    for token in (None, bridge.admin_token, bridge.device_token(), bridge.hook_token):
        answer = bridge.get(path, token)
        assert answer.status in (302, 401, 403) and b"result_list" not in answer.body, answer
    own = site.own_page(path, mark)
    (before,) = site.find(path, mark)
    key = own.removeprefix(path).split("/")[0]
    assert site.get(f"{path}add/").status == 403
    site.page(own)
    assert site.post(own, fields).status == 403
    assert site.get(f"{path}{key}/delete/").status == 403
    assert site.post(f"{path}{key}/delete/", {"post": "yes"}).status == 403
    site.page(path)
    answer = site.post(path, {"action": "delete_selected", "_selected_action": key, "post": "yes"})
    assert answer.status in (200, 302, 403), answer
    assert site.find(path, mark) == [before]


def test_the_trail_of_a_device(
    shared: Bridge, site: Site, sid: str, joined: Phone, repository: Repository
) -> None:
    """Its pairing and revoking; every decision once, by a device or at the machine; every commit
    once: one that is refused changes nothing, one that is repeated is one.
    """
    pairing, mark = shared.pairing(), new_id()[:13]
    phone = shared.phone(pairing).ready()
    by_device = ask(shared, joined, sid, tool_call_id=f"device-{mark}")
    decide(phone, sid, by_device, "rejected")
    decide(phone, sid, by_device, "approved")
    ask(shared, joined, sid, {"command": "pwd"}, tool_call_id=f"agent-{mark}")
    shared.accept(hook("Stop", sid))
    (row,) = site.find(site.trail, f"device-{mark}")
    assert all(word in row for word in ("decision", pairing.name, "rejected", sid)), row
    (row,) = site.find(site.trail, f"agent-{mark}", "decision", "rejected")
    assert "agent" in row.lower().replace(f"agent-{mark}", "")
    repository.commit_files({"a": "1\n"})
    work = Work(shared, phone, repository.path)
    assert work.commit("Nothing")["type"] == "error"
    repository.write("a", "2\n")
    body = {"session_id": work.sid, "message": "Something", "files": ["a"]}
    summary = committed(send(phone, "git_commit", new_id(), body, times=2), work.sid)
    (row,) = site.find(site.trail, work.sid)
    assert "commit" in row and pairing.name in row and summary["hash"][:7] in row, row
    phone.again().close()
    changed = {"action": "pairing", "details": "{}"}
    assert_unchangeable(site, site.trail, f"device-{mark}", changed)
    shared.manage("revoke_device", pairing.name)
    wait_until(lambda: len(site.find(site.trail, pairing.name, "revo")) == 1)
    assert len(site.find(site.trail, pairing.name, "pair")) == 1, "a later connection is none"
    assert len(site.find(site.trail, pairing.name)) == 4


def test_the_trail_of_sessions(make_bridge: Callable[..., Bridge]) -> None:
    """What is said and sent to an agent counts by its length, not by its content."""
    bridge = make_bridge("trail")
    pairing = bridge.pairing()
    phone = bridge.phone(pairing).ready()
    sid = agents.begin(bridge, phone)
    for _ in range(2):  # the second time the same, which is nothing new
        sent(bridge, sid, b"A secret.", name="note.txt", client_id=sid, token=phone.token)
    agents.say(phone, sid, "/sleep 60")
    phone.expect("stream_chunk", session_id=sid)
    phone.send("session_interrupt", {"session_id": sid})
    phone.expect("stream_end", session_id=sid, finish_reason="stop")
    assert bridge.stop() == 0
    bridge.start()
    phone.ready()
    # another session, which has entries of its own; this one, resumed and only joined
    for session_id, resume in ((None, False), (sid, True), (sid, True)):
        answer = agents.start(phone, bridge.root, session_id, resume=resume)
        assert answer["type"] == "session_ready"
    agents.end(phone, sid)
    for type_ in ("message", "session_interrupt", "session_end"):  # refused, which changes nothing
        assert ask_in(phone, sid, type_)["type"] == "error"
    phone.close()

    site = Site(bridge, "ada")
    rows = site.find(site.trail, sid)
    pattern = rf"(\w+) Device {re.escape(pairing.name)} (.*?) *{sid} "
    done = {"session_start": "demo", "attachment": "note.txt", "message": "-", "interrupt": "-"}
    done |= {"session_resume": "demo", "session_end": "-"}
    assert [re.findall(pattern, row) for row in reversed(rows)] == [[one] for one in done.items()]
    assert '{"size": 9}' in rows[-2] and "secret" not in rows[-2], rows
    assert '{"characters": 9}' in rows[-3] and "/sleep" not in rows[-3], rows
