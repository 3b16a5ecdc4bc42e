"""Write one of the bridge's commands in a template: `{% own_command "qr" %}`."""

from django.template import Library

from bridge_project.kernel.place import short

register = Library()
register.simple_tag(short, name="own_command")
