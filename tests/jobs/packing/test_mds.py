"""MDS that was packed has the bytes of MDSWriter, is read back, goes on after a failure, and replaces nothing else."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from penstock.errors import AlreadyExists, Unusable
from penstock.jobs.packing import mds as module
from penstock.jobs.packing.mds import MdsMembers, MdsWriting
from tests.data.shards.mosaic import COLUMNS, GOLDEN, SMALL, small
from tests.jobs.packed import contents, fill, shards

SAFE = sorted(COLUMNS.keys() - {"pkl", "pil", "list_pil"})


@pytest.fixture
def tree(tmp_path):
    return fill(tmp_path / "tree")


def rows(catalog):
    return [{name: each[name] for name in each.fields} for each in ps.MapDataset(catalog)]


def test_shards_and_index_have_the_bytes_of_mosaic(tmp_path):
    packed = ps.pack(ps.MapDataset.from_shards(GOLDEN / "zstd"), tmp_path / "to", format="mds", bytes=700)
    wanted = sorted((GOLDEN / "sha256").glob("*.mds"))
    assert [each.read_bytes() for each in shards(tmp_path / "to")] == [each.read_bytes() for each in wanted]
    index = (tmp_path / "to" / "index.json").read_text()
    assert index == (GOLDEN / "sha256" / "index.json").read_text().replace("shard.0", "shard-00")
    for same in (ps.Catalog.from_shards(f"{tmp_path}/to/"), ps.Catalog.open(tmp_path / "to" / "index.catalog")):
        assert (same.digest, same.format, same.base) == (packed.digest, packed.format, packed.base)
    assert [each["text"] for each in rows(packed)] == [small(number)["text"] for number in range(20)]


def test_samples_with_every_encoding_are_packed_again(tmp_path):
    dataset = ps.MapDataset.from_shards(GOLDEN / "every", fields=SAFE)
    packed = ps.pack(dataset, tmp_path / "to", format="mds", samples=4)
    encodings = {name: encoding for name, encoding, _ in packed.format.columns}
    assert encodings == {name: COLUMNS[name] for name in SAFE}
    assert len(shards(tmp_path / "to")) == 3
    found = ps.MapDataset(packed)
    for number in range(len(dataset)):
        for name in SAFE:
            one, other = found[number][name], dataset[number][name]
            if isinstance(one, ps.Sample):
                assert one.read() == other.read()
            else:
                np.testing.assert_array_equal(one, other)


def test_pixels_are_packed_as_arrays_of_one_type(tmp_path):
    dataset = ps.MapDataset.from_shards(GOLDEN / "every", fields=("pil",))
    packed = ps.pack(dataset[:2], tmp_path / "to", format="mds")
    assert packed.format.columns[0].encoding == "ndarray"
    assert all((one["pil"] == other["pil"]).all() for one, other in zip(rows(packed), dataset[:2], strict=True))
    with pytest.raises(Unusable, match=r"'ndarray:uint8'.*its type is bool") as caught:
        ps.pack(dataset, tmp_path / "other", format="mds", columns={"pil": "ndarray:uint8"})
    assert "every/shard.00000.mds" in caught.value.url
    assert not (tmp_path / "other" / "index.json").exists()
    images = ps.MapDataset.from_shards(GOLDEN / "every", fields=("list_pil",))
    with pytest.raises(Unusable, match=r"'list_pil' is a list, which no encoding of MDS holds"):
        ps.pack(images[1:], tmp_path / "lists", format="mds")


def test_objects_become_bytes_or_what_columns_say(tree, tmp_path):
    packed = ps.pack(tree, tmp_path / "to", format="mds", samples=6)
    assert [each[:2] for each in packed.format.columns] == [("cls", "bytes"), ("jpg", "jpeg")]
    wanted = [data for name, data in contents(tree) if name.endswith(".cls")]
    assert [each["cls"].read() for each in rows(packed)] == wanted
    for number in range(10):
        (tree / f"{number}.n").write_text(str(-number))
        (tree / f"{number}.json").write_text(json.dumps({"a": number}))
    chosen = ps.Catalog.scan(f"{tree}/", include=["*.n", "*.json"])
    packed = ps.pack(chosen, tmp_path / "typed", format="mds", columns={"n": "int", "json": "json"})
    assert sorted((each["n"], each["json"]["a"]) for each in rows(packed)) == [(-at, at) for at in range(9, -1, -1)]
    only = ps.pack(chosen, tmp_path / "only", format="mds", columns={"n": "int16"})
    assert rows(only)[0].keys() == {"n"}


def test_groups_and_labels_are_packed(tree, tmp_path):
    grouped = ps.Catalog.scan(f"{tree}/", group="stem", labels="folder")
    packed = ps.pack(grouped, tmp_path / "to", format="mds")
    assert packed.classes == grouped.classes
    assert packed.labels.tolist() == grouped.labels.tolist()
    assert [each["jpg"].read() for each in rows(packed)] == [
        data for name, data in contents(tree) if name.endswith(".jpg")
    ]


def test_a_sample_without_a_column_is_refused_by_name(tree, tmp_path):
    (tree / "c1" / "007.cls").unlink()
    with pytest.raises(Unusable, match=r"no field 'cls', only jpg") as caught:
        ps.pack(tree, tmp_path / "to", format="mds")
    assert caught.value.url.endswith("/c1/007.jpg")
    assert len(ps.pack(tree, tmp_path / "to", format="mds", columns={"jpg": "jpeg"}, overwrite=True)) == 20


@pytest.mark.parametrize("packed_before", [False, True])
def test_a_field_that_the_first_sample_lacks_is_refused_and_not_left_out(tree, tmp_path, packed_before):
    (tree / "c1" / "007.txt").write_bytes(b"caption")
    source = ps.MapDataset(ps.pack(tree, tmp_path / "tar")) if packed_before else tree
    with pytest.raises(Unusable, match=r"the field 'txt', which the first sample lacks: pass columns=") as caught:
        ps.pack(source, tmp_path / "to", format="mds")
    assert ("shard-000000.tar" if packed_before else "c1/007") in caught.value.url
    chosen = ps.pack(source, tmp_path / "chosen", format="mds", columns={"jpg": "jpeg"})
    assert len(chosen) == 20


def test_rows_of_parquet_become_rows_of_mds(tmp_path):
    table = pa.table({"image": [b"one", b"two"], "label": [3, 4], "text": ["a", "b"], "box": [[1.0, 2.0], [3.0]]})
    (tmp_path / "rows").mkdir()
    pa.parquet.write_table(table, tmp_path / "rows" / "0.parquet")
    packed = ps.pack(ps.MapDataset.from_shards(f"{tmp_path}/rows/"), tmp_path / "to", format="mds")
    assert {each.name: each.encoding for each in packed.format.columns} == {
        "box": "ndarray",
        "image": "bytes",
        "label": "int",
        "text": "str",
    }
    assert [(each["image"].read(), each["label"], each["text"], each["box"].tolist()) for each in rows(packed)] == [
        (b"one", 3, "a", [1.0, 2.0]),
        (b"two", 4, "b", [3.0]),
    ]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"columns": {"jpg": "pil"}}, "cannot write the column 'jpg' as 'pil'"),
        ({"columns": []}, "mapping from names to encodings"),
        ({"columns": {"label": "int"}}, "no field 'label', only cls, jpg"),
        ({"columns": {"cls": "int"}}, "which is the encoding of the column 'cls'"),
        ({"bytes": 1 << 33, "columns": {"jpg": "int"}}, "cannot write"),
    ],
)
def test_invalid_arguments(tree, tmp_path, how, says):
    with pytest.raises(Unusable, match=says):
        ps.pack(tree, tmp_path / "to", format="mds", **how)
    assert not (tmp_path / "to" / "index.json").exists()


def test_bytes_bound_a_shard_and_one_sample_may_be_larger(tree, tmp_path):
    ps.pack(tree, tmp_path / "to", format="mds", bytes=900)
    sizes = [each.stat().st_size for each in shards(tmp_path / "to")]
    assert len(sizes) > 2
    assert max(sizes) <= 900
    ps.pack(tree, tmp_path / "each", format="mds", bytes=1)
    assert len(shards(tmp_path / "each")) == 20


def test_a_shard_without_a_limit_of_bytes_is_bounded_by_memory(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MEMORY_BYTES", 900)
    assert len(ps.pack(tree, tmp_path / "to", format="mds", samples=10**6)) == 20
    assert len(shards(tmp_path / "to")) > 2


def test_an_interrupted_pack_goes_on_and_writes_the_index_last(tree, tmp_path, monkeypatch):
    whole = ps.pack(tree, tmp_path / "whole", format="mds", samples=6)
    fill_, calls = MdsWriting.fill, []

    def interrupted(self, *given):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        fill_(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(MdsWriting, "fill", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ps.pack(tree, tmp_path / "to", format="mds", samples=6)
    names = sorted(each.name for each in (tmp_path / "to").iterdir())
    assert names == [f"shard-00000{at}.mds{end}" for at in range(2) for end in ("", ".partial")]
    before = {each: each.stat().st_mtime_ns for each in shards(tmp_path / "to")}
    again = ps.pack(tree, tmp_path / "to", format="mds", samples=6)
    assert again.digest == whole.digest
    assert all(each.stat().st_mtime_ns == at for each, at in before.items())
    for name in ("index.json", *(each.name for each in shards(tmp_path / "whole"))):
        assert (tmp_path / "to" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    # What is missing from a finished pack is not made up.
    (tmp_path / "to" / "index.json").unlink()
    with pytest.raises(AlreadyExists):
        ps.pack(tree, tmp_path / "to", format="mds", samples=6)
    assert ps.pack(tree, tmp_path / "to", format="mds", samples=6, overwrite=True).digest == whole.digest
    assert (tmp_path / "to" / "index.json").exists()


def test_the_index_of_other_shards_is_not_replaced(tree, tmp_path):
    to = tmp_path / "to"
    to.mkdir()
    (to / "index.json").write_text("mine")
    with pytest.raises(AlreadyExists):
        ps.pack(tree, to, format="mds")
    assert [each.name for each in to.iterdir()] == ["index.json"]
    ps.pack(tree, to, format="mds", overwrite=True)
    assert len(ps.Catalog.from_shards(f"{to}/")) == 20
    with pytest.raises(AlreadyExists):
        ps.pack(tree, to, format="mds", columns={"jpg": "jpeg"})
    # Shards of another format take the index with them.
    ps.pack(tree, to, overwrite=True)
    assert sorted(each.name for each in to.iterdir()) == ["index.catalog", "pack.json", "shard-000000.tar"]


def test_members_are_whole_rows():
    from penstock.data.shards.tar import TarFormat
    from penstock.jobs.packing.members import DatasetMembers

    inner = DatasetMembers(ps.MapDataset.from_shards(GOLDEN / "plain"), TarFormat())
    members = MdsMembers(inner, TarFormat(), SMALL)
    found = [*members.read(17)]
    assert [each.number for each in found] == [17, 18, 19]
    assert all(len(each.members) == 1 for each in found)
    assert b"".join(found[0].members[0].pieces) == b"".join(found[0].members[0].again())
