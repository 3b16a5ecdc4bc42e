"""The bridge's settings, with those limits of `tests.short` that a test names."""

import os

from bridge_project.kernel import limits
from bridge_project.settings import *  # noqa: F403
from tests import portable
from tests.short import SHORT

for _name in os.environ["TESTS_SHORT"].split():
    assert hasattr(limits, _name), _name
    setattr(limits, _name, SHORT[_name])
if portable.ASKED:
    portable.take()
