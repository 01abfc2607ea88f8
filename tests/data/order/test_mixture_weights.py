"""Weights of a mixture: as given, by size, by repeats, and on a schedule; anything else is refused by name."""

import math
from fractions import Fraction

import pytest

import penstock as ps
from penstock.data.order.mixture import WeightCurve, WeightStep, by_repeats, by_temperature, steps_of
from penstock.errors import Unusable

NAMES = ["a", "b"]


def test_only_the_proportion_of_weights_counts():
    assert steps_of({"b": 1, "a": 3}, NAMES) == (WeightStep(0, (3, 1)),)
    for given in ((3, 1), (6, 2), (0.75, 0.25), (Fraction(3, 7), Fraction(1, 7)), (3e300, 1e300), (3e-300, 1e-300)):
        curve = WeightCurve(steps_of(dict(zip(NAMES, given, strict=True)), NAMES))
        assert curve.table.tolist() == [[0.75, 0.25]]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"a": 1}, "lacks the source 'b'"),
        ({"a": 1, "b": 1, "c": 1}, "unknown source 'c'"),
        ({"a": -1, "b": 1}, r"weights\['a'\] must be a number that is 0 or more, got -1"),
        ({"a": math.nan, "b": 1}, "got nan"),
        ({"a": math.inf, "b": 1}, "got inf"),
        ({"a": True, "b": 1}, "got True"),
        ({"a": "1", "b": 1}, "got '1'"),
        ({"a": 0, "b": 0.0}, "must not all be 0"),
        ([1, 2], "must be a mapping"),
        (3, "must be a mapping"),
    ],
)
def test_weights_that_do_not_fit_the_sources_are_refused(weights, words):
    with pytest.raises(Unusable, match=words):
        steps_of(weights, NAMES)


def test_temperature_goes_from_alike_to_by_size():
    sizes = {"a": 100, "b": 4}
    assert by_temperature(1, sizes) == sizes
    assert by_temperature(0.5, sizes) == {"a": 10, "b": 2}
    assert by_temperature(0, sizes) == {"a": 1, "b": 1}
    for wrong in (-0.1, 1.1, True, "1", math.nan):
        with pytest.raises(Unusable, match="temperature must be a number"):
            by_temperature(wrong, sizes)


def test_repeats_multiply_the_sizes():
    assert by_repeats({"b": 2.5}, {"a": 100, "b": 4}) == {"a": 100, "b": 10}
    for wrong, words in (({"c": 2}, "unknown source 'c'"), ({"a": -1}, "0 or more"), (3, "must be a mapping")):
        with pytest.raises(Unusable, match=words):
            by_repeats(wrong, {"a": 100, "b": 4})


class TestSchedule:
    def test_weights_change_linearly_between_stages_and_hold_after_the_last(self):
        schedule = ps.order.Schedule([(0, {"a": 1, "b": 0}), (1000, {"a": 1, "b": 1}), (2000, {"a": 0, "b": 5})])
        assert [step.start for step in schedule.steps(NAMES)] == [0, 1000, 2000]
        for position, weight in ((0, 1), (500, 0.75), (998, 0.501), (1000, 0.5), (1500, 0.25), (2000, 0), (10**9, 0)):
            assert schedule.weights_at(position)["a"] == pytest.approx(weight, abs=1e-15)

    def test_stages_hold_without_linear(self):
        schedule = ps.order.Schedule([(0, {"a": 1, "b": 0}), (10, {"a": 0, "b": 1})], linear=False)
        assert [schedule.weights_at(position)["a"] for position in (0, 9, 10)] == [1, 1, 0]

    def test_two_stages_at_one_position_are_a_sudden_change(self):
        stages = [(0, {"a": 1, "b": 1}), (10, {"a": 1, "b": 1}), (10, {"a": 1, "b": 0})]
        schedule = ps.order.Schedule(stages)
        assert [schedule.weights_at(position)["a"] for position in (0, 9, 10)] == [0.5, 0.5, 1]

    def test_a_schedule_does_not_change_with_the_mappings_it_was_given(self):
        weights = {"a": 1, "b": 1}
        schedule = ps.order.Schedule([(0, weights)])
        weights["a"] = 9
        assert schedule.weights_at(0) == {"a": 0.5, "b": 0.5}

    @pytest.mark.parametrize(
        ("stages", "words"),
        [
            ([], "stages must be a list"),
            ({0: {"a": 1}}, "stages must be a list"),
            ("ab", "stages must be a list"),
            ([(0,)], "a stage must be a position and weights"),
            ([(0, 5)], "a stage must be a position and weights"),
            ([(5, {"a": 1})], "begin at 0"),
            ([(0, {"a": 1}), (9, {"a": 1}), (8, {"a": 1})], "not decrease"),
            ([(-1, {"a": 1})], "position of a stage"),
            ([(0.5, {"a": 1})], "position of a stage"),
        ],
    )
    def test_invalid_stages_are_refused(self, stages, words):
        with pytest.raises(Unusable, match=words):
            ps.order.Schedule(stages)

    def test_every_stage_names_every_source(self):
        with pytest.raises(Unusable, match="lacks the source 'b'"):
            ps.order.Schedule([(0, {"a": 1, "b": 1}), (5, {"a": 1})]).steps(NAMES)
