"""What a shell and a person's typing meet: completion, suggestions, an example in every help."""

from __future__ import annotations

import pytest

COMMANDS = ["stat", "cp", "mv", "rm", "cat", "du"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(penstock, command):
    done = penstock(command, "--help", COLUMNS="200")
    assert done.returncode == 0
    assert f"penstock {command} " in done.stdout.partition("Example")[2]


def test_the_rule_of_the_destination_and_of_globs_is_told(penstock):
    text = penstock("cp", "-h", COLUMNS="1000").stdout
    assert "DEST is what things go into, each by its own name, when it ends in /" in text
    assert "[abc] is one of these" in text


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("cpp",), "cp"), (("sta",), "stat"), (("cp", "--recusive"), "--recursive"), (("rm", "--dryrun"), "--dry-run")],
)
def test_what_is_mistyped_is_told_the_right_one(penstock, words, meant):
    done = penstock(*words, COLUMNS="200")
    assert (done.returncode, done.stdout) == (2, "")
    assert meant in done.stderr


def test_a_shell_completes_commands_and_options(penstock):
    def completed(words):
        asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return penstock(**asked).stdout.split()

    assert completed("penstock c") == ["cp", "cat"]
    assert completed("penstock cp --re") == ["--resume", "--recursive", "--region"]


def test_completion_is_installed_for_the_shell_at_hand(penstock, tmp_path):
    done = penstock("--install-completion", "bash", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "penstock" in (tmp_path / ".bashrc").read_text()
