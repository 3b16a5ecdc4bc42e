import time

from django.db import migrations

from bridge_project.kernel.config import conf


def fail(apps, schema_editor):
    """Wait while the data directory has a file `hold`, fail while it has a file `fail`."""
    while (conf.bridge_data_dir / "hold").exists():
        (conf.bridge_data_dir / "held").touch()
        time.sleep(0.02)
    if (conf.bridge_data_dir / "fail").exists():
        raise ValueError("this migration fails")


class Migration(migrations.Migration):
    dependencies = [("next_version", "0001_works")]
    operations = [migrations.RunPython(fail)]
