import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('devices_app', '0001_initial')]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Device',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('paired_at', models.DateTimeField(editable=False, help_text='First use of a token of this device.', null=True)),
                ('revoked_at', models.DateTimeField(editable=False, null=True)),
                ('start_seq', models.BigIntegerField(default=0, editable=False, help_text='The newest row of the log when the device was paired: it starts at the present (D28).')),
                ('last_seen_at', models.DateTimeField(editable=False, null=True)),
                ('last_address', models.CharField(default='', editable=False, max_length=45)),
                ('platform', models.CharField(default='', editable=False, max_length=16)),
                ('client_version', models.CharField(default='', editable=False, max_length=64)),
                ('ack_style', models.CharField(choices=[('nothing', 'Nothing'), ('notifications', 'Notifications'), ('everything', 'Everything')], default='nothing', editable=False, max_length=16)),
                ('warning_acknowledged_until', models.DateTimeField(editable=False, help_text='D24: DIRECT_PUBLIC_CONNECTION was acknowledged and need not be again before this.', null=True)),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='Token',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('minted_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('use_by', models.DateTimeField(editable=False, help_text='Void when it was not used before this.')),
                ('used_at', models.DateTimeField(editable=False, null=True)),
                ('authenticated_at', models.DateTimeField(editable=False, help_text='The first `auth` over a WebSocket.', null=True)),
                ('client_device_id', models.CharField(editable=False, help_text='The `device_id` of the first `auth` that had one; the token is bound to it.', max_length=256, null=True)),
                ('expires_at', models.DateTimeField(editable=False, null=True)),
                ('revoked_at', models.DateTimeField(editable=False, null=True)),
                ('device', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to='devices_app.device')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
    ]
