"""What imports what, beyond the contracts in pyproject.toml; and which message has a handler."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

from bridge_project.composition.handlers import HANDLERS
from bridge_project.protocol.catalogue import CATALOGUE

PACKAGES = ("bridge_project", "devices_app", "sessions_app", "files_app", "hooks_app")


def test_no_module_imports_itself_in_a_circle() -> None:
    """Also not by an import inside a function, or one for types only."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert sum(map(len, imported.values())) > 1000
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as circle:
        pytest.fail(" <- ".join(circle.args[1]))


def test_each_client_message_has_its_handler() -> None:
    assert set(HANDLERS) == {model for model in CATALOGUE.values() if model.from_client}
