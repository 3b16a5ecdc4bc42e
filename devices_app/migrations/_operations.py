"""Operations for databases of versions whose migrations were squashed."""

from django.db import migrations


class AddMissingField(migrations.AddField):
    """Add a column, unless the database has it: its version was newer than the squashed one."""

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        model = to_state.apps.get_model(app_label, self.model_name)
        column = model._meta.get_field(self.name).column
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            table = connection.introspection.get_table_description(cursor, model._meta.db_table)
        if column not in {known.name for known in table}:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
