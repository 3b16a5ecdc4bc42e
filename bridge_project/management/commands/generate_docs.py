"""Write what is generated: pages of docs/, and the types of the web client."""

from typing import Any

from django.core.management.base import BaseCommand

from bridge_project.docs import reference, typescript
from bridge_project.kernel.place import PROJECT_DIR

PAGES = {
    "docs/settings.md": reference.settings_markdown,
    "docs/errors.md": reference.errors_markdown,
    "docs/messages.md": reference.messages_markdown,
    "devices_app/client/protocol/protocol.d.ts": typescript.declarations,
}


class Command(BaseCommand):
    help = "Write " + ", ".join(PAGES) + " from the tables and models in the code."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        for name, write in PAGES.items():
            (PROJECT_DIR / name).write_text(write(), encoding="utf-8")
            self.stdout.write(name)
