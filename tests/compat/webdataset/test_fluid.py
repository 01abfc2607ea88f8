"""Stages yield what those of webdataset 1.0.2 yield from the same shards, and resume exactly."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import penstock.compat.webdataset as wds
from penstock.errors import MissingExtra, Unsupported, Unusable
from tests.compat.webdataset.conftest import both

if TYPE_CHECKING:
    from collections.abc import Callable

# webdataset leaves the files of its shards to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


STAGES: dict[str, Callable[[Any], Any]] = {
    "to_tuple": lambda each: each.to_tuple("png;jpg", "cls"),
    "words": lambda each: each.to_tuple("png cls"),
    "missing": lambda each: each.to_tuple("none", "cls", missing_is_error=False),
    "map_dict": lambda each: each.map_dict(cls=int).map(lambda sample: {"double": sample["cls"] * 2}),
    "map_tuple": lambda each: each.decode().to_tuple("__key__", "cls").map_tuple(None, lambda number: -number),
    "select": lambda each: each.select(lambda sample: sample["cls"] == b"3").rename(label="cls;class"),
    "rename_alone": lambda each: each.rename(label="cls", keep=False),
    "slice": lambda each: each.to_tuple("cls").slice(3, 20, 2),
    "listed": lambda each: each.to_tuple("cls").listed(50),
    "unbatched": lambda each: each.to_tuple("__key__", "cls").batched(50).unbatched(),
    "map_none": lambda each: each.map(lambda sample: None if sample["cls"] == b"1" else sample),
    "continue": lambda each: each.map(
        lambda sample: int(sample["cls"]) // (sample["cls"] != b"2"), handler=lambda _: True
    ),
    "stop": lambda each: each.map(lambda sample: 1 // (sample["cls"] != b"7"), handler=lambda _: False),
    "with_epoch": lambda each: each.to_tuple("cls").with_epoch(250),
    "repeat": lambda each: each.to_tuple("cls").repeat(2),
}


@pytest.mark.parametrize("name", STAGES)
def test_stages_are_those_of_webdataset(shards, name):
    ours, theirs = both(shards, STAGES[name])
    assert ours == theirs
    assert ours


@pytest.mark.parametrize("spec", ["rgb", "torchrgb", "l8"])
def test_fields_are_decoded_by_webdatasets_decoders_and_collated(shards, spec):
    ours, theirs = both(shards, lambda each: each.decode(spec).to_tuple("png", "cls", "__key__").batched(32))
    assert [len(batch[1]) for batch in ours] == [32, 32, 32, 24]
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine[0]) is type(other[0])
        assert np.array_equal(mine[0], other[0])
        assert np.array_equal(mine[1], other[1])
        assert mine[2] == other[2]


def test_decode_without_webdataset_names_the_package(shards, monkeypatch):
    found = builtins.__import__

    def absent(name, *args, **options):
        if name.startswith("webdataset"):
            raise ModuleNotFoundError(name)
        return found(name, *args, **options)

    dataset = wds.WebDataset(shards, shardshuffle=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtra, match="pip install webdataset"):
        dataset.decode("pil")


def test_a_state_resumes_exactly_behind_stages(shards):
    def batches():
        dataset = wds.WebDataset(shards, shardshuffle=True, seed=1).select(lambda sample: sample["cls"] != b"5")
        return iter(dataset.to_tuple("__key__").batched(7))

    complete = list(batches())
    begun = batches()
    for _ in range(5):
        next(begun)
    state = begun.state_dict()
    resumed = batches()
    resumed.load_state_dict(state)
    assert list(resumed) == complete[5:]
    sliced = iter(wds.WebDataset(shards).slice(3))
    with pytest.raises(Unusable, match="behind slice"):
        sliced.state_dict()


def test_methods_that_are_absent_are_refused_with_an_alternative(shards):
    dataset = wds.WebDataset(shards)
    with pytest.raises(Unsupported, match=r"xdecode is not a part of .* decode"):
        dataset.xdecode()
    with pytest.raises(Unsupported, match="rng="):
        dataset.shuffle(10, rng=1)
    with pytest.raises(Unsupported, match=r"append is not a part of .* compose"):
        dataset.append(list)
    with pytest.raises(AttributeError, match="speling"):
        _ = dataset.speling


def test_batches_of_different_fields_are_refused():
    assert wds.default_collation_fn([(1, "a"), (2, "b")])[1] == ["a", "b"]
    assert torch.equal(wds.default_collation_fn([{"a": torch.ones(2)}] * 2)["a"], torch.ones(2, 2))
    with pytest.raises(ValueError, match="different fields"):
        wds.default_collation_fn([{"a": 1}, {"b": 1}])
