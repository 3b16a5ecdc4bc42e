from django.db import migrations

from bridge_project.kernel.config import conf


def fail(apps, schema_editor):
    """Fail for as long as the data directory has a file of this name."""
    if (conf.bridge_data_dir / "fail").exists():
        raise ValueError("this migration fails")


class Migration(migrations.Migration):
    dependencies = [("next_version", "0001_works")]
    operations = [migrations.RunPython(fail)]
