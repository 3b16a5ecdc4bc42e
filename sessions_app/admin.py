"""Show sessions, agents, approvals and the log ("pending queue"), read only."""

import json
from collections.abc import Callable

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import display

from bridge_project.kernel import limits
from bridge_project.kernel.terminal_output import shown_output
from bridge_project.kernel.text import without_controls
from bridge_project.protocol import jsontext
from devices_app.admin import LongAdmin, ReadOnlyAdmin
from devices_app.models import AuditEntry
from sessions_app import search
from sessions_app.agents import registry
from sessions_app.approvals.rules import store as rules
from sessions_app.models import LogRow, Session, ToolCall

AGENTS = "admin/sessions_app/agents.html"
STATUS_COLOURS = {"active": "success", "created": "info", "paused": "warning", "error": "danger"}
DECISION_COLOURS = {
    "pending": "warning",
    "approved": "success",
    "rejected": "danger",
    "modified": "info",
}
RISK_COLOURS = {"critical": "danger", "high": "warning", "medium": "info"}


def pending_approvals(request: HttpRequest) -> int | str:
    """Count the approvals that wait, for the menu; nothing when none does."""
    return ToolCall.objects.filter(decision=ToolCall.Decision.PENDING).count() or ""


def is_sessions(request: HttpRequest) -> bool:
    """Tell the menu whether a page is about sessions, and not the agents' page."""
    return "/session/" in request.path and "/session/agents/" not in request.path


def shown(text: str | None) -> SafeString | str:
    """Show a text with its lines and spaces; U+FFFD stands for what hides some."""
    plain = without_controls(text or "")
    return format_html('<pre class="bridge-text" tabindex="0">{}</pre>', plain) if plain else ""


def readable(text: str | None, read: Callable[[str], str] = without_controls) -> str:
    """Return JSON for a person: a lone command as it is, else a line for each name.

    ``read`` makes of a text what is shown.
    """
    if not text:
        return ""
    value = json.loads(text)
    if not isinstance(value, dict):
        return jsontext.dumps(value)
    if value.keys() - {"description"} == {"command"}:
        return read(str(value["command"]))

    def line(one: object) -> str:
        return read(one) if isinstance(one, str) else json.dumps(one, ensure_ascii=False, indent=2)

    return "\n".join(f"{name}: {line(one)}" for name, one in value.items())


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    list_display = (
        *("title", "state", "agent_type", "kind", "asks", "pending_approvals"),
        *("working_directory", "last_activity_at"),
    )
    list_filter = ("archived", "pinned", "status", "kind", "agent_type")
    search_fields = ("session_id",)  # so that there is a field: `get_search_results` says in what
    search_help_text = "Words of titles, directories, prompts and answers, or a session's id."
    fields = (
        *("title", "session_id", "pinned", "archived"),
        *("state", "reason", "agent_type", "kind", "asks"),
        *("working_directory", "turn", "pending_approvals", "rules_now", "hook_count"),
        *("runs_in", "created_at", "last_activity_at", "closed_at"),
    )
    list_display_links = ("title", "state")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Session], search_term: str
    ) -> tuple[QuerySet[Session], bool]:
        """Find what a device finds, and a session by its id (D73)."""
        words = search_term.strip()
        if not words:
            return queryset, False
        said = search.sessions_with(words[: limits.SEARCH_QUERY_CHARS]).values("pk")
        return queryset.filter(Q(session_id__contains=words) | Q(pk__in=said)), False

    @display(description="state", ordering="status", label=STATUS_COLOURS)
    def state(self, session: Session) -> str:
        return session.status

    @display(description="host")
    def runs_in(self, session: Session) -> str:
        """Show the socket of the process in which its agent runs, if it does (D79)."""
        stored = f"{session.host_seq} events stored"
        return f"{session.host} ({stored})" if session.host else ""

    @display(description="rules")
    def rules_now(self, session: Session) -> SafeString:
        """Show what approves calls without asking, for as long as it holds."""
        lines = (
            (one["label"], one["device"], one["since"], one["used"]) for one in rules.of(session)
        )
        line = "<li>{} ({}, since {}, used {} times)</li>"
        return format_html('<ul class="bridge-history">{}</ul>', format_html_join("", line, lines))

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.agents_view)
        return [path("agents/", view, name="sessions_app_agents"), *super().get_urls()]

    def agents_view(self, request: HttpRequest) -> HttpResponse:
        """Show which agents can start here, as /info does."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": "Agents",
            "agents": zip(registry.KINDS.values(), registry.listed(), strict=True),
        }
        return TemplateResponse(request, AGENTS, context)


@admin.register(ToolCall)
class ApprovalAdmin(LongAdmin):
    """Show approvals: who decided, when, from where, and what is still open."""

    list_display = (
        *("created_at", "decided", "tool", "asked", "risk"),
        *("session_title", "by", "decided_at"),
    )
    list_filter = ("decision", "decided_by", "forwarded", "source")
    search_fields = ("tool_call_id", "tool", "description", "session__session_id")
    list_select_related = ("session", "device")
    fieldsets = (
        ("What was asked", {"fields": ("tool", "command", "reasoning", "risk", "session")}),
        ("Decision", {"fields": ("decided", "changed_to", "history")}),
        ("Result", {"fields": ("given",)}),
        ("Details", {"fields": ("description", "tool_call_id", "source", "forwarded")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ToolCall]:
        found: QuerySet[ToolCall] = super().get_queryset(request)
        return found.exclude(decision=None)

    @display(description="decision", ordering="decision", label=DECISION_COLOURS)
    def decided(self, call: ToolCall) -> str:
        return str(call.decision)

    @display(description="risk", ordering="risk_level", label=RISK_COLOURS)
    def risk(self, call: ToolCall) -> str:
        return call.risk_level

    @display(description="what it would do", ordering="description")
    def asked(self, call: ToolCall) -> SafeString:
        plain = without_controls(call.description)
        return format_html('<span class="bridge-lines">{}</span>', plain)

    @display(description="session", ordering="session")
    def session_title(self, call: ToolCall) -> SafeString:
        title = call.session.title or call.session.session_id
        return format_html('<span class="bridge-lines">{}</span>', title)

    @display(description="decided by", ordering="decided_by")
    def by(self, call: ToolCall) -> str:
        rule = "a rule of " if call.decided_by == ToolCall.DecidedBy.RULE else ""
        return f"{rule}{call.device or call.decided_by}"

    @display(description="command or input")
    def command(self, call: ToolCall) -> SafeString | str:
        return shown(readable(call.params))

    @display(description="changed to")
    def changed_to(self, call: ToolCall) -> SafeString | str:
        return shown(readable(call.modifications))

    @display(description="what the tool gave")
    def given(self, call: ToolCall) -> SafeString | str:
        return shown(readable(call.result, shown_output))

    @display(description="history")
    def history(self, call: ToolCall) -> SafeString:
        """Show when an approval was asked for, decided (by whom) and run."""
        by_rule = call.decided_by == ToolCall.DecidedBy.RULE
        who = {"device": f"on the device {call.device}", "agent": "at the machine"}
        if by_rule:
            who["rule"] = f"by the rule “{_rule_of(call)}” of the device {call.device}"
        why = f" ({call.reason})" if call.reason else ""
        decided = f"{call.get_decision_display()} {who.get(call.decided_by, 'by the bridge')}{why}."
        ran = "The tool has run." if call.result is not None else "The call is over."
        steps = (
            (call.created_at, "Begun by the agent." if by_rule else "Asked by the agent."),
            (call.decided_at, decided),
            (call.finished_at, ran),
        )
        entries = ((f"{at:%Y-%m-%d %H:%M:%S} UTC", text) for at, text in steps if at)
        lines = format_html_join("", "<li><time>{}</time> {}</li>", entries)
        return format_html('<ol class="bridge-history">{}</ol>', lines)


def _rule_of(call: ToolCall) -> str:
    """Return the label of the rule that approved a call, which the audit trail has."""
    about = {"session_id": call.session.session_id, "subject": call.tool_call_id}
    found = AuditEntry.objects.filter(action="decision", at__gte=call.created_at, **about).first()
    return str(found.details.get("rule", "")) if found else ""


@admin.register(LogRow)
class PendingQueueAdmin(LongAdmin):
    list_display = ("seq", "type", "session", "size", "created_at", "message_id")
    search_fields = ("message_id", "feed__session__session_id")
    ordering = ("-seq",)
    list_select_related = ("feed__session",)
    fields = ("seq", "type", "session", "size", "created_at", "message_id", "message")

    @display(description="session")
    def session(self, row: LogRow) -> str:
        session = getattr(row.feed, "session", None)
        return str(session) if session else "all devices"

    @display(description="message")
    def message(self, row: LogRow) -> SafeString | str:
        return shown(row.frame)
