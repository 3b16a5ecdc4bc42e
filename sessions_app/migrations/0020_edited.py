from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0019_hosts")]

    operations = [
        migrations.AddField(
            "session", "edited_at", models.DateTimeField(db_index=True, null=True)
        ),
    ]
