"""Sessions know that their grace timer closed them: they can be resumed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0004_decided_by_device")]

    operations = [
        migrations.AddField(
            "session",
            "expired",
            models.BooleanField(
                default=False, help_text="Closed by its grace timer: it can be resumed (D60)."
            ),
        )
    ]
