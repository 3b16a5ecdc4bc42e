"""Feeds count what they hold, not what was ever appended (D30); sessions know whether they ask."""

from django.db import migrations, models

from devices_app.migrations._operations import AddMissingField

COUNT_FEEDS = """
UPDATE sessions_app_feed SET
    rows = (SELECT COUNT(*) FROM sessions_app_logrow r WHERE r.feed_id = sessions_app_feed.id),
    bytes = (SELECT COALESCE(SUM(r.size), 0) FROM sessions_app_logrow r WHERE r.feed_id = sessions_app_feed.id)
"""
COUNT_LOG = "UPDATE sessions_app_loghead SET bytes = (SELECT COALESCE(SUM(bytes), 0) FROM sessions_app_feed)"


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0003_agents")]
    # What a database may have of these is no reason to do more or less of this one.
    supersedes = [("sessions_app", name) for name in ("0004_no_stop_command", "0004_asks", "0005_asks")]

    operations = [
        AddMissingField("session", "asks", models.BooleanField(null=True)),
        migrations.RunSQL("DELETE FROM sessions_app_command WHERE kind = 'stop'", migrations.RunSQL.noop),  # nothing ever took one
        migrations.RunSQL(COUNT_FEEDS, migrations.RunSQL.noop),
        migrations.RunSQL(COUNT_LOG, migrations.RunSQL.noop),
        migrations.RemoveField("logrow", "ordinal"),
        migrations.RemoveField("logrow", "feed_bytes"),
        migrations.RemoveField("logrow", "total_bytes"),
    ]
