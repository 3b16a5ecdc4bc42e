"""Nothing looks for a session's hook events often enough to pay for an index with each of them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("hooks_app", "0001_initial")]

    operations = [migrations.AlterField("hookevent", "session_id", models.CharField(max_length=256))]
