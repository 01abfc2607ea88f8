"""The whole command line: versions, help, and what a mistyped command meets."""

from __future__ import annotations

import subprocess
import sys

import typer

from penstock.cli.app import build
from penstock.cli.output import MEANINGS

_HELP = """
import penstock.cli
try:
    penstock.cli.main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_mistyped_command_error_suggests_the_correct_command(penstock):
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


def test_a_command_is_built_alone_as_it_is_among_all():
    whole = typer.main.get_command(build())
    for name, command in whole.commands.items():
        alone = typer.main.get_command(build(name))
        assert [*alone.commands] == [name]
        assert [each.opts for each in alone.commands[name].params] == [each.opts for each in command.params]


def test_cp_imports_only_its_own_command_and_no_numpy():
    program = f"import sys; sys.argv = ['penstock', 'cp', '--help']\n{_HELP}"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = found.stderr.split()
    assert "penstock.jobs.copying.transfer" in loaded
    assert "numpy" not in loaded
    mine = [each.removeprefix("penstock.cli.commands.") for each in loaded if each.startswith("penstock.cli.commands.")]
    assert mine == ["objects", "objects.cp"]
