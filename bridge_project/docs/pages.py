"""Serve documentation pages, without token or script (D9)."""

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from bridge_project.docs import reference
from bridge_project.kernel.errors import ERRORS, BridgeError

_CODE: Final = re.compile(r"`([^`]+)`")


def _page(name: str, fill: Callable[..., dict[str, object]] = dict) -> Callable[..., HttpResponse]:
    """Make a view of a constant page, whose policy allows only its style."""

    @cache
    def rendered(**arguments: str) -> str:
        return render_to_string(f"bridge/{name}.html", {"style": _style()} | fill(**arguments))

    @csrf_exempt
    @require_safe
    def view(request: HttpRequest, **arguments: str) -> HttpResponse:
        digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
        policy = (
            f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri"
            " 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
        return HttpResponse(rendered(**arguments), headers=headers)

    return view


def inline(text: str) -> SafeString:
    """Mark the parts of a text between backticks as code."""
    return mark_safe(_CODE.sub(r"<code>\1</code>", conditional_escape(text)))  # noqa: S308


def _error(code: str) -> dict[str, object]:
    if code not in ERRORS:
        raise BridgeError("NOT_FOUND", "There is no such error code.")
    return {"row": _error_row(code)}


def _error_row(code: str) -> dict[str, object]:
    row = ERRORS[code]
    return {
        "code": code,
        "sent_as": inline(reference.sent_as(row)),
        "recoverable": reference.retry(row),
        "severity": row.severity,
        "message": inline(row.message),
        "remedy": inline(row.remedy),
    }


@cache
def _style() -> SafeString:
    return mark_safe(render_to_string("bridge/style.css").strip())  # noqa: S308 - our own file


home, overview = _page("home"), _page("overview")
errors = _page("errors", lambda: {"rows": [_error_row(code) for code in ERRORS]})
error = _page("error", _error)
