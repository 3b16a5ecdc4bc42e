import uuid

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('sessions_app', '0001_initial')]

    initial = True

    dependencies = [
        ('devices_app', '0001_squashed'),
    ]

    operations = [
        migrations.CreateModel(
            name='Feed',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('all', 'All'), ('observed', 'Observed'), ('bridge', 'Bridge')], max_length=8)),
                ('last_seq', models.BigIntegerField(default=0, help_text='Its newest row.')),
                ('dropped_seq', models.BigIntegerField(default=0, help_text='The newest row it has discarded.')),
                ('rows', models.BigIntegerField(default=0, help_text='Rows that it holds.')),
                ('bytes', models.BigIntegerField(default=0, help_text='Bytes of their frames.')),
            ],
        ),
        migrations.CreateModel(
            name='LogHead',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seq', models.BigIntegerField(default=0, help_text='The newest row.')),
                ('bytes', models.BigIntegerField(default=0, help_text='Bytes that all feeds hold.')),
            ],
        ),
        migrations.CreateModel(
            name='Process',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ('instance', models.CharField(max_length=64)),
                ('started_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('lease_until', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Connection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('opened_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('address', models.CharField(max_length=45)),
                ('replaced', models.BooleanField(default=False)),
                ('device', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='devices_app.device')),
                ('token', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, to='devices_app.token')),
                ('process', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='sessions_app.process')),
            ],
        ),
        migrations.CreateModel(
            name='Session',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('session_id', models.CharField(max_length=256, unique=True)),
                ('kind', models.CharField(choices=[('observed', 'Observed'), ('bridge', 'Bridge')], max_length=8)),
                ('agent_type', models.CharField(max_length=128)),
                ('title', models.CharField(default='', max_length=200)),
                ('titled', models.BooleanField(default=False, help_text='By a prompt: the title stays (D6).')),
                ('working_directory', models.TextField(default='')),
                ('status', models.CharField(choices=[('created', 'Created'), ('active', 'Active'), ('paused', 'Paused'), ('closed', 'Closed'), ('error', 'Error')], default='active', max_length=8)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('last_activity_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('closed_at', models.DateTimeField(null=True)),
                ('hook_count', models.BigIntegerField(default=0)),
                ('recent_events', models.JSONField(default=list)),
                ('feed', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, to='sessions_app.feed')),
            ],
            options={
                'ordering': ['-last_activity_at'],
            },
        ),
        migrations.CreateModel(
            name='Cursor',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.BigIntegerField(help_text='Every row up to here has been received.')),
                ('ahead', models.JSONField(default=list)),
                ('device', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='devices_app.device')),
                ('feed', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='sessions_app.feed')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('device', 'feed'), name='one_cursor_a_feed')],
            },
        ),
        migrations.CreateModel(
            name='LogRow',
            fields=[
                ('seq', models.BigIntegerField(primary_key=True, serialize=False)),
                ('type', models.CharField(max_length=32)),
                ('message_id', models.CharField(max_length=36, unique=True)),
                ('frame', models.TextField()),
                ('size', models.IntegerField()),
                ('ordinal', models.BigIntegerField()),
                ('feed_bytes', models.BigIntegerField()),
                ('total_bytes', models.BigIntegerField()),
                ('created_at', models.DateTimeField(db_index=True)),
                ('feed', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.feed')),
            ],
            options={
                'verbose_name': 'pending message',
                'verbose_name_plural': 'pending queue',
                'ordering': ['seq'],
                'indexes': [models.Index(fields=['feed', 'seq'], name='log_feed_seq')],
            },
        ),
        migrations.CreateModel(
            name='Join',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('connection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='sessions_app.connection')),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='sessions_app.session')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('connection', 'session'), name='joined_once')],
            },
        ),
    ]
