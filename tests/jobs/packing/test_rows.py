"""Packed Parquet files have the objects as rows that pyarrow and datasets read, within their limits, and as planned."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import penstock as ps
from penstock.errors import AlreadyExists, Changed, Unusable
from penstock.jobs.packing import rows as module
from penstock.jobs.packing.rows import MdsMembers, MdsWriting, columns_of
from tests.amounts import examples
from tests.data.shards.mosaic import COLUMNS, GOLDEN, SMALL, small
from tests.jobs.packed import contents, fill, members, shards


@pytest.fixture
def tree(tmp_path):
    return fill(tmp_path / "tree")


def put(folder, files):
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def table(folder):
    return [row for each in shards(folder) for row in parquet.read_table(each).to_pylist()]


def test_rows_are_the_objects_and_both_indexes_find_them(tree, tmp_path):
    catalog = ps.pack(tree, tmp_path / "to", format="parquet", samples=6)
    assert [each.name for each in shards(tmp_path / "to")] == [f"shard-{number:06}.parquet" for number in range(4)]
    assert [pair for each in shards(tmp_path / "to") for pair in members(each)] == contents(tree)
    for same in (ps.Catalog.from_shards(f"{tmp_path}/to/"), ps.Catalog.open(tmp_path / "to" / "index.catalog")):
        assert [*same] == [*catalog]
        assert (same.digest, same.format, same.base) == (catalog.digest, catalog.format, catalog.base)
    samples = [*ps.MapDataset(catalog)]
    assert samples[1].fields == ("__key__", "cls", "image")
    assert (samples[1]["__key__"], samples[1]["image"].read()) == ("c0/003", (tree / "c0/003.jpg").read_bytes())


def test_datasets_of_hugging_face_finds_images_by_the_metadata(tree, tmp_path):
    ps.pack(tree, tmp_path / "to", format="parquet")
    schema = parquet.read_schema(shards(tmp_path / "to")[0])
    assert json.loads(schema.metadata[b"huggingface"])["info"]["features"] == {
        "__key__": {"dtype": "string", "_type": "Value"},
        "cls": {"dtype": "binary", "_type": "Value"},
        "image": {"_type": "Image"},
    }
    assert str(schema.field("image").type) == "struct<bytes: binary, path: string>"


def test_the_same_source_gives_the_same_bytes(tree, tmp_path):
    other = fill(tmp_path / "other")
    one, two = (ps.pack(each, tmp_path / f"to-{each.name}", format="parquet", samples=7) for each in (tree, other))
    assert one.digest == two.digest
    pairs = zip(shards(tmp_path / "to-tree"), shards(tmp_path / "to-other"), strict=True)
    assert all(first.read_bytes() == second.read_bytes() for first, second in pairs)


def test_images_of_any_suffix_lie_in_one_column_unless_a_sample_has_several(tmp_path):
    files = {"a.jpg": b"1", "b.PNG": b"2", "b.json": b"{}", "c.json": b"[]"}
    ps.pack(put(tmp_path / "one", files), tmp_path / "to", format="parquet")
    assert table(tmp_path / "to") == [
        {"__key__": "a", "image": {"bytes": b"1", "path": "a.jpg"}, "json": None},
        {"__key__": "b", "image": {"bytes": b"2", "path": "b.PNG"}, "json": b"{}"},
        {"__key__": "c", "image": None, "json": b"[]"},
    ]
    assert [sample["image"] and sample["image"].read() for sample in ps.MapDataset.from_shards(tmp_path / "to")] == [
        b"1",
        b"2",
        None,
    ]
    ps.pack(put(tmp_path / "one", {"b.mask.png": b"3"}), tmp_path / "several", format="parquet")
    several = table(tmp_path / "several")
    assert [[*row] for row in several] == [["__key__", "jpg", "png", "json", "mask.png"]] * 3
    second = several[1]
    assert (second["png"]["bytes"], second["mask.png"]["path"], second["jpg"]) == (b"2", "b.mask.png", None)


def test_rows_go_through_other_formats_with_their_keys(tree, tmp_path):
    first = ps.pack(tree, tmp_path / "rows", format="parquet", samples=6)
    archive = ps.pack(ps.MapDataset(first), tmp_path / "tar", samples=9)
    assert ps.MapDataset(archive)[1].key == "c0/003"
    again = ps.pack(ps.MapDataset(archive), tmp_path / "again", format="parquet", samples=6)
    assert [*map(bytes, _images(again))] == [*map(bytes, _images(first))]
    twice = ps.pack(ps.MapDataset(first), tmp_path / "twice", format="parquet", samples=6)
    keys = [each["__key__"] for each in table(tmp_path / "rows")]
    assert [sample["__key__"] for sample in ps.MapDataset(twice)] == keys
    assert twice.format == first.format


def _images(catalog):
    return [sample["image"].data for sample in ps.MapDataset(catalog)]


def test_labels_and_columns_go_into_the_catalog(tree, tmp_path):
    catalog = ps.Catalog.scan(f"{tree}/", labels="folder", include="**/*.jpg")
    packed = ps.pack(catalog, tmp_path / "to", format="parquet")
    assert (packed.classes, packed.labels.tolist()) == (catalog.classes, catalog.labels.tolist())


SAMPLES = st.lists(
    st.dictionaries(st.sampled_from(["jpg", "png", "json", "bin", "seg.png"]), st.integers(0, 3000), min_size=1),
    min_size=1,
    max_size=40,
)


@settings(max_examples=examples(25), deadline=None)
@given(SAMPLES, st.integers(3000, 40_000), st.integers(1, 1 << 20), st.integers(0, 1 << 30))
def test_any_objects_are_rows_and_bytes_bound_each_shard(tmp_path_factory, samples, most, group, seed):
    folder, draw = tmp_path_factory.mktemp("any"), random.Random(seed)
    names = {f"{number:03}.{end}": size for number, each in enumerate(samples) for end, size in each.items()}
    put(folder / "tree", {name: draw.randbytes(size) for name, size in names.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_GROUP_BYTES", group)
        catalog = ps.pack(folder / "tree", folder / "to", format="parquet", bytes=most)
    assert len(catalog) == len(samples)
    found = {}
    for shard in shards(folder / "to"):
        assert shard.stat().st_size <= most or parquet.read_metadata(shard).num_rows == 1
        found |= dict(members(shard))
    assert found == {name: (folder / "tree" / name).read_bytes() for name in names}
    delivered = [*ps.MapDataset(catalog)]
    assert sum(each.size for each in delivered) == sum(names.values())


def test_a_row_group_has_about_eight_mebibytes(tmp_path):
    put(tmp_path / "tree", {f"{number:02}.bin": bytes(1 << 20) for number in range(20)})
    ps.pack(tmp_path / "tree", tmp_path / "to", format="parquet")
    meta = parquet.read_metadata(shards(tmp_path / "to")[0])
    assert [meta.row_group(number).num_rows for number in range(meta.num_row_groups)] == [8, 8, 4]


def test_fields_that_cannot_be_columns_are_refused(tmp_path):
    with pytest.raises(Unusable, match=r"more than 1000 fields \('0', '1', '2', …\)"):
        columns_of(map(str, range(1001)), 0)
    put(tmp_path / "tree", {"a.__key__": b"x"})
    with pytest.raises(Unusable, match="name of the column of keys"):
        ps.pack(tmp_path / "tree", tmp_path / "to", format="parquet")
    assert shards(tmp_path / "to") == []


def test_samples_of_a_dataset_that_differ_from_the_first_are_refused_by_name(tmp_path):
    put(tmp_path / "tree", {"a.jpg": b"1", "b.jpg": b"2", "b.txt": b"x", "c.jpg": b"3", "c.png": b"4"})
    ps.pack(tmp_path / "tree", tmp_path / "tar")
    with pytest.raises(Unusable, match="'b' has the field 'txt', which the first sample lacks"):
        ps.pack(ps.MapDataset.from_shards(tmp_path / "tar"), tmp_path / "to", format="parquet")
    two = ps.Catalog.from_shards(f"{tmp_path}/tar/")[[0, 2]]
    with pytest.raises(Unusable, match="'c' has two images, 'png'"):
        ps.pack(two, tmp_path / "to", format="parquet")


def test_value_that_is_too_large_is_refused_by_name(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_VALUE", 50)
    with pytest.raises(Unusable, match=r"'c\d/\d+\.(jpg|cls)' has \d+ bytes, and a value in a Parquet file at most 50"):
        ps.pack(tree, tmp_path / "to", format="parquet")
    assert shards(tmp_path / "to") == []


def test_interrupted_pack_of_a_dataset_goes_on_with_the_columns_of_the_first_sample(tree, tmp_path, monkeypatch):
    ps.pack(tree, tmp_path / "tar")
    dataset = ps.MapDataset.from_shards(tmp_path / "tar")
    add, calls = module.RowWriting._add, []

    def interrupted(self, *given):
        calls.append(given)
        if len(calls) == 15:
            raise KeyboardInterrupt
        add(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(module.RowWriting, "_add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ps.pack(dataset, tmp_path / "to", format="parquet", samples=6)
    names = sorted(each.name for each in (tmp_path / "to").iterdir())
    assert names == [f"shard-00000{at}.parquet{end}" for at in range(2) for end in ("", ".partial")]
    kept = shards(tmp_path / "to")[0].stat().st_mtime_ns
    assert len(ps.pack(dataset, tmp_path / "to", format="parquet", samples=6)) == 20
    assert shards(tmp_path / "to")[0].stat().st_mtime_ns == kept
    whole = ps.pack(dataset, tmp_path / "whole", format="parquet", samples=6)
    assert [each.read_bytes() for each in shards(tmp_path / "whole")] == [
        each.read_bytes() for each in shards(tmp_path / "to")
    ]
    assert len(whole) == 20


def test_member_of_another_length_than_listed_is_a_change(tmp_path, monkeypatch):
    put(tmp_path / "tree", {"a.bin": b"123"})
    whole = module._data
    monkeypatch.setattr(module, "_data", lambda member: whole(member._replace(pieces=iter([b"12"]))))
    with pytest.raises(Changed, match=r"'a\.bin' was replaced"):
        ps.pack(tmp_path / "tree", tmp_path / "to", format="parquet")
    assert shards(tmp_path / "to") == []


# MDS that was packed has the bytes of MDSWriter, is read back, goes on after a failure, and replaces nothing else.


SAFE = sorted(COLUMNS.keys() - {"pkl", "pil", "list_pil"})


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
    with pytest.raises(Unusable, match=r"'list_pil' is a list, which MDS cannot encode"):
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
