"""The drop-in yields the samples that webdataset 1.0.2 yields from the same shards."""

from __future__ import annotations

import builtins
import io
import json
import shutil
import tarfile
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import webdataset
from torch.utils.data import DataLoader

import penstock as ps
import penstock.compat.webdataset as wds
from penstock.errors import MissingExtra, NotFound, PenstockError, Unsupported, Unusable
from tests.edges.launch import program

if TYPE_CHECKING:
    from collections.abc import Callable


EXAMPLE = Path(__file__).parents[2] / "examples" / "compat" / "webdataset_readme.py"

# webdataset leaves the files of its shards to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def png(number):
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (4, 3), number).save(out, "PNG")
    return out.getvalue()


def write(path, files):
    with tarfile.open(path, "w") as tar:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Return the pattern of three shards of 40 samples, with files that webdataset leaves out."""
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(3):
        files = [("README", b"no dot"), ("__meta__/a.json", b"{}")]
        for number in range(shard * 40, shard * 40 + 40):
            key = f"./dir.x/{number:03}"
            files += [(f"{key}.PNG", png(number)), (f"{key}.cls", str(number % 10).encode())]
            files += [(f"{key}.seg.txt", f"text {number}".encode())]
        write(folder / f"train-{shard}.tar", files)
    return f"{folder}/train-{{0..2}}.tar"


def without_path(sample):
    return {name: value for name, value in sample.items() if name != "__local_path__"}


def both(shards, change=lambda dataset: dataset, **options):
    """Return what both libraries yield."""
    theirs = change(webdataset.WebDataset(shards, shardshuffle=False, **options).map(without_path))
    return list(change(wds.WebDataset(shards, shardshuffle=False, **options))), list(theirs)


def test_samples_are_those_of_webdataset(shards):
    ours, theirs = both(shards)
    assert ours == theirs
    assert len(ours) == 120
    assert [*ours[0]] == ["__key__", "__url__", "png", "cls", "seg.txt"]


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


def test_files_are_selected_and_renamed_as_by_webdataset(shards):
    ours, theirs = both(
        shards,
        select_files=lambda name: name.endswith((".cls", ".label")),
        rename_files=lambda name: name.replace("seg.txt", "label"),
    )
    assert ours == theirs
    assert [*ours[0]] == ["__key__", "__url__", "cls", "label"]


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


def keys(dataset):
    return [sample["__key__"] for sample in dataset]


def test_shuffle_yields_each_sample_once_in_another_order_each_epoch(shards):
    plain = keys(wds.WebDataset(shards))
    dataset = wds.WebDataset(shards).shuffle(10, seed=3)
    first, second = keys(dataset), keys(dataset)
    assert sorted(first) == sorted(second) == plain
    assert plain != first != second
    assert keys(wds.WebDataset(shards, shardshuffle=100, seed=3)) == first
    assert keys(wds.WebDataset(shards).shuffle(0)) == plain


def test_seed_in_the_environment_counts_unless_an_argument_is_given(shards, monkeypatch):
    given = keys(wds.WebDataset(shards, shardshuffle=True, seed=7))
    unset = keys(wds.WebDataset(shards, shardshuffle=True))
    monkeypatch.setenv("WDS_SEED", "7")
    assert keys(wds.WebDataset(shards, shardshuffle=True)) == given != unset
    assert keys(wds.WebDataset(shards, shardshuffle=True, seed=0)) == unset


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


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_share_the_samples_out(shards, workers):
    dataset = wds.WebDataset(shards, shardshuffle=True).to_tuple("__key__", "cls").batched(8)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers)
    found = [key for batch in loader.unbatched().shuffle(100).batched(16) for key in batch[0]]
    assert sorted(found) == keys(wds.WebDataset(shards))
    assert len(list(wds.WebLoader(dataset, batch_size=None).with_epoch(40))) == 40
    with pytest.raises(Unsupported, match="call shuffle"):
        wds.WebLoader(wds.WebDataset(shards), batch_size=None).shuffle(10)


def test_ranks_share_the_samples_out_by_split_by_node(shards, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        found += keys(wds.WebDataset(shards, nodesplitter=wds.split_by_node))
        assert len(keys(wds.WebDataset(shards, nodesplitter=None))) == 120
        with pytest.raises(ValueError, match="nodesplitter=split_by_node"):
            keys(wds.WebDataset(shards))
    monkeypatch.undo()
    assert sorted(found) == keys(wds.WebDataset(shards))


def test_a_dataset_is_pickled_and_has_the_length_it_was_given(shards):
    dataset = wds.WebDataset(shards).to_tuple("cls").batched(4).with_length(30, silent=True)
    again = ForkingPickler.loads(ForkingPickler.dumps(dataset))
    assert len(again) == len(dataset) == 30
    assert list(again) == list(dataset)
    assert len(DataLoader(dataset, batch_size=None)) == 30


def test_urls_of_stores_and_catalogs_are_read(shards):
    plain = keys(wds.WebDataset(shards))
    for number in range(3):
        with ps.open(f"memory://wds/a/train-{number}.tar", "wb") as file:
            file.write(Path(shards.replace("{0..2}", str(number))).read_bytes())
    every = [f"memory://wds/a/train-{number}.tar" for number in range(3)]
    for urls in ("memory://wds/a/train-{0..2}.tar", every, "::".join(every), "memory://wds/a/"):
        assert keys(wds.WebDataset(urls)) == plain
    assert next(iter(wds.WebDataset(every)))["__url__"] == every[0]
    catalog = ps.Catalog.from_shards(every, skip="README")
    assert keys(wds.WebDataset(catalog)) == plain


@pytest.mark.parametrize(
    ("command", "url"),
    [
        ("pipe:curl -s -L https://host/a-{0..2}.tar", "https://host/a-{0..2}.tar"),
        ("pipe:curl -fsSL 'https://host/a.tar'", "https://host/a.tar"),
        ("pipe:aws s3 cp s3://bucket/a.tar -", "s3://bucket/a.tar"),
        ("pipe:gsutil cat gs://bucket/a.tar", "gs://bucket/a.tar"),
        ("pipe:cat /data/a.tar", "/data/a.tar"),
        ("s3://bucket/a.tar", "s3://bucket/a.tar"),
    ],
)
def test_pipes_that_copy_a_url_become_the_url(command, url):
    assert wds.unpiped(command) == url


@pytest.mark.parametrize(
    "command",
    [
        "pipe:curl -s https://host/a.tar.gz | gunzip",
        "pipe:curl -H token https://host/a.tar",
        "pipe:ssh host cat a.tar",
        "pipe:cat",
    ],
)
def test_other_pipes_are_refused_by_name(command):
    with pytest.raises(Unsupported, match="cannot run 'pipe:"):
        wds.WebDataset(command)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"resampled": True}, "resampled=True .* with_epoch"),
        ({"mode": "resampled"}, "resampled=True"),
        ({"handler": wds.warn_and_continue}, "handler= .* on_error"),
        ({"cache_dir": "cache"}, "cache_dir= .*CacheOptions"),
        ({"nodesplitter": list}, "nodesplitter= of your own .* split_by_node"),
        ({"workersplitter": None}, "workersplitter="),
    ],
)
def test_arguments_that_cannot_be_honoured_are_refused_by_name(shards, options, name):
    with pytest.raises(Unsupported, match=name):
        wds.WebDataset(shards, **options)


def test_methods_that_are_absent_are_refused_with_an_alternative(shards):
    dataset = wds.WebDataset(shards)
    with pytest.raises(Unsupported, match=r"xdecode is not a part of .* decode"):
        dataset.xdecode()
    with pytest.raises(Unsupported, match="rng="):
        dataset.shuffle(10, rng=1)
    with pytest.raises(AttributeError, match="speling"):
        _ = dataset.speling


def test_damaged_and_absent_shards_are_errors(tmp_path):
    write(tmp_path / "empty.tar", [])
    write(tmp_path / "apart.tar", [("a.x", b""), ("b.x", b""), ("a.y", b"")])
    with pytest.raises(ValueError, match="no samples"):
        wds.WebDataset(f"{tmp_path}/empty.tar")
    assert list(wds.WebDataset(f"{tmp_path}/empty.tar", empty_check=False)) == []
    with pytest.raises(PenstockError, match="not all neighbours"):
        wds.WebDataset(f"{tmp_path}/apart.tar")
    with pytest.raises(NotFound):
        wds.WebDataset(f"{tmp_path}/none.tar")


def test_the_program_of_the_readme_runs(tmp_path):
    for shard in range(10):
        files = []
        for number in range(4):
            key = f"PMC{shard}_{number:05}"
            files += [(f"{key}.json", json.dumps({"image_id": number, "annotations": []}).encode())]
            files += [(f"{key}.png", png(number))]
        write(tmp_path / f"publaynet-train-{shard:06}.tar", files)
    ended = program(shutil.copy(EXAMPLE, tmp_path), BUCKET=f"{tmp_path}/")
    assert ended.returncode == 0, ended.stdout
    found = ended.stdout.splitlines()
    assert [line for line in found if not line.startswith("/")] == [
        "True",
        "(4, 3) ['annotations', 'image_id']",
        "torch.Size([2]) 0",
        "160",
        "(12, 2) 12",
        "52",
    ]


def test_batches_of_different_fields_are_refused():
    assert wds.default_collation_fn([(1, "a"), (2, "b")])[1] == ["a", "b"]
    assert torch.equal(wds.default_collation_fn([{"a": torch.ones(2)}] * 2)["a"], torch.ones(2, 2))
    with pytest.raises(ValueError, match="different fields"):
        wds.default_collation_fn([{"a": 1}, {"b": 1}])
