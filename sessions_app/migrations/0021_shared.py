from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0020_edited")]

    operations = [
        migrations.AddField(
            "session",
            "shared",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="It is the desk's, and only joined (D80).",
            ),
        ),
    ]
