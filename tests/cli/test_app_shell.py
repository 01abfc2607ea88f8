"""A shell and the typing of a person: completion, and suggestions for mistyped words."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest

from tests.cli.conftest import COMMAND


def test_cp_help_explains_the_destination_rule_and_globs(penstock):
    text = penstock("cp", "-h", COLUMNS="1000").stdout
    assert "DEST is a folder, and each source keeps its own name in it, when DEST ends in /" in text
    assert "[abc] matches one of these characters" in text


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("cpp",), "cp"),
        (("sta",), "stat"),
        (("cp", "--recusive"), "--recursive"),
        (("rm", "--dryrun"), "--dry-run"),
        (("mv", "--resum"), "--resume"),
        (("cat", "--rnage"), "--range"),
    ],
)
def test_mistyped_command_or_option_error_suggests_the_correct_name(penstock, words, meant):
    done = penstock(*words, COLUMNS="200")
    assert (done.returncode, done.stdout) == (2, "")
    assert meant in done.stderr


@pytest.mark.parametrize("words", [("frobnicate",), ("--frobnicate",), ("ls", "-z"), ("cp", "--frobnicate", "a", "b")])
def test_unknown_name_without_a_similar_match_is_a_usage_error(penstock, words):
    done = penstock(*words, COLUMNS="200")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"No such {'option' if words[-1] != 'frobnicate' else 'command'}" in done.stderr


def test_a_shell_completes_commands_and_options(penstock):
    def completed(words):
        asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return penstock(**asked).stdout.split()

    assert completed("penstock c") == ["cp", "cat", "copy-tree", "catalog", "checkpoint", "cache", "config"]
    assert completed("penstock cp --re") == ["--resume", "--recursive", "--region"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered_in_their_own_words(penstock, shell):
    asked = {"_PENSTOCK_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "penstock r"}
    done = penstock(**asked, _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Delete objects" in done.stdout
    assert re.findall(r"\brm\b", done.stdout)[:1] == ["rm"]


@pytest.fixture
def shell(tmp_path):
    """Run lines in a bash of its own that finds the command on its path and has an empty home."""
    path = tmp_path / "bin" / "penstock"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    path.chmod(0o755)

    def run(*lines):
        env = os.environ | {"HOME": str(tmp_path), "PATH": f"{path.parent}:{os.environ['PATH']}"}
        script = "\n".join(lines)
        return subprocess.run(
            ["bash", "-euc", script], env=env, capture_output=True, text=True, check=False, timeout=60
        )

    return run


_TAB = (
    "COMP_WORDS=(penstock c) COMP_CWORD=1",  # what bash sets for "penstock c" and a press of the tab key
    "$(complete -p penstock | sed 's/.*-F \\([^ ]*\\).*/\\1/') penstock",
    'printf "%s\\n" "${COMPREPLY[@]}"',
)


def test_completion_works_in_a_real_shell_for_now(shell):
    done = shell("source <(penstock --show-completion)", *_TAB)
    assert (done.stdout.split(), done.stderr) == (
        ["cp", "cat", "copy-tree", "catalog", "checkpoint", "cache", "config"],
        "",
    )


def test_completion_is_installed_for_the_shell_at_hand(shell):
    done = shell("penstock --install-completion", "true")  # bash would give its place to its last command
    assert done.returncode == 0, done.stderr
    done = shell("source ~/.bashrc", *_TAB)
    assert (done.stdout.split(), done.stderr) == (
        ["cp", "cat", "copy-tree", "catalog", "checkpoint", "cache", "config"],
        "",
    )
