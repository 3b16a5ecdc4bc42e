"""Sessions know whether their agent works, and at what (D54)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0002_held_rows")]

    operations = [
        migrations.AddField(
            "session",
            "turn",
            models.CharField(
                choices=[("idle", "Idle"), ("working", "Working"), ("waiting", "Waiting")],
                default="idle",
                max_length=7,
            ),
        ),
        migrations.AddField("session", "doing", models.TextField(default="")),
    ]
