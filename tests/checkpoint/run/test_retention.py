"""Which steps go: never the newest, never one that anything keeps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.run.steps import Retention
from penstock.errors import Unusable

_steps = st.dictionaries(st.integers(0, 500), st.none() | st.floats(), max_size=30)
_number = st.none() | st.integers(1, 8)


@given(_steps, _number, _number, _number, st.sampled_from(["min", "max"]))
def test_superseded_steps_never_include_steps_that_a_rule_keeps(steps, last, every, best, mode):
    gone = Retention(last=last, every=every, best=best, mode=mode).superseded(steps)
    assert gone == sorted(set(gone))
    assert set(gone) <= set(steps)
    kept = sorted(steps.keys() - set(gone))
    if steps:
        assert max(steps) in kept
    if (last, every, best) == (None, None, None):
        assert gone == []
    if last:
        assert kept[-last:] == sorted(steps)[-last:]
    if every:
        assert all(step % every for step in gone)
    if best:
        better = min if mode == "min" else max
        measured = {step: metric for step, metric in steps.items() if metric is not None and not math.isnan(metric)}
        if measured:
            assert any(steps[step] == better(measured.values()) for step in kept if step in measured)
            assert sum(step in measured for step in kept) >= min(best, len(measured))


def test_an_example_to_read():
    steps = {10: 0.5, 20: 0.1, 30: 0.4, 40: None, 50: math.nan, 60: 0.3}
    assert Retention(last=2).superseded(steps) == [10, 20, 30, 40]
    assert Retention(every=20).superseded(steps) == [10, 30, 50]
    assert Retention(best=1).superseded(steps) == [10, 30, 40, 50]
    assert Retention(best=1, mode="max").superseded(steps) == [20, 30, 40, 50]
    assert Retention(last=1, every=50, best=2).superseded(steps) == [10, 30, 40]
    assert Retention().superseded(steps) == []


def test_a_save_never_deletes_its_own_step_though_newer_ones_stand():
    steps = {10: 0.5, 20: 0.9, 30: 0.4}
    assert Retention(last=1).superseded(steps, saved=20) == [10]
    assert Retention(best=1).superseded(steps, saved=20) == [10]
    assert Retention(last=1).superseded(steps | {40: 0.3}, saved=40) == [10, 20, 30]


@pytest.mark.parametrize("wrong", [{"last": 0}, {"every": 0}, {"best": -1}, {"mode": "least"}])
def test_invalid_retention_rule_is_refused(wrong):
    with pytest.raises(Unusable):
        Retention(**wrong)
