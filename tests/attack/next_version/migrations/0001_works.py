from django.db import migrations


class Migration(migrations.Migration):
    operations = [migrations.RunSQL("CREATE TABLE next_version (id INTEGER PRIMARY KEY)")]
