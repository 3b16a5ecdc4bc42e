"""Sessions know that their agent refused to resume them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0005_expired")]

    operations = [
        migrations.AddField(
            "session",
            "forgotten",
            models.BooleanField(
                default=False, help_text="Its agent does not know it any more, as of the last resume."
            ),
        )
    ]
