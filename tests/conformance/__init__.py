"""Black-box tests of the specification: real servers over TLS, and clients of their own."""

import pytest

HELPERS = ("https", "phone", "bridge", "approvals", "repositories")
pytest.register_assert_rewrite(*(f"tests.conformance.{name}" for name in HELPERS))
