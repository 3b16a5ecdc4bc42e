"""Black-box tests of the specification: real servers over TLS, clients that know nothing of the
implementation.
"""

import pytest

pytest.register_assert_rewrite(
    "tests.conformance.https",
    "tests.conformance.phone",
    "tests.conformance.bridge",
    "tests.conformance.approvals",
    "tests.conformance.repositories",
)
