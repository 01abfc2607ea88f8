"""Test tools for new drivers: contract tests, and servers that follow a script."""
