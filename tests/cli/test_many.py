"""Commands over many objects say what they do and how, with an example."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("command", ["sync", "presign"])
def test_each_shows_an_example(command, penstock):
    done = penstock(command, "--help", COLUMNS="200", TERM="dumb")
    assert done.returncode == 0
    assert f"penstock {command} " in done.stdout.partition("Example")[2]
    assert "--json" in done.stdout
