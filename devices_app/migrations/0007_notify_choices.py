import django.db.models.deletion
from django.db import migrations, models

import devices_app.models


def move_detail(apps, schema_editor):
    choices = apps.get_model('devices_app', 'NotifyChoices')
    for subscription in apps.get_model('devices_app', 'PushSubscription').objects.all():
        choices.objects.create(device_id=subscription.device_id, detail=subscription.detail)


class Migration(migrations.Migration):

    dependencies = [
        ('devices_app', '0006_rules'),
    ]

    operations = [
        migrations.CreateModel(
            name='NotifyChoices',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kinds', models.JSONField(default=devices_app.models.default_kinds)),
                ('muted', models.JSONField(default=list, help_text='Ids of sessions.')),
                ('reminder_minutes', models.IntegerField(default=0, help_text='0: no reminders.')),
                ('quiet_from', models.CharField(default='', max_length=5)),
                ('quiet_to', models.CharField(default='', max_length=5)),
                ('quiet_zone', models.CharField(default='', max_length=64)),
                ('detail', models.CharField(choices=[('quiet', 'Quiet'), ('full', 'Full')], default='quiet', max_length=5)),
                ('device', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='notify', to='devices_app.device')),
            ],
        ),
        migrations.CreateModel(
            name='NotifyAddress',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.BigIntegerField(help_text='Every row of the log up to here was pushed, or is not to be.')),
                ('next_at', models.DateTimeField(null=True)),
                ('tries', models.IntegerField(default=0, help_text='Failed tries since the last success.')),
                ('problem', models.CharField(default='', help_text='Why the last one failed.', max_length=200)),
                ('last_at', models.DateTimeField(help_text="The place's word on the last push.", null=True)),
                ('digest', models.CharField(help_text='SHA-256, hexadecimal.', max_length=64, unique=True)),
                ('name', models.CharField(help_text='Its schema, and its host if it shows one.', max_length=200)),
            ],
            options={
                'verbose_name_plural': 'notify addresses',
                'ordering': ['name'],
            },
        ),
        migrations.RunPython(move_detail, migrations.RunPython.noop),
        migrations.RemoveField(
            model_name='pushsubscription',
            name='detail',
        ),
        migrations.AddField(
            model_name='pushsubscription',
            name='held',
            field=models.JSONField(default=list, help_text='Rows before the position that wait for the end of quiet hours.'),
        ),
        migrations.AddField(
            model_name='pushsubscription',
            name='reminded',
            field=models.JSONField(default=dict, help_text='Call that waits → moments for a reminder that have passed.'),
        ),
        migrations.AlterField(
            model_name='pushsubscription',
            name='last_at',
            field=models.DateTimeField(help_text="The place's word on the last push.", null=True),
        ),
    ]
