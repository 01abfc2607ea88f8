"""The drop-in yields the samples that webdataset 1.0.2 yields from the same shards."""

from __future__ import annotations

import json
import shutil
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import penstock as ps
import penstock.compat.webdataset as wds
from penstock.compat.webdataset.datasets import strip_pipe
from penstock.errors import NotFound, PenstockError, Unsupported
from tests.compat.webdataset.conftest import both, keys, png, write
from tests.edges.launch import program

EXAMPLE = Path(__file__).parents[3] / "examples" / "compat" / "webdataset_readme.py"

# webdataset leaves the files of its shards to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_samples_are_those_of_webdataset(shards):
    ours, theirs = both(shards)
    assert ours == theirs
    assert len(ours) == 120
    assert [*ours[0]] == ["__key__", "__url__", "png", "cls", "seg.txt"]


def test_files_are_selected_and_renamed_as_by_webdataset(shards):
    ours, theirs = both(
        shards,
        select_files=lambda name: name.endswith((".cls", ".label")),
        rename_files=lambda name: name.replace("seg.txt", "label"),
    )
    assert ours == theirs
    assert [*ours[0]] == ["__key__", "__url__", "cls", "label"]


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
    assert strip_pipe(command) == url


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
        ({"nodesplitter": list}, "a custom nodesplitter= .* split_by_node"),
        ({"workersplitter": None}, "workersplitter="),
    ],
)
def test_arguments_that_cannot_be_honoured_are_refused_by_name(shards, options, name):
    with pytest.raises(Unsupported, match=name):
        wds.WebDataset(shards, **options)


def test_damaged_and_absent_shards_are_errors(tmp_path):
    write(tmp_path / "empty.tar", [])
    write(tmp_path / "apart.tar", [("a.x", b""), ("b.x", b""), ("a.y", b"")])
    with pytest.raises(ValueError, match="no samples"):
        wds.WebDataset(f"{tmp_path}/empty.tar")
    assert list(wds.WebDataset(f"{tmp_path}/empty.tar", empty_check=False)) == []
    with pytest.raises(PenstockError, match="not adjacent"):
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
