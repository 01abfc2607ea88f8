"""The command map: functions by module and name, counts, refusals with exit codes."""

import json

import pytest

from tests.jobs.mapping.functions import fill_lines

FUNCTION = "tests.jobs.mapping.functions:tokenise"


@pytest.fixture
def source(tmp_path):
    return fill_lines(tmp_path / "in", seed=2, files=1)


def test_a_function_is_called_and_counts_are_printed(penstock, source, tmp_path):
    words = ["map", source, FUNCTION, f"{tmp_path}/to", "--format", "tokens", "--dtype", "uint16"]
    done = penstock(*words, "--processes", "2", "--part-bytes", "20k")
    assert done.returncode == 0, done.stderr
    assert " outputs of 400 samples in " in done.stdout
    assert " tokens, 58 left out\n" in done.stdout
    again = json.loads(penstock(*words, "--part-bytes", "20k", "--json").stdout)
    assert (again["samples"], again["left_out"], again["complete"], again["catalog"]) == (400, 58, True, None)
    shown = penstock("jobs", "show", f"{tmp_path}/to/.map")
    assert "left out" in shown.stdout
    resumed = penstock("jobs", "resume", f"{tmp_path}/to/.map")
    assert (resumed.returncode, "a map is continued by its own call" in resumed.stderr) == (2, True)


def test_a_share_says_that_others_are_left(penstock, source, tmp_path):
    words = ["map", source, FUNCTION, f"{tmp_path}/to", "--format", "tokens", "--part-bytes", "20k"]
    assert penstock(*words, "--part", "1/2").stdout.endswith("; other parts are left\n")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("encode",), 2, "the function must be MODULE:NAME"),
        (("no_such_module:x",), 2, "cannot find the function no_such_module:x: No module named"),
        (("json:none",), 2, "cannot find the function json:none"),
        ((FUNCTION, "--dtype", "uint32"), 2, "no uint32"),
        ((FUNCTION, "--part-bytes", "many"), 2, "--part-bytes"),
    ],
)
def test_invalid_words_are_refused(penstock, source, tmp_path, words, code, says):
    done = penstock("map", source, words[0], f"{tmp_path}/to", "--format", "tokens", *words[1:])
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert says in done.stderr
    assert not (tmp_path / "to").exists()
