from django.db import migrations


class Migration(migrations.Migration):
    # "doing" was one call; now it is a list.
    dependencies = [("sessions_app", "0007_fewer_indexes")]
    operations = [
        migrations.RunSQL(
            "UPDATE sessions_app_session SET doing = '' WHERE doing <> ''",
            migrations.RunSQL.noop,
        )
    ]
