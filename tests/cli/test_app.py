"""The whole command line: versions, help, and what a mistyped command meets."""

from __future__ import annotations

import json
import subprocess
import sys

import typer

from penstock.cli.app import build
from penstock.cli.exits import MEANINGS

_HELP = """
import penstock.cli
try:
    penstock.cli.main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


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


def test_reports_of_ranks_are_joined(penstock, tmp_path):
    for rank, waited_s in enumerate((1.0, 7.0)):
        report = {"rank": rank, "world": 2, "waiting_s": waited_s, "computing_s": 3.0, "cause": "decode"}
        more = {"recommendation": "Do it.", "batches": 4, "samples": 8}
        (tmp_path / f"{rank}.json").write_text(json.dumps(report | more))
    done = penstock("report", f"{tmp_path}/*.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 ranks. Rank 1 waited longest for its batches, 7.0 s (70% of its time)")
    assert json.loads(penstock("report", "--json", f"{tmp_path}/1.json").stdout)["missing"] == [0]
    assert penstock("report", "--html", f"{tmp_path}/0.json").stdout.startswith("<!DOCTYPE html>")
    assert penstock("report", f"{tmp_path}/none.json").returncode == 1


def test_a_command_is_built_alone_as_it_is_among_all():
    whole = typer.main.get_command(build())
    for name, command in whole.commands.items():
        alone = typer.main.get_command(build(name))
        assert [*alone.commands] == [name]
        assert [each.opts for each in alone.commands[name].params] == [each.opts for each in command.params]


def test_a_copy_imports_what_copies_and_no_other_command():
    program = f"import sys; sys.argv = ['penstock', 'cp', '--help']\n{_HELP}"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = found.stderr.split()
    assert "penstock.jobs.transfer" in loaded
    assert not {"numpy", "penstock.cli.many", "penstock.cli.zarr", "penstock.cli.cache.app"}.intersection(loaded)
