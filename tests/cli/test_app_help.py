"""Help, JSON and completion: the same for every command."""

from __future__ import annotations

import pytest

WITH_EXAMPLE = [
    "stat",
    "cp",
    "mv",
    "rm",
    "cat",
    "du",
    "find",
    "index",
    "pack",
    "sync",
    "presign",
    "doctor",
    "report",
    "top",
]


@pytest.mark.parametrize("command", WITH_EXAMPLE)
def test_each_shows_an_example(command, penstock):
    done = penstock(command, "--help", COLUMNS="200", TERM="dumb")
    assert done.returncode == 0
    assert f"penstock {command} " in done.stdout.partition("Example")[2]
    assert ("--json" in done.stdout) == (command != "cat")


def test_every_command_that_prints_data_has_a_json_option():
    import typer

    from penstock.cli.app import build

    def leaves(command, path=""):
        inner = getattr(command, "commands", None)
        if inner is None:
            yield path.strip(), {option for each in command.params for option in each.opts}
        for name, each in (inner or {}).items():
            yield from leaves(each, f"{path} {name}")

    # cat writes the objects themselves; demo tells a story.
    assert {name for name, options in leaves(typer.main.get_command(build())) if "--json" not in options} == {
        "cat",
        "demo",
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_shown(shell, penstock):
    done = penstock("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "_PENSTOCK_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("penstock sy", {"sync"}),
        ("penstock pre", {"presign"}),
        ("penstock checkpoint v", {"verify"}),
        ("penstock sync --che", {"--checksum"}),
        ("penstock config ", {"show", "validate"}),
        ("penstock to", {"top"}),
        ("penstock top --in", {"--interval"}),
        ("penstock du --de", {"--depth"}),
    ],
)
def test_commands_and_options_are_completed(words, found, penstock):
    *before, last = words.split(" ")
    variables = {"COMP_WORDS": words, "COMP_CWORD": str(len(before))}
    done = penstock(_PENSTOCK_COMPLETE="complete_bash", **variables)
    assert set(done.stdout.split()) == found, (done.stderr, last)
