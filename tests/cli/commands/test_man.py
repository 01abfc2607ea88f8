"""``penstock man``: a page for each command, of the texts of its help."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from typer.main import get_command

from penstock.cli.app import build
from penstock.cli.commands.man import pages


@pytest.fixture(scope="module")
def found():
    return dict(pages(get_command(build()), "penstock"))


def test_page_has_the_texts_of_the_help(found):
    page = found["penstock-cp"]
    assert page.startswith('.TH PENSTOCK-CP 1 "" "Penstock 0.')
    assert "penstock-cp \\- Copy objects: from here to a store, back, or between stores.\n" in page
    assert "and [abc] matches one of these characters" in page
    assert "\n.B \\-r, \\-\\-recursive\nTake whole trees.\n" in page
    assert "\n.B SOURCE\nObjects, trees" in page
    assert (
        "\npenstock cp \\-r data s3://bucket/train\n.br\npenstock cp 's3://bucket/train/**/*.png' images/\n.br\n"
        in page
    )
    assert "\n.B 130\ninterrupted\n" in page


def test_page_of_a_group_names_its_commands(found):
    assert {"penstock", "penstock-zarr", "penstock-zarr-plan", "penstock-cache-ls"} <= found.keys()
    assert "\n.BR penstock-zarr-plan (1)\nEstimate an epoch of ps.ZarrDataset" in found["penstock-zarr"]
    assert "\n.BR penstock-ls (1)\nList the objects" in found["penstock"]


def test_no_line_of_text_is_taken_for_a_macro(found):
    macros = {".TH", ".SH", ".B", ".BR", ".TP", ".PP", ".br"}
    lines = [(name, line) for name, page in found.items() for line in page.splitlines() if line[:1] in (".", "'")]
    assert [each for each in lines if each[1].partition(" ")[0] not in macros] == []


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_formats_each_page_without_a_warning(found):
    done = subprocess.run(
        ["groff", "-ww", "-k", "-man", "-Tutf8"],
        input="".join(found.values()).encode(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_pages_are_printed_and_written(penstock, tmp_path, found):
    done = penstock("man", "zarr", "plan")
    assert (done.returncode, done.stdout) == (0, found["penstock-zarr-plan"])
    assert penstock("man").stdout == found["penstock"]
    assert penstock("man", "--output", f"{tmp_path}/man/man1").returncode == 0
    assert {path.name for path in (tmp_path / "man" / "man1").iterdir()} == {f"{name}.1" for name in found}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("cpp",), 1, "penstock: there is no command cpp: penstock --help lists them\n"),
        (("cp", "--output", "x"), 2, "penstock: --output writes the pages of all commands: leave the command out\n"),
        (("--output", "/dev/null/x"), 2, "penstock: cannot write manual pages: Not a directory [/dev/null/x]\n"),
    ],
)
def test_wrong_words_are_named(penstock, words, code, text):
    done = penstock("man", *words)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", text)
