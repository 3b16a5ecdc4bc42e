"""Delete rows that are too old (D30); the outbox limits their count and bytes."""

from datetime import timedelta

from django.db.models import OuterRef, Subquery

from bridge_project.kernel.ages import ages
from bridge_project.kernel.config import conf
from sessions_app.log import ingest_sql
from sessions_app.log.outbox import outbox
from sessions_app.models import Feed, LogRow

PRUNE_ROWS = 500  # in one transaction: nobody waits long for the head of the log


def prune() -> int:
    """Discard the rows that are too old; return how many.

    A feed always keeps its newest rows without a gap among them: a row that a wrong clock made look
    old stays until the rows before it go (D29).
    """
    kept_since = ages.now() - timedelta(seconds=conf.bridge_queue_ttl_seconds)
    rows = LogRow.objects.order_by("seq")
    oldest = rows.filter(feed=OuterRef("pk")).values("created_at")[:1]
    pruned = 0
    for feed in list(Feed.objects.alias(since=Subquery(oldest)).filter(since__lte=kept_since)):
        kept = rows.filter(feed=feed, created_at__gt=kept_since).values_list("seq", flat=True)
        pruned += _discard(feed.pk, kept.first() or feed.last_seq + 1)
    return pruned


def empty(feed: Feed) -> None:
    """Discard all rows that a feed had when it was read."""
    _discard(feed.pk, feed.last_seq + 1)


def _discard(feed_id: int, before: int) -> int:
    """Discard a feed's rows before a given one, in steps; return how many."""
    discarded = 0
    while True:
        with outbox() as box:
            oldest = ingest_sql.oldest(box.cursor, PRUNE_ROWS, feed_id)
            rows = [row for row in oldest if row[0] < before]
            ingest_sql.discard(box.cursor, rows)
        discarded += len(rows)
        if len(rows) < PRUNE_ROWS:
            return discarded
