from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0018_found")]

    operations = [
        migrations.AddField("session", "host", models.TextField(db_default="", default="")),
        migrations.AddField(
            "session", "host_seq", models.BigIntegerField(db_default=0, default=0)
        ),
        migrations.AddField("session", "host_state", models.TextField(db_default="", default="")),
        migrations.AddField(
            "command", "host", models.CharField(db_default="", default="", max_length=32)
        ),
    ]
