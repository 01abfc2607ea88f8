"""The whole command line: versions, help, and what a mistyped command meets."""

from __future__ import annotations

from penstock.cli.exits import MEANINGS


def test_a_mistyped_command_is_told_the_right_one(penstock):
    done = penstock("dmo")
    assert done.returncode == 2
    assert "Did you mean 'demo'?" in done.stderr


def test_help_explains_every_code(penstock):
    done = penstock("--help", COLUMNS="1000")
    assert done.returncode == 0
    for code, meaning in MEANINGS.items():
        assert f"{code} {meaning}" in done.stdout


def test_the_version_is_printed(penstock):
    assert penstock("--version").stdout.startswith("penstock 0.")
