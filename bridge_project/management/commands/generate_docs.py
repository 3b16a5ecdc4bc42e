"""Write the generated pages of docs/ from the tables in the code."""

from typing import Any

from django.core.management.base import BaseCommand

from bridge_project.docs import reference
from bridge_project.kernel.config import PROJECT_DIR

PAGES = {
    "settings.md": reference.settings_markdown,
    "errors.md": reference.errors_markdown,
    "messages.md": reference.messages_markdown,
}


class Command(BaseCommand):
    help = "Write " + ", ".join(f"docs/{name}" for name in PAGES) + " from the tables in the code."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        for name, markdown in PAGES.items():
            path = PROJECT_DIR / "docs" / name
            path.write_text(markdown(), encoding="utf-8")
            self.stdout.write(f"docs/{name}")
