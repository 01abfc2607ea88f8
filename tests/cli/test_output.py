"""Every ending has its line and its number."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock import errors
from penstock.cli.output import MEANINGS, exit_on_error

CODES = {
    errors.ConfigError: 2,
    errors.MissingExtra: 2,
    errors.Unsupported: 2,
    errors.NotFound: 1,
    errors.Forbidden: 3,
    errors.Unauthenticated: 3,
    errors.Changed: 1,
    errors.Unreachable: 4,
    errors.Throttled: 4,
    errors.Truncated: 5,
    errors.ManifestError: 5,
    errors.NoSpace: 6,
    errors.Bug: 1,
}


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_an_error_is_one_line_and_its_code(kind, code, capsys):
    with pytest.raises(SystemExit) as ended, exit_on_error():
        raise kind("what\nhappened", url="s3://bucket/key")
    assert ended.value.code == code
    assert code in MEANINGS
    assert capsys.readouterr().err == "penstock: what\\nhappened [s3://bucket/key]\n"


def test_debugging_shows_the_traceback(penstock):
    done = penstock("ls", "s4://bucket", PENSTOCK_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "penstock.errors.UnknownScheme" in done.stderr


@pytest.mark.parametrize("words", [("ls", "--json"), ("cat",), ("stat",), ("du",)])
def test_output_to_a_full_disk_ends_with_6(start, tmp_path, words):
    (tmp_path / "x").write_text("some words")
    with open("/dev/full", "w") as full:
        process = start(*words, f"{tmp_path}/x", stdout=full)
    assert process.stderr.read() == "penstock: cannot write to standard output: No space left on device\n"
    assert process.wait() == 6


@pytest.mark.parametrize("words", [("--help",), ("cp", "--help"), ("--version",), ("ls", __file__)])
def test_a_reader_that_has_gone_ends_it_with_141(start, words):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as gone:
        process = start(*words, stdout=gone)
    assert (process.stderr.read(), process.wait()) == ("", 141)


@pytest.mark.parametrize("words", ["ls", "cat", "stat", "du"])
def test_output_that_is_closed_ends_with_2(words):
    code = "from penstock.cli import main; main()"
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", code, words, __file__]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "penstock: cannot write to standard output: Bad file descriptor\n"
    assert done.returncode == 2


def test_no_credentials_end_with_3(penstock):
    done = penstock("ls", "s3://bucket/")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1


def test_an_unknown_scheme_ends_with_2(penstock):
    done = penstock("ls", "s4://bucket/")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("penstock: unknown scheme 's4'")


@pytest.mark.parametrize("absent", ["typer", "rich"])
def test_missing_cli_extra_exits_with_2_and_names_the_install_command(absent):
    code = f"import sys; sys.modules[{absent!r}] = None; from penstock.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "ls", "/"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"penstock: the command needs {absent}: pip install 'penstock[cli]'\n"
