"""Remove what django-axes left: its tables, and what Django remembers of them."""

from django.db import migrations

TABLES = (  # in this order: PostgreSQL does not drop a table that another one refers to
    "axes_accessattemptexpiration",
    "axes_accessattempt",
    "axes_accessfailurelog",
    "axes_accesslog",
)


def forget(apps, schema_editor):
    apps.get_model("contenttypes", "ContentType").objects.filter(app_label="axes").delete()


class Migration(migrations.Migration):

    dependencies = [
        ("devices_app", "0002_audit"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("auth", "0001_initial"),  # its permissions go with the content types
        ("admin", "0001_initial"),  # its log entries lose them
    ]

    operations = [
        *(migrations.RunSQL(f"DROP TABLE IF EXISTS {table}", migrations.RunSQL.noop) for table in TABLES),
        migrations.RunSQL("DELETE FROM django_migrations WHERE app = 'axes'", migrations.RunSQL.noop),
        migrations.RunPython(forget, migrations.RunPython.noop),
    ]
