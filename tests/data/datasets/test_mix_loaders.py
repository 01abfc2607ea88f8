"""Mixtures under torchdata's and torch's loaders: the same batches as without, from any state and in any workers."""

from __future__ import annotations

import json
import warnings
from itertools import islice

import pytest
from torch.utils.data import DataLoader

import penstock as ps
from penstock.testing.restarts import check_restarts

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchdata.stateful_dataloader import StatefulDataLoader

SIZES, BATCH = {"cats": 21, "dogs": 9}, 6
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than processors
]


def name(sample):
    # A str: torch's loaders make lists of tuples.
    return f"{sample.source}/{sample.key.rpartition('/')[2]}"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    for source, size in SIZES.items():
        (folder / source).mkdir()
        for number in range(size):
            (folder / source / f"{number:02}").write_bytes(b"x")
    return {source: ps.MapDataset.from_prefix(f"{folder}/{source}/", transform=name) for source in SIZES}


def mixed(sources, cats=1, samples=44):
    return ps.Mix(sources, weights={"cats": cats, "dogs": 1}, epoch_samples=samples)


def formed(sources, **options):
    return mixed(sources, **options).batched(BATCH, list, shuffle=True)


@pytest.mark.parametrize(("workers", "every"), [(0, 1), (1, 1), (2, 4), (3, 1)])
def test_torchdatas_state_is_good_for_any_layout(sources, workers, every):
    whole = [*ps.DataLoader(mixed(sources), BATCH, shuffle=True, collate_fn=list)]
    loader = StatefulDataLoader(formed(sources), batch_size=None, num_workers=workers, snapshot_every_n_steps=every)
    for at, batch in enumerate(loader):
        assert batch == whole[at]
        state = json.loads(json.dumps(ps.elastic_state(loader.state_dict())))
        again = ps.DataLoader(mixed(sources), BATCH // 2, shuffle=True, collate_fn=list, place=ps.Place(0, 2))
        again.load_state_dict(state)
        if at + 2 < len(whole):
            assert next(iter(again)) == whole[at + 1][: BATCH // 2]


# Each state starts workers some times.
@pytest.mark.parametrize(("workers", "samples"), [(0, 44), (2, 22), pytest.param(2, 44, marks=pytest.mark.slow)])
def test_torchdatas_loader_restarts_after_any_batch(sources, workers, samples):
    check_restarts(
        lambda: StatefulDataLoader(formed(sources, samples=samples), batch_size=None, num_workers=workers),
        epochs=1,
        limit_bytes=None,
    )


def test_weights_change_from_torchdatas_state(sources):
    loader = StatefulDataLoader(formed(sources), batch_size=None, num_workers=2)
    seen = [sample for batch in islice(loader, 3) for sample in batch]
    batches = formed(sources)
    batches.load_state_dict(ps.elastic_state(loader.state_dict()), new_weights={"cats": 2, "dogs": 1})
    first = next(iter(batches))
    assert sum(sample.startswith("cats") for sample in first) == 4
    cats = [sample for sample in seen + first if sample.startswith("cats")]
    assert len(cats) == len({*cats}) == 13


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_persistent_workers_of_torch_make_each_epoch(sources, method):
    expected = formed(sources)
    epochs = [[*expected] for _ in range(3)]
    loader = DataLoader(
        formed(sources), batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context=method
    )
    assert [[*loader] for _ in range(3)] == epochs
    assert epochs[0] != epochs[1]
