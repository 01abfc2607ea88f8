"""The arguments of a mixture: how long an epoch is, and what tells two mixtures apart."""

import pickle
from dataclasses import replace

import pytest

from penstock.data.order.mixture import MixedSource, MixtureStage, steps_of
from penstock.data.order.mixture_plan import LanedMixture, Mixture
from penstock.data.order.orders import FullShuffle
from penstock.data.order.protocol import LaneOrder, Order

NAMES = ["a", "b"]


def mixture(weights, kind=Mixture, **options):
    sources = tuple(
        MixedSource(name, size, size, FullShuffle(), number, f"d{number}")
        for number, (name, size) in enumerate(zip(NAMES, (100, 30), strict=True))
    )
    return kind(sources=sources, steps=steps_of(dict(zip(NAMES, weights, strict=True)), NAMES), **options)


@pytest.mark.parametrize(
    ("weights", "ends", "samples"),
    [
        ((1, 1), "longest", 200),
        ((1, 1), "shortest", 60),
        ((1, 1), "once", 130),
        ((100, 30), "longest", 130),
        ((100, 30), "shortest", 130),
        ((0, 1), "longest", 30),
        ((0, 1), "once", 30),
        ((1, 999), "shortest", 30),
    ],
)
def test_an_epoch_ends_as_asked(weights, ends, samples):
    assert mixture(weights, ends=ends).total == samples


def test_samples_of_an_epoch_may_be_given():
    assert mixture((1, 1), epoch_samples=77).total == 77


def test_sources_weights_and_length_tell_mixtures_apart_and_stages_do_not():
    plain = mixture((1, 1))
    others = [mixture((1, 2)), mixture((1, 1), epoch_samples=7)]
    others.append(replace(plain, sources=(plain.sources[0], plain.sources[1]._replace(digest="other"))))
    others.append(replace(plain, sources=plain.sources[::-1]))
    assert len({each.digest for each in (plain, *others)}) == 5
    assert plain.digest == mixture((2, 2)).digest == plain.begun(MixtureStage(1, 2, 3, (4, 5))).digest
    assert plain.identity == others[0].identity != mixture((1, 1), batches="random").identity


def test_a_mixture_is_an_order_and_one_of_lanes_has_lanes():
    plain, laned = mixture((1, 1)), mixture((1, 1), LanedMixture)
    assert isinstance(plain, Order)
    assert not isinstance(plain, LaneOrder)
    assert isinstance(laned, LaneOrder)
    assert laned.with_lanes(4).lanes == 4
    assert pickle.loads(pickle.dumps(laned)) == laned
