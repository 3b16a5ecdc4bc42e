"""Tokens that replace another (D62), and what django-axes left in databases of older versions."""

import django.db.models.deletion
from django.db import migrations, models

from devices_app.migrations._operations import AddMissingField

AXES = (  # in this order: PostgreSQL does not drop a table that another one refers to
    "axes_accessattemptexpiration",
    "axes_accessattempt",
    "axes_accessfailurelog",
    "axes_accesslog",
)


def forget_axes(apps, schema_editor):
    apps.get_model("contenttypes", "ContentType").objects.filter(app_label="axes").delete()


class Migration(migrations.Migration):
    dependencies = [
        ("devices_app", "0002_audit"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("auth", "0001_initial"),  # its permissions go with the content types
        ("admin", "0001_initial"),  # its log entries lose them
    ]
    # What a database may have of these is no reason to do more or less of this one.
    supersedes = [("devices_app", name) for name in ("0003_remove_axes", "0003_replaced_tokens", "0004_replaced_tokens")]

    operations = [
        *(migrations.RunSQL(f"DROP TABLE IF EXISTS {table}", migrations.RunSQL.noop) for table in AXES),
        migrations.RunSQL("DELETE FROM django_migrations WHERE app = 'axes'", migrations.RunSQL.noop),
        migrations.RunPython(forget_axes, migrations.RunPython.noop),
        AddMissingField(
            model_name="token",
            name="replaced_at",
            field=models.DateTimeField(editable=False, help_text="First use of the token that replaces it: refused since then, sockets live on.", null=True),
        ),
        AddMissingField(
            model_name="token",
            name="replaces",
            field=models.OneToOneField(editable=False, help_text="The pairing code's token that this one takes the place of, at any time (D62).", null=True, on_delete=django.db.models.deletion.CASCADE, related_name="replacement", to="devices_app.token"),
        ),
    ]
