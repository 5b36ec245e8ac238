"""Contract suites live in the package; their asserts are rewritten as if they stood here."""

import pytest

pytest.register_assert_rewrite("windsock.testing.logs")
