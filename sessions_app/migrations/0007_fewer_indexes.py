"""An index is a page to write with each event: the log and tool calls have no more than they need."""

import django.db.models.deletion
from django.db import migrations, models

import sessions_app.models


class Migration(migrations.Migration):
    dependencies = [
        ("devices_app", "0003_push_subscriptions"),
        ("sessions_app", "0006_forgotten"),
    ]

    operations = [
        migrations.AlterField("logrow", "created_at", models.DateTimeField()),
        migrations.AlterField(
            "logrow",
            "seq",
            sessions_app.models.RowNumber(primary_key=True, serialize=False),
        ),
        migrations.AlterField(
            "toolcall",
            "device",
            models.ForeignKey(
                "devices_app.device",
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
            ),
        ),
        migrations.AlterField(
            "toolcall",
            "session",
            models.ForeignKey(
                "sessions_app.session",
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
            ),
        ),
    ]
