"""Random mixtures for tests, and the sequence that one delivers."""

import numpy as np
from hypothesis import strategies as st

from penstock.data.order.lanes import Lanes
from penstock.data.order.mixture import MixedSource, Schedule, steps_of
from penstock.data.order.mixture_plan import LanedMixture, Mixture
from penstock.data.order.orders import FullShuffle

NUMBERS = st.one_of(st.just(0), st.integers(1, 9), st.floats(0.01, 1))


@st.composite
def weights(draw, names):
    """Return weights of which the first is not 0."""
    return {name: draw(NUMBERS if number else st.integers(1, 5)) for number, name in enumerate(names)}


@st.composite
def mixtures(draw, kinds=("stratified", "random", "one-source"), *, scheduled=True, laned=True):
    """Return a mixture, and a number of lanes."""
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=5))
    names = [f"s{number}" for number in range(len(sizes))]
    lanes = draw(st.sampled_from([1, 2, 4])) if laned else 1
    batches = draw(st.sampled_from(kinds))
    given = draw(weights(names))
    once = batches != "one-source" and draw(st.booleans())
    if scheduled and not once and draw(st.booleans()):
        stages = [(0, given), (draw(st.integers(0, 300)), draw(weights(names))), (400, draw(weights(names)))]
        steps = Schedule(stages, linear=draw(st.booleans())).steps(names)
    else:
        steps = steps_of(given, names)
    sources = tuple(
        MixedSource(name, size, size, Lanes(3, 2) if lanes > 1 else FullShuffle(), number, f"digest{number}")
        for number, (name, size) in enumerate(zip(names, sizes, strict=True))
    )
    kind = LanedMixture if lanes > 1 else Mixture
    length = {"ends": "once"} if once else {"epoch_samples": draw(st.integers(1, 200))}
    return kind(sources=sources, steps=steps, batches=batches, **length), lanes


def borders(mixture):
    """Return the number of the first sample of each source, and the number of all samples."""
    return np.cumsum([0, *(source.samples for source in mixture.sources)])


def source_of(mixture, samples):
    """Return the number of the source of each sample."""
    return np.searchsorted(borders(mixture), samples, side="right") - 1


def endless(source, lanes, draws):
    """Return the first draws of a source's own order, computed epoch by epoch."""
    order = source.order.with_lanes(lanes) if isinstance(source.order, Lanes) else source.order
    every, found = np.arange(source.positions), []
    for epoch in range(-(-draws // source.positions)):
        found += order.epoch(source.samples, source.seed, epoch)(every).tolist()
    return found[:draws]
