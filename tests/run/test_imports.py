"""Which message has a handler."""

from bridge_project.composition.handlers import HANDLERS
from bridge_project.protocol.catalogue import CATALOGUE


def test_each_client_message_has_its_handler() -> None:
    assert set(HANDLERS) == {model for model in CATALOGUE.values() if model.from_client}
