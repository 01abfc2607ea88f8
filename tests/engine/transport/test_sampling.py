"""All of a few responses are measured and some 200 a second of many, at no fixed distance."""

from __future__ import annotations

from random import Random

import pytest

from penstock.engine.transport.session import Sampling


def measured(per_s: float, seconds: float, seed: int) -> list[int]:
    """Return the numbers of the responses that were measured of a steady rate."""
    sampling, draw, found = Sampling(), Random(seed).random, []
    for number in range(int(per_s * seconds)):
        sampling.left -= 1
        if sampling.left <= 0:
            found.append(number)
            sampling.renew(number / per_s, draw())
    return found


def test_all_of_few_responses_are_measured(seed):
    assert measured(150, 4, seed) == list(range(600))


@pytest.mark.parametrize("per_s", [1_000, 9_000])
def test_of_many_responses_some_200_a_second_are_measured(per_s, seed):
    assert 1_200 < len(measured(per_s, 15, seed)) < 6_000


def test_no_pattern_of_responses_is_missed(seed):
    found = measured(4_000, 25, seed)
    shares = [sum(number % 20 == at for number in found) / len(found) for at in range(20)]
    assert 0.02 < min(shares) <= max(shares) < 0.09


def test_a_rate_that_falls_is_measured_wholly_again(seed):
    sampling, draw, at = Sampling(), Random(seed).random, 0.0
    gaps = []
    for step_s in [1 / 4_000] * 20_000 + [1 / 50] * 400:
        at += step_s
        sampling.left -= 1
        if sampling.left <= 0:
            sampling.renew(at, draw())
        gaps.append(sampling.left)
    assert max(gaps[10_000:20_000]) > 5
    assert gaps[-50:] == [1] * 50
