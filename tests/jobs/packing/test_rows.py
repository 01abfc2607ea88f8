"""Packed Parquet files have the objects as rows that pyarrow and datasets read, within their limits, and as planned."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import penstock as ps
from penstock.errors import Changed, Unusable
from penstock.jobs.packing import rows as module
from penstock.jobs.packing.rows import columns_of
from tests.amounts import examples
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
