"""The drop-in yields the samples that mosaicml-streaming 0.13 has written; what it cannot honour is refused by name."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import penstock as ps
import penstock.compat.streaming as module
from penstock.compat.streaming import StreamingDataLoader, StreamingDataset
from penstock.errors import NotFound, StateMismatch, Unsupported, Unusable
from penstock.events import RangeRead, subscribe
from tests.data.shards.mosaic import FLOATS, GOLDEN, INTEGERS, MODES, SAMPLES, sample, small
from tests.edges.launch import program

EXAMPLE = Path(__file__).parents[2] / "examples" / "compat" / "streaming_readme.py"
NUMBERS = [small(number)["label"] for number in range(20)]


def labels(dataset):
    return [each["label"] for each in dataset]


@pytest.mark.parametrize("kind", ["plain", "zstd", "merged"])
def test_samples_are_those_of_mosaic(kind):
    dataset = StreamingDataset(local=GOLDEN / kind, batch_size=4)
    assert list(dataset) == [dict(sorted(small(number).items())) for number in range(20)]
    assert (len(dataset), dataset.size, dataset.num_samples) == (20, 20, 20)
    assert dataset[3] == dataset[-17] == dataset[np.int64(3)] == small(3)
    assert labels(dataset[2:5]) == labels(dataset[[2, 3, 4]]) == labels(dataset[np.arange(2, 5)]) == NUMBERS[2:5]
    with pytest.raises(IndexError):
        dataset[20]


def test_values_have_the_types_of_mosaic():
    stored = ps.MapDataset.from_shards(GOLDEN / "every", format=module.MdsFormat(stored=True))
    # The drop-in refuses shards with pickles.
    make = module._AsDict(tuple(each for each in stored.catalog.format.columns if each.name != "pkl"))
    for number in range(SAMPLES):
        found, given = make(stored[number]), sample(number)
        for name in ("bytes", "str", "int", "json", "str_int", "str_float", "str_decimal", *INTEGERS, *FLOATS):
            assert found[name] == given[name]
            assert type(found[name]) is type(given[name])
        for name in ("array", "array_typed", "array_shaped"):
            np.testing.assert_array_equal(found[name], given[name], strict=True)
        assert found["pil"].mode == MODES[number]
        for name in ("pil", "png"):
            assert found[name].tobytes() == given[name].tobytes()
        assert [each.mode for each in found["list_pil"]] == MODES[: number % 4]
        assert [each.tobytes() for each in found["list_png"]] == [each.tobytes() for each in given["list_png"]]
        for name in ("jpegarray", "jpeg_array", "list_jpeg"):
            assert len(found[name]) == len(given[name])
            assert all(isinstance(each, Image.Image) for each in found[name])


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_do_not_depend_on_workers(workers, shuffle):
    dataset = StreamingDataset(local=GOLDEN / "plain", batch_size=3, shuffle=shuffle)
    wanted = [each.tolist() for each in ps_batches(shuffle)]
    loader = DataLoader(dataset, 3, num_workers=workers, collate_fn=lambda rows: torch.tensor(labels(rows)))
    assert [each.tolist() for each in loader] == wanted
    assert sorted(label for batch in wanted for label in batch) == sorted(NUMBERS)
    again = [each.tolist() for each in loader]
    assert (again == wanted) is not shuffle


def ps_batches(shuffle):
    dataset = ps.IterableDataset.from_shards(
        GOLDEN / "plain",
        transform=lambda each: each["label"],
        shuffle=ps.order.Lanes() if shuffle else False,
        seed=9176,
    )
    return list(dataset.batched(3, torch.tensor))


class Own(StreamingDataset):
    """Mosaic's way to transform samples."""

    def __init__(self, *, factor, **given):
        super().__init__(**given)
        self.factor = factor

    def __getitem__(self, at):
        found = super().__getitem__(at)
        return found["label"] * self.factor


@pytest.mark.parametrize("workers", [0, 2])
def test_a_subclass_transforms_what_was_read_ahead(workers):
    dataset = Own(local=GOLDEN / "plain", batch_size=5, factor=2)
    heard = []
    stop = subscribe(lambda each: heard.append(each) if isinstance(each, RangeRead) else None)
    found = [int(label) for batch in DataLoader(dataset, 5, num_workers=workers) for label in batch]
    stop()
    assert found == [2 * label for label in NUMBERS]
    assert len(heard) == (0 if workers else 3), "one request a shard"
    assert dataset[3] == -6


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_the_samples_and_have_as_many_batches(world, monkeypatch):
    seen, counts = [], set()
    monkeypatch.setenv("WORLD_SIZE", str(world))
    for rank in range(world):
        monkeypatch.setenv("RANK", str(rank))
        dataset = StreamingDataset(local=GOLDEN / "plain", batch_size=3, shuffle=True)
        assert len(dataset) == -(-20 // world)
        batches = list(StreamingDataLoader(dataset, batch_size=3, collate_fn=labels))
        counts.add(len(batches))
        seen += [label for batch in batches for label in batch]
    assert {*seen} == {*NUMBERS}
    assert len(seen) == 20 + (world == 3)  # two samples are left for three ranks
    assert len(counts) == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 3, 6])
def test_a_state_resumes_exactly(stop, workers):
    def loader():
        dataset = StreamingDataset(local=GOLDEN / "plain", batch_size=3, shuffle=True)
        return StreamingDataLoader(dataset, batch_size=3, num_workers=workers, collate_fn=labels)

    first = loader()
    wanted = list(first)
    second, kept = loader(), None
    for number, batch in enumerate(second, 1):
        assert batch == wanted[number - 1]
        if number == stop:
            kept = second.state_dict()
            break
    resumed = loader()
    resumed.load_state_dict(json.loads(json.dumps(kept)))
    rest = list(resumed)
    assert rest == wanted[stop:]
    assert list(resumed) == list(first), "the next epoch"
    # From where the iteration has begun, and from the start of the epoch.
    other = loader()
    other.load_state_dict(kept)
    iterator = iter(other)
    next(iterator)
    mine = other.dataset
    assert mine.state_dict(3, from_beginning=False) == mine.state_dict(3 * stop + 3, from_beginning=True)


def test_a_state_resumes_on_other_ranks_and_batches(monkeypatch):
    dataset = StreamingDataset(local=GOLDEN / "plain", batch_size=4, shuffle=True)
    iterator = iter(dataset)
    seen = [next(iterator)["label"] for _ in range(8)]
    state = dataset.state_dict(8, from_beginning=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        part = StreamingDataset(local=GOLDEN / "plain", batch_size=3, shuffle=True)
        with pytest.warns(UserWarning, match="lanes"):
            part.load_state_dict(state)
        seen += labels(part)
    assert sorted(seen) == sorted(NUMBERS)


def test_states_of_others_are_refused():
    dataset = StreamingDataset(local=GOLDEN / "plain")
    theirs = {"epoch": 0, "sample_in_epoch": 4, "num_canonical_nodes": 1, "shuffle_seed": 9176}
    with pytest.raises(StateMismatch, match="from mosaicml-streaming, whose order differs"):
        dataset.load_state_dict(theirs)
    with pytest.raises(StateMismatch):
        dataset.load_state_dict({})
    other = StreamingDataset(local=GOLDEN / "plain", shuffle=True)
    with pytest.raises(StateMismatch):
        dataset.load_state_dict(other.state_dict(0, from_beginning=True))


def test_epochs_follow_one_another():
    dataset = StreamingDataset(local=GOLDEN / "plain", batch_size=4, shuffle=True)
    assert dataset.next_epoch == 0
    first, second = labels(dataset), labels(dataset)
    assert (dataset.next_epoch, first != second) == (2, True)
    dataset.next_epoch = 0
    assert labels(dataset) == first
    assert labels(StreamingDataset(local=GOLDEN / "plain", shuffle=True, batch_size=4, shuffle_seed=1)) != first


def test_split_and_catalog(tmp_path):
    dataset = StreamingDataset(remote=f"{GOLDEN}/", local=tmp_path / "none", split="plain", batch_size=2)
    assert labels(dataset) == NUMBERS
    assert not (tmp_path / "none").exists()
    dataset.catalog.save(tmp_path / "catalog")
    assert labels(StreamingDataset(remote=ps.Catalog.open(tmp_path / "catalog"))) == NUMBERS
    with pytest.raises(Unsupported, match="split= of a catalog"):
        StreamingDataset(remote=dataset.catalog, split="plain")
    with pytest.raises(Unusable, match="batch"):
        StreamingDataset(remote=dataset.catalog, batch_size=0)
    with pytest.raises(Unsupported, match=r"use StreamingDataset\(…\)\.catalog"):
        StreamingDataset(remote=ps.Catalog.from_shards(GOLDEN / "plain"))


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ({"streams": [object()]}, r"ps\.concat"),
        ({"download_retry": 5}, "store="),
        ({"download_timeout": 5}, "store="),
        ({"validate_hash": "sha1"}, "hash"),
        ({"epoch_size": 10}, r"ps\.Mix"),
        ({"epoch_size": "1k"}, r"ps\.Mix"),
        ({"sampling_method": "fixed"}, r"ps\.Mix"),
        ({"sampling_granularity": 2}, r"ps\.Mix"),
        ({"partition_algo": "orig"}, "leave it out"),
        ({"num_canonical_nodes": 64}, "leave it out"),
        ({"shuffle_algo": "py1s"}, "leave it out"),
        ({"shuffle_block_size": 1000}, "leave it out"),
        ({"batching_method": "stratified"}, r"ps\.Mix"),
        ({"allow_unsafe_types": True}, "any code"),
        ({"replication": 2}, "mesh"),
        ({"stream_name": "own"}, r"ps\.Mix"),
        ({"stream_config": {}}, r"ps\.Mix"),
    ],
)
def test_arguments_that_cannot_be_honoured_are_refused_by_name(argument, says):
    (name,) = argument
    with pytest.raises(Unsupported, match=f"^{name}=.*{says}"):
        StreamingDataset(local=GOLDEN / "plain", **argument)


def test_other_mistakes_are_named():
    with pytest.raises(ValueError, match="remote= or local= must be given"):
        StreamingDataset()
    with pytest.raises(TypeError):
        StreamingDataset(GOLDEN / "plain")
    with pytest.raises(NotFound):
        StreamingDataset(remote=GOLDEN / "none")
    with pytest.raises(Unsupported, match="the column 'pkl', which is a pickle, which can run any code"):
        StreamingDataset(remote=GOLDEN / "every")
    dataset = StreamingDataset(remote=GOLDEN / "plain", batch_size=4, epoch_size=20, predownload=5, cache_limit="1gb")
    with pytest.raises(Unsupported, match=r"batch_size=5 over StreamingDataset\(batch_size=4\).*both the same"):
        StreamingDataLoader(dataset, batch_size=5)
    assert StreamingDataLoader([1, 2], batch_size=2).state_dict() is None
    for name in ("Stream", "MDSWriter", "LocalDataset"):
        with pytest.raises(Unsupported, match=f"{name} is not a part of penstock.compat.streaming"):
            getattr(module, name)
    with pytest.raises(AttributeError):
        module.other  # noqa: B018


def test_program_of_the_readme_runs(tmp_path):
    rows = tmp_path / "rows"
    rows.mkdir()
    for number in range(40):
        Image.new("RGB", (4, 3), number).save(rows / f"{number:02}.image", "JPEG")
        (rows / f"{number:02}.class").write_text(str(number))
    ps.pack(rows, tmp_path / "mds", format="mds", columns={"image": "jpeg", "class": "int"})
    ended = program(shutil.copy(EXAMPLE, tmp_path), REMOTE=f"{tmp_path}/mds")
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.splitlines() == ["(4, 3) 13 False", "40 40", "True"]


def test_datasets_are_pickled():
    dataset = StreamingDataset(remote=GOLDEN / "zstd", batch_size=4, shuffle=True)
    assert labels(pickle.loads(pickle.dumps(dataset))) == labels(dataset)
