"""The flagship example in examples/llm: a training killed twice takes the rows of an undisturbed one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from examples.llm import prepare, story
from examples.llm.story import Life
from penstock.cli.demo.story import embedded
from penstock.cli.screen import Screen
from penstock.errors import PenstockError

ROOT = Path(__file__).parents[1]


def test_training_that_is_killed_twice_misses_and_repeats_no_row():
    command = [sys.executable, "-m", "examples.llm", "--steps", "20"]
    ended = subprocess.run(command, cwd=ROOT, stdout=PIPE, stderr=STDOUT, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "240 rows in 20 steps: 0 missed, 0 repeated" in ended.stdout
    lives = re.findall(r"disturbed +(\d) ranks? from step (\d+): .* after step (\d+)", ended.stdout)
    assert [ranks for ranks, *_ in lives] == ["2", "2", "3", "1"]
    assert lives[3] == ("1", "10", "20")
    assert float(re.search(r"largest difference to the undisturbed run (\S+)", ended.stdout)[1]) < 1e-3
    validation, undisturbed = re.search(r"validation +(\S+), undisturbed (\S+)", ended.stdout).groups()
    assert abs(float(validation) - float(undisturbed)) < 1e-3


def _life(began, steps):
    rows = {step: Counter(each) for step, each in steps.items()}
    return Life(1, began, rows, dict.fromkeys(rows, 1.0), [{"tokens": 1, "waited_s": 0.0, "took_s": 1.0}])


@pytest.mark.parametrize(("second", "found"), [("ab", "0 missed, 0 repeated"), ("ax", "1 missed, 1 repeated")])
def test_report_counts_rows_that_the_resumed_training_missed_or_repeated(capsys, second, found):
    right = _life(0, {1: "ab", 2: "cd", 3: "ab"})
    lives = [right, _life(0, {1: "ab", 2: "zz"}), _life(1, {2: "cd", 3: second})]
    if second == "ab":
        story.report(Screen(), lives, 3, 1.0)
    else:
        with pytest.raises(PenstockError, match="not the one that was killed"):
            story.report(Screen(), lives, 3, 1.0)
    assert found in capsys.readouterr().out


def test_half_a_line_in_the_log_of_a_killed_rank_is_left_out(tmp_path):
    lines = [{"pid": 1, "began": 0, "world": 1}, {"step": 1, "rows": ["a"], "loss": 2.0}]
    (tmp_path / "x.0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines) + '{"step": 2, "ro')
    assert story.read_life(tmp_path / "x", 1).steps == {1: Counter("a")}


def test_texts_are_there_and_tokens_of_documents_come_back_as_text():
    with embedded() as url:
        counts = prepare.upload(url)
        assert min(counts.values()) >= 40
        prepare.make_tokenizer(url)
        tokenise = prepare.Tokenise(f"{url}tokenizer.json")
        for text in islice(prepare._texts("notes"), 20):
            tokens = tokenise({"text": text})
            assert tokens[-1] == 0
            assert (tokens[:-1] > 0).all()
            assert tokenise._tokenizer.decode(tokens[:-1].tolist()) == text
