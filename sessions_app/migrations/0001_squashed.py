import uuid

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('sessions_app', '0001_initial'), ('sessions_app', '0002_approvals'), ('sessions_app', '0003_agents')]

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
                ('pending_approvals', models.IntegerField(default=0)),
                ('open_message', models.CharField(default='', max_length=36)),
                ('owner', models.UUIDField(null=True)),
                ('reason', models.TextField(default='', help_text='Why it is paused or in error.')),
                ('resume_id', models.TextField(default='')),
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
        migrations.CreateModel(
            name='ClientRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64)),
                ('process_id', models.UUIDField(help_text='The process that does it.')),
                ('answer', models.TextField(null=True)),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('device', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='devices_app.device')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('device', 'digest'), name='client_request_once')],
            },
        ),
        migrations.CreateModel(
            name='ToolCall',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tool_call_id', models.CharField(max_length=256)),
                ('tool', models.CharField(max_length=128)),
                ('description', models.TextField()),
                ('params', models.TextField()),
                ('same', models.CharField(help_text='The same for equal calls.', max_length=64)),
                ('reasoning', models.TextField(null=True)),
                ('risk_level', models.CharField(max_length=8)),
                ('source', models.CharField(choices=[('hooks', 'Hooks'), ('agent_sdk', 'Agent Sdk')], max_length=9)),
                ('decision', models.CharField(choices=[('pending', 'Pending'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('modified', 'Modified')], max_length=8, null=True)),
                ('modifications', models.TextField(null=True)),
                ('result', models.TextField(null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('decided_at', models.DateTimeField(null=True)),
                ('decided_by', models.CharField(choices=[('device', 'Device'), ('agent', 'Agent'), ('bridge', 'Bridge')], default='', max_length=8)),
                ('reason', models.CharField(default='', max_length=32)),
                ('forwarded', models.BooleanField(default=False)),
                ('finished_at', models.DateTimeField(null=True)),
                ('frame', models.TextField(default='')),
                ('device', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to='devices_app.device')),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='sessions_app.session')),
            ],
            options={
                'verbose_name': 'approval',
                'ordering': ['-pk'],
                'indexes': [models.Index(condition=models.Q(('finished_at', None)), fields=['session', 'same'], name='open_tool_calls'), models.Index(condition=models.Q(('decision', 'pending')), fields=['decision'], name='pending_approvals'), models.Index(fields=['created_at'], name='tool_calls_by_age')],
                'constraints': [models.UniqueConstraint(fields=('session', 'tool_call_id'), name='tool_call_once_a_session')],
            },
        ),
        migrations.CreateModel(
            name='Command',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('prompt', 'Prompt'), ('decide', 'Decide'), ('interrupt', 'Interrupt')], max_length=9)),
                ('payload', models.TextField(help_text="JSON, as text for the same reason as a tool call's.")),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('taken_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(condition=models.Q(('owner__isnull', False)), fields=['owner'], name='sessions_by_owner'),
        ),
        migrations.AddField(
            model_name='command',
            name='session',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='sessions_app.session'),
        ),
        migrations.AddIndex(
            model_name='command',
            index=models.Index(condition=models.Q(('taken_at', None)), fields=['session', 'id'], name='waiting_commands'),
        ),
        migrations.AddIndex(
            model_name='command',
            index=models.Index(fields=['session'], name='commands_by_session'),
        ),
        migrations.AddIndex(
            model_name='command',
            index=models.Index(fields=['created_at'], name='commands_by_age'),
        ),
        migrations.AlterField(
            model_name='toolcall',
            name='reason',
            field=models.CharField(default='', max_length=32),
        ),
    ]
