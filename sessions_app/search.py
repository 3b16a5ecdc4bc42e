"""Find what was said, and where, in all sessions (D73).

The index follows the log beside whatever appends to it, and so also covers a log of before.
"""

import asyncio
import json
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import structlog
from django.db import transaction
from django.db.models import F, Q, QuerySet

from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.text import clean, printable
from bridge_project.kernel.threads import search as thread
from bridge_project.protocol.resources import SearchHit
from bridge_project.protocol.types import now_text
from sessions_app.log.tail import tail
from sessions_app.models import LogRow, Said, SaidUpTo, Session

log = structlog.get_logger("bridge.search")

ROWS_AT_ONCE = 200  # in one transaction: nobody waits long for it
LOOK_SECONDS = 1.0
KEPT_FOLDED = 8192  # titles and directories
EXCERPT_CHARS = 160
EXCERPT_BEFORE = 40  # of these, before the first word
# rows that have or end a text; of a tool's events, which are most, no frame is read
_SAYING = Q(type="stream_end") | (
    Q(type="agent_event") & (Q(frame__contains='"UserPromptSubmit"') | Q(frame__contains='"Stop"'))
)


# -- the index -------------------------------------------------------------------------------------


async def follow() -> None:
    """Index what is appended to the log, until it is cancelled.

    An old log takes minutes: half of the time is left to what the bridge does meanwhile. While the
    log does not grow, nothing is asked of the database.
    """
    behind, seen = True, -1
    while True:
        if not behind and seen == tail.head:
            await asyncio.sleep(LOOK_SECONDS)
            continue
        seen, began = tail.head, time.monotonic()
        try:
            behind = await thread.run(index_some)
        except STORAGE_ERRORS:
            behind, seen = False, -1  # polling reports it
        except Exception:
            log.exception("not_indexed")
            failure_alerts.report("INTERNAL_ERROR", "search")
            behind, seen = False, -1
        await asyncio.sleep(time.monotonic() - began if behind else LOOK_SECONDS)


def index_some() -> bool:
    """Index the next rows of the log; return whether there may be more."""
    at = SaidUpTo.objects.filter(pk=1).values_list("seq", flat=True).first()
    rows = LogRow.objects.filter(seq__gt=at or 0).order_by("seq")[:ROWS_AT_ONCE]
    found = list(rows.values_list("seq", "feed_id", "type", "message_id", "created_at"))
    if not found:
        return False
    numbers = [seq for seq, *_ in found]
    frames = dict(LogRow.objects.filter(_SAYING, seq__in=numbers).values_list("seq", "frame"))
    sessions = dict(
        Session.objects.filter(feed__in={feed for _, feed, *_ in found}).values_list("feed", "pk")
    )
    said = []
    for seq, feed, type_, id_, moment in found:
        if seq in frames and feed in sessions:  # both may have been forgotten meanwhile
            for where, text in _texts(type_, frames[seq], feed, seq):
                about = {"session_id": sessions[feed], "at": moment, "message_id": id_}
                kept = clean(text[: limits.SEARCH_TEXT_CHARS])
                said.append(Said(seq=seq, where=where, text=kept, folded=_fold(kept), **about))
    with transaction.atomic():
        head, _ = SaidUpTo.objects.select_for_update().get_or_create(pk=1)
        if head.seq == (at or 0):  # else another process has done it
            there = Session.objects.select_for_update(no_key=True).filter(pk__in=sessions.values())
            known = set(there.order_by("pk").values_list("pk", flat=True))
            Said.objects.bulk_create([one for one in said if one.session_id in known])
            head.seq = found[-1][0]
            head.save()
    return len(found) == ROWS_AT_ONCE


def _texts(type_: str, frame: str, feed: int, seq: int) -> Iterator[tuple[Said.Where, str]]:
    """Yield what a row says: a prompt, or the end of an answer."""
    payload = json.loads(frame)["payload"]
    if type_ == "stream_end":
        if payload["finish_reason"] != "tool_call" and (text := _streamed(feed, seq, payload)):
            yield Said.Where.ANSWER, text
        return
    inner = payload.get("payload", {})
    prompt, answer = inner.get("prompt"), inner.get("message")
    made = isinstance(context := inner.get("context"), dict) and context.get("synthetic")
    if payload["event"] == "UserPromptSubmit" and isinstance(prompt, str) and not made:
        yield Said.Where.PROMPT, prompt
    if payload["event"] == "Stop" and isinstance(answer, str):
        yield Said.Where.ANSWER, answer


def _streamed(feed: int, seq: int, end: dict[str, object]) -> str:
    """Return the answer that a row ends, from the pieces before it."""
    pieces: list[str] = []
    length = 0
    before = LogRow.objects.filter(feed=feed, seq__lt=seq, type__startswith="stream_")
    for type_, frame in before.order_by("-seq").values_list("type", "frame").iterator(100):
        payload = json.loads(frame)["payload"]
        if payload["message_id"] != end["message_id"] or type_ == "stream_start":
            break
        if type_ == "stream_chunk" and not payload["is_tool_use"]:
            pieces.append(payload["content"])
            length += len(pieces[-1])
        if length > limits.SEARCH_TEXT_CHARS:
            break
    return "".join(reversed(pieces))


def forget_old() -> int:
    """Delete the texts whose rows the log has discarded; return how many."""
    return Said.objects.filter(seq__lte=F("session__feed__dropped_seq")).delete()[0]


# -- the search ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    at: datetime
    session_id: str
    title: str
    where: str
    text: str
    message_id: str = ""


@lru_cache(KEPT_FOLDED)
def _fold_name(text: str) -> str:
    """Fold a title or a directory, which every search compares."""
    return _fold(text)


def _fold(text: str) -> str:
    """Return a text as it is compared: in whatever case, width or composition."""
    return unicodedata.normalize("NFKC", clean(text)).casefold()


def _words(query: str) -> list[str]:
    return _fold(query).split()


def _with_all(words: Sequence[str]) -> Q:
    return Q(*(Q(folded__contains=word) for word in words))


def find(query: str, limit: int, before: datetime | None) -> tuple[list[SearchHit], bool]:
    """Return the newest hits older than ``before``, and whether there are more.

    The next page is asked for by the last one's time, in milliseconds: a page ends with a
    millisecond, and so may have more than ``limit`` hits, as a batch of events has one time.
    """
    words = _words(query)
    if not words:
        return [], False
    texts = Said.objects.filter(_with_all(words)).select_related("session")
    texts = texts.only("at", "text", "where", "message_id", "session__session_id", "session__title")
    if before is not None:
        texts = texts.filter(at__lt=before)
    found = [
        _Found(
            one.at, one.session.session_id, one.session.title, one.where, one.text, one.message_id
        )
        for one in _newest(texts.order_by("-at"), limit)
    ]
    found += [one for _, one in _named(words) if before is None or one.at < before]
    found.sort(key=lambda one: one.at, reverse=True)
    end = limit
    while end < len(found) and now_text(found[end].at) == now_text(found[end - 1].at):
        end += 1
    return [_hit(one, words) for one in found[:end]], len(found) > end


def _newest(texts: QuerySet[Said], limit: int) -> list[Said]:
    """Return the newest to the end of a millisecond, and one more if there is one."""
    found = list(texts[: limit + 1])
    if len(found) <= limit or now_text(found[limit].at) != now_text(found[limit - 1].at):
        return found
    begin = found[limit].at.replace(microsecond=found[limit].at.microsecond // 1000 * 1000)
    end = begin + timedelta(milliseconds=1)
    same, rest = texts.filter(at__gte=begin, at__lt=end), texts.filter(at__lt=begin)[:1]
    return [one for one in found if one.at >= end] + [*same, *rest]


def sessions_with(query: str) -> QuerySet[Session]:
    """Return the sessions in which all words of a query stand together somewhere."""
    words = _words(query)
    named = {pk for pk, _ in _named(words)} if words else set()
    said = Said.objects.filter(_with_all(words)).values("session") if words else ()
    return Session.objects.filter(Q(pk__in=named) | Q(pk__in=said))


def _named(words: Sequence[str]) -> Iterator[tuple[int, _Found]]:
    """Yield each session whose title, or else directory, has all words, by its key."""
    fields = ("pk", "session_id", "title", "working_directory", "last_activity_at")
    for pk, session_id, title, directory, at in Session.objects.values_list(*fields):
        for where, text in (("title", title), ("directory", directory)):
            folded = _fold_name(text)
            if all(word in folded for word in words):
                yield pk, _Found(at, session_id, title, where, text)
                break


def _hit(found: _Found, words: Sequence[str]) -> SearchHit:
    return SearchHit(
        session_id=found.session_id,
        title=found.title,
        message_id=found.message_id or None,
        at=now_text(found.at),
        where=found.where,  # type: ignore[arg-type]  # the model checks it
        excerpt=_excerpt(found.text, words),
    )


def _excerpt(text: str, words: Sequence[str]) -> str:
    """Return a line of the text around its first word, as near as folding tells."""
    places = [at for at in map(_fold(text).find, words) if at >= 0]
    begin = max(0, min(places, default=0) - EXCERPT_BEFORE)
    part = " ".join(printable(text[begin : begin + EXCERPT_CHARS]).split())
    more = begin + EXCERPT_CHARS < len(text)
    return f"{'…' if begin else ''}{part}{'…' if more else ''}"
