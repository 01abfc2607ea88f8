"""An index.json of MDS names the shards that are read; where both do not belong together, this is said by name."""

import json
import shutil

import pytest

import penstock as ps
from penstock.errors import ChecksumMismatch, Damaged, NotFound, Unsupported, Unusable
from penstock.events import RangeRead, subscribe
from tests.data.shards.mosaic import GOLDEN, SMALL, index, shard, small
from tests.refusals import refused


@pytest.fixture
def folder(tmp_path):
    """Return a function that copies a golden folder."""

    def copied(kind):
        shutil.copytree(GOLDEN / kind, tmp_path / kind)
        return tmp_path / kind

    return copied


def changed(folder, at=0, **changes):
    """Replace values of a shard in the index."""
    file = folder / "index.json"
    found = json.loads(file.read_bytes())
    found["shards"][at] |= changes
    file.write_text(json.dumps(found))
    return found["shards"][at]


def numbers(*args, **how):
    dataset = ps.MapDataset.from_shards(*args, **how)
    return [-dataset[at]["label"] for at in range(len(dataset))]


def test_sub_folders_of_a_merged_index_are_read_in_its_order(folder):
    there = folder("merged")
    assert numbers(there) == [*range(20)]
    assert numbers(f"{there}/") == numbers(there / "index.json") == [*range(20)]
    file = there / "index.json"
    found = json.loads(file.read_bytes())
    found["shards"].reverse()
    file.write_text(json.dumps(found))
    assert sorted(numbers(there)) == [*range(20)]
    assert numbers(there)[-1] != 19
    # An index of some folders leaves the others out.
    found["shards"] = [each for each in found["shards"] if each["raw_data"]["basename"].startswith("1/")]
    file.write_text(json.dumps(found))
    assert sorted(numbers(there)) == [*range(10, 20)]


def test_shards_are_read_without_an_index(folder):
    there = folder("plain")
    assert numbers([there / f"shard.0000{at}.mds" for at in range(3)]) == [*range(20)]
    assert numbers(f"{there}/shard.*.mds") == numbers(f"{there}/shard.{{00000..00002}}.mds") == [*range(20)]
    (there / "index.json").unlink()
    assert numbers(there) == numbers(there, format="mds") == [*range(20)]
    for kind in (None, "mds"):
        refused(NotFound, r"this index\.json does not exist", numbers, there / "index.json", format=kind)
    assert numbers([GOLDEN / "zstd" / f"shard.0000{at}.mds.zstd" for at in range(3)], format="mds") == [*range(20)]


@pytest.mark.parametrize("kind", ["plain", "zstd"])
def test_stale_indexes_are_refused(folder, kind):
    there = folder(kind)
    part = "raw_data" if kind == "plain" else "zip_data"
    first = changed(there)
    changed(there, **{part: first[part] | {"bytes": 5}})
    error = refused(Damaged, r"states 5 bytes, and the shard has \d+", numbers, there)
    assert first[part]["basename"] in error.url
    changed(there, **{part: first[part]}, samples=9)
    refused(Damaged, "states 9 samples, and the shard has 10", numbers, there)
    changed(there, samples=10, column_encodings=["bytes", "int", "bytes"])
    refused(Damaged, r"index\.json does not fit the shard, which has the columns", numbers, there)
    changed(there, column_encodings=first["column_encodings"])
    assert numbers(there) == [*range(20)]
    (there / first[part]["basename"]).unlink()
    refused(NotFound, "lists this shard, which does not exist", numbers, there)


def test_shards_that_the_index_does_not_name_are_refused(folder):
    there = folder("plain")
    shutil.copy(there / "shard.00000.mds", there / "shard.00003.mds")
    refused(Damaged, r"plain/index\.json does not name this shard.*pass the URL of index\.json", numbers, there)
    assert numbers(there / "index.json") == [*range(20)]
    assert len(numbers(f"{there}/*.mds")) == 30


def test_hostile_indexes_are_refused(folder):
    there = folder("plain")
    first = changed(there)
    shutil.copy(there / "shard.00000.mds", there.parent / "outside.mds")
    changed(there, raw_data=first["raw_data"] | {"basename": "../outside.mds"})
    for url in (there, there / "index.json"):
        error = refused(Damaged, r"'\.\./outside\.mds', which cannot be a file below its folder", numbers, url)
        assert error.url.endswith("/index.json")
    (there / "index.json").write_text(json.dumps({"version": 2, "shards": []}))
    refused(NotFound, "lists no shard", numbers, there)
    (there / "index.json").write_bytes(b"")
    refused(Damaged, r"cannot read the index\.json of MDS shards: not JSON", numbers, there)
    with (there / "index.json").open("wb") as file:
        file.truncate(257 << 20)
    refused(Damaged, "bytes: too many", numbers, there)


def test_folder_of_a_writer_without_samples_is_an_empty_dataset_on_request(tmp_path):
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": []}))
    for url in (f"{tmp_path}/", tmp_path, tmp_path / "index.json"):
        assert len(ps.MapDataset.from_shards(url, allow_empty=True)) == 0
        refused(NotFound, "no sample was found in 0 shards", ps.MapDataset.from_shards, url)
    with pytest.raises(NotFound, match="none of the 1 objects is a shard"):
        ps.MapDataset.from_shards(f"{tmp_path}/", format="tar", allow_empty=True)


def test_hashes_of_compressed_shards_are_compared(folder):
    there = folder("zstd")
    first = changed(there)
    for part in ("raw_data", "zip_data"):
        changed(there, **{part: first[part] | {"hashes": {"sha1": "0" * 40}}})
        error = refused(ChecksumMismatch, "states the sha1 0000", numbers, there)
        assert "shard.00000" in error.url
        changed(there, **{part: first[part]})
    changed(there, raw_data=first["raw_data"] | {"bytes": 100})
    refused(Damaged, "decompress to more than the declared 100", numbers, there)
    changed(there, raw_data=first["raw_data"] | {"bytes": 10_000})
    refused(Damaged, r"which inflates to \d+ bytes, not 10000", numbers, there)


def test_a_folder_in_which_mosaic_has_decompressed_is_read(folder, tmp_path):
    there = folder("zstd")
    columns = {name: (kind, 8 if kind == "int" else None) for name, kind in SMALL.items()}
    assert numbers(there) == [*range(20)]
    raw = ps.MapDataset.from_shards(there).catalog
    assert raw.format.name == "mds.zst"
    # Files of Mosaic's local folder: those of index.json's raw_data.
    import pyarrow as pa

    for each in sorted(there.glob("*.zstd")):
        (there / each.stem).write_bytes(pa.CompressedInputStream(pa.OSFile(str(each)), "zstd").read())
    assert ps.Catalog.from_shards(there).format.name == "mds.zst"
    for each in there.glob("*.zstd"):
        each.unlink()
    assert numbers(there) == [*range(20)]
    assert ps.Catalog.from_shards(there).format.name == "mds"
    # An empty shard, and one beside it.
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.mds").write_bytes(shard(columns, []))
    one = {"text": b"t", "label": bytes(8), "image": b""}
    (tmp_path / "own" / "b.mds").write_bytes(shard(columns, [one]))
    index(tmp_path / "own", "a.mds", "b.mds")
    assert numbers(tmp_path / "own") == [0]


def test_compressed_shards_beside_others_are_refused_with_what_to_do(folder):
    there = folder("plain")
    packed = folder("zstd")
    for each in packed.glob("*.zstd"):
        shutil.copy(each, there / f"z{each.name}")
    with pytest.raises(Unusable, match=r"is compressed, but other shards are not.*ps\.concat"):
        numbers([there / "shard.00000.mds", there / "zshard.00000.mds.zstd"], format="mds")
    mine, its = (json.loads((each / "index.json").read_bytes()) for each in (there, packed))
    for each in its["shards"]:
        for part in ("raw_data", "zip_data"):
            each[part]["basename"] = "z" + each[part]["basename"]
    (there / "index.json").write_text(json.dumps({"version": 2, "shards": mine["shards"] + its["shards"]}))
    refused(Unusable, r"only some shards of index\.json are compressed.*ps\.concat", numbers, there)


def test_other_compressions_are_refused(folder):
    refused(Unsupported, r"shard\.00000\.mds\.br.*with compression=.zstd., or without", numbers, folder("br"))
    refused(Unsupported, "the compression br", numbers, GOLDEN / "br" / "index.json")


def test_a_catalog_is_refreshed_with_the_index(folder, tmp_path):
    there = folder("plain")
    whole = json.loads((there / "index.json").read_bytes())
    (there / "index.json").write_text(json.dumps(whole | {"shards": whole["shards"][:2]}))
    last = (there / "shard.00002.mds").rename(tmp_path / "last")
    catalog = ps.index(there, tmp_path / "catalog", format="mds")
    assert catalog.refresh(there) is catalog
    last.rename(there / "shard.00002.mds")
    refused(Damaged, "does not name this shard", catalog.refresh, there)
    (there / "index.json").write_text(json.dumps(whole))
    fresh = catalog.refresh(there)
    assert len(fresh) == 20
    assert fresh.digest == ps.Catalog.from_shards(there).digest


def test_an_index_costs_one_request_a_shard(tmp_path):
    columns = {"x": ("bytes", None)}
    for number in range(5):
        data = shard(columns, [{"x": bytes(1000)} for _ in range(1000)])
        (tmp_path / f"{number}.mds").write_bytes(data)
    index(tmp_path, *(f"{number}.mds" for number in range(5)))
    heard = []
    stop = subscribe(lambda each: heard.append(each) if isinstance(each, RangeRead) else None)
    ps.Catalog.from_shards(tmp_path)
    stop()
    assert len(heard) == 6
    assert sum(each.size_bytes for each in heard) < 5 * 9000 + 5000


def test_small_samples_are_those_written():
    assert numbers(GOLDEN / "plain") == [-small(number)["label"] for number in range(20)]
