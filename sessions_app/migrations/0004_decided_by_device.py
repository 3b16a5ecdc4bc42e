"""Observed sessions know that a device has decided, so that it can be said what did not run."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0003_turn")]

    operations = [
        migrations.AddField("session", "decided_by_device", models.BooleanField(default=False))
    ]
