"""What is deleted and written by mistake is tried through the commands, which run as in ``tests/cli``."""

from tests.cli.conftest import _ordered, penstock  # noqa: F401  fixtures
