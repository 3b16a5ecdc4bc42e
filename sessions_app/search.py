"""Find what was said, and where, in all sessions (D73).

The index follows the log beside whatever appends to it, and so also covers a log of before.
"""

import asyncio
import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import structlog
from django.db import transaction
from django.db.models import F, Q, QuerySet

from bridge_project.kernel import failure_alerts, limits
from bridge_project.kernel.database import STORAGE_ERRORS
from bridge_project.kernel.text import clean, printable
from bridge_project.kernel.threads import search as thread
from bridge_project.protocol.resources import SearchHit
from bridge_project.protocol.types import now_text
from sessions_app.models import LogRow, Said, SaidUpTo, Session

log = structlog.get_logger("bridge.search")

ROWS_AT_ONCE = 500  # in one transaction: nobody waits long for it
LOOK_SECONDS = 1.0
EXCERPT_CHARS = 160
EXCERPT_BEFORE = 40  # of these, before the first word
_TYPES = ("agent_event", "stream_end")  # of rows that have or end a text


# -- the index -------------------------------------------------------------------------------------


async def follow() -> None:
    """Index what is appended to the log, until it is cancelled."""
    while True:
        try:
            behind = await thread.run(index_some)
        except STORAGE_ERRORS:
            behind = False  # polling reports it
        except Exception:
            log.exception("not_indexed")
            failure_alerts.report("INTERNAL_ERROR", "search")
            behind = False
        await asyncio.sleep(0 if behind else LOOK_SECONDS)


def index_some() -> bool:
    """Index the next rows of the log; return whether there may be more."""
    at = SaidUpTo.objects.filter(pk=1).values_list("seq", flat=True).first()
    rows = LogRow.objects.filter(seq__gt=at or 0).order_by("seq")[:ROWS_AT_ONCE]
    found = list(rows.values_list("seq", "feed_id", "type", "message_id", "created_at"))
    if not found:
        return False
    wanted = {seq for seq, _, type_, *_ in found if type_ in _TYPES}
    frames = dict(LogRow.objects.filter(seq__in=wanted).values_list("seq", "frame"))
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
    hits: list[SearchHit] = []
    for one in texts.order_by("-at").iterator(limit + 1):
        hits.append(_hit(one.session, one.at, one.where, one.text, words, one.message_id))
        if len(hits) > _page(hits, limit):
            break
    hits += [
        _hit(one, one.last_activity_at, where, text, words)
        for one, where, text in _named(words)
        if before is None or one.last_activity_at < before
    ]
    hits.sort(key=lambda hit: hit.at, reverse=True)
    end = _page(hits, limit)
    return hits[:end], len(hits) > end


def _page(hits: Sequence[SearchHit], limit: int) -> int:
    """Return how many of the hits, newest first, are the first page."""
    end = limit
    while 0 < end < len(hits) and hits[end].at == hits[end - 1].at:
        end += 1
    return end


def sessions_with(query: str) -> QuerySet[Session]:
    """Return the sessions in which all words of a query stand together somewhere."""
    words = _words(query)
    named = {one.pk for one, _, _ in _named(words)} if words else set()
    said = Said.objects.filter(_with_all(words)).values("session") if words else ()
    return Session.objects.filter(Q(pk__in=named) | Q(pk__in=said))


def _named(words: Sequence[str]) -> Iterator[tuple[Session, str, str]]:
    """Yield sessions whose title, or else directory, has all words; where; that text."""
    fields = ("session_id", "title", "working_directory", "last_activity_at")
    for one in Session.objects.only(*fields).iterator():
        for where, text in (("title", one.title), ("directory", one.working_directory)):
            if _has(text, words):
                yield one, where, text
                break


def _has(text: str, words: Iterable[str]) -> bool:
    folded = _fold(text)
    return all(word in folded for word in words)


def _hit(
    session: Session, at: datetime, where: str, text: str, words: Sequence[str], id_: str = ""
) -> SearchHit:
    return SearchHit(
        session_id=session.session_id,
        title=session.title,
        message_id=id_ or None,
        at=now_text(at),
        where=where,  # type: ignore[arg-type]  # the model checks it
        excerpt=_excerpt(text, words),
    )


def _excerpt(text: str, words: Sequence[str]) -> str:
    """Return a line of the text around its first word, as near as folding tells."""
    places = [at for at in map(_fold(text).find, words) if at >= 0]
    begin = max(0, min(places, default=0) - EXCERPT_BEFORE)
    part = " ".join(printable(text[begin : begin + EXCERPT_CHARS]).split())
    more = begin + EXCERPT_CHARS < len(text)
    return f"{'…' if begin else ''}{part}{'…' if more else ''}"
