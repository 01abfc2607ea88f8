"""The samples of WebDataset's own writer, read by it and by us: the same keys, fields and bytes."""

import random

import pytest

import penstock as ps

wds = pytest.importorskip("webdataset")

# It leaves files to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("written"), random.Random(0)
    with wds.ShardWriter(str(folder / "train-%06d.tar"), maxcount=40, verbose=0) as out:
        for number in range(100):
            sample = {"__key__": f"a.b/é{number:04}", "jpg": draw.randbytes(draw.randrange(5000)), "cls": number % 10}
            sample |= {"seg.png": b"mask"} if number % 3 else {}
            out.write(sample | {"txt": f"text {number}", "json": {"n": number}})
    return folder


def theirs(folder):
    urls = [str(path) for path in sorted(folder.glob("*.tar"))]
    for sample in wds.WebDataset(urls, shardshuffle=False, empty_check=False):
        yield sample["__key__"], {name: data for name, data in sample.items() if not name.startswith("__")}


def test_samples_are_those_that_webdataset_reads(folder):
    dataset = ps.MapDataset.from_shards(f"{folder}/")
    ours = [(sample.key, {name: sample[name].read() for name in sample.fields}) for sample in dataset]
    assert ours == [*theirs(folder)]
    assert len(ours) == 100


def test_blocks_of_ours_hold_every_sample_that_webdataset_reads(folder):
    dataset = ps.MapDataset.from_shards(
        f"{folder}/", transform=lambda sample: (sample.key, {name: sample[name].read() for name in sample.fields})
    )
    loader = ps.DataLoader(dataset, 7, shuffle=ps.order.Lanes(block_bytes=20_000, window_blocks=3), collate_fn=list)
    assert sorted((each for batch in loader for each in batch), key=str) == sorted(theirs(folder), key=str)


def test_webdataset_reads_packed_shards(tmp_path):
    for number in range(12):
        for end in ("jpg", "cls"):
            path = tmp_path / "tree" / f"é{number % 3}" / f"{number:02}.{end}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(f"{end}{number}".encode())
    catalog = ps.pack(tmp_path / "tree", tmp_path / "to", samples=5)
    urls = [str(each) for each in sorted((tmp_path / "to").glob("*.tar"))]
    theirs = [(each["__key__"], each["jpg"], each["cls"]) for each in wds.WebDataset(urls, shardshuffle=False)]
    ours = [(each.key, each["jpg"].read(), each["cls"].read()) for each in ps.MapDataset(catalog)]
    assert theirs == ours
