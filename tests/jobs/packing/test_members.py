"""Objects with one key form one sample; samples of datasets are packed as their fields; names are checked before."""

import json
import os

import numpy as np
import pytest

import penstock as ps
from penstock.errors import NotFound, Unusable
from penstock.jobs.packing.members import encode_field, is_image
from tests.jobs.packed import KINDS, contents, fill, members, shards


@pytest.fixture
def tree(tmp_path):
    return fill(tmp_path / "tree")


def test_any_names_that_can_be_members_and_sizes(tmp_path):
    names = ["é.txt", "雪/x.jpg", "d" * 200 + "/" + "e" * 200 + ".bin", "a.b/c.txt", "a.ab", "a.cd", "a-1.txt"]
    for number, name in enumerate(names):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(b"" if number % 3 == 0 else os.urandom(number * 1000))
    for kind in KINDS:
        packed = ps.pack(tmp_path / "tree", tmp_path / kind, format=kind)
        assert dict(members(shards(tmp_path / kind)[0])) == dict(contents(tmp_path / "tree"))
        assert {each.key: each.fields for each in ps.MapDataset(packed)}["a"] == ("ab", "cd")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["README"], "no key and field"),
        (["__x__/a.jpg"], "leave it out"),
        (["a.jpg", "a.JPG"], "same field of the same sample"),
    ],
)
def test_names_that_would_not_be_read_again_are_refused_before_a_shard_is_written(tmp_path, names, says):
    for name in names:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(b"x")
    with pytest.raises(Unusable, match=says):
        ps.pack(tmp_path / "tree", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_other_keys(tmp_path):
    for name in ("v1.0.jpg", "v1.0.txt", "v1.1.jpg"):
        (tmp_path / "tree").mkdir(exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(name.encode())
    packed = ps.pack(tmp_path / "tree", tmp_path / "last", key="last-dot")
    assert [(each.key, each.fields) for each in ps.MapDataset(packed)] == [("v1.0", ("jpg", "txt")), ("v1.1", ("jpg",))]
    with pytest.raises(Unusable, match="function"):
        ps.pack(tmp_path / "tree", tmp_path / "function", key=lambda name: (name, "x"))
    packed = ps.pack(tmp_path / "tree", tmp_path / "regex", key=r"(?P<key>v\d)\.(?P<field>.*)")
    assert [each.fields for each in ps.MapDataset(packed)] == [("0.jpg", "0.txt", "1.jpg")]


def test_prefix_of_shards_is_packed_by_its_samples_or_as_files_that_are_asked_for(tree, tmp_path):
    ps.pack(tree, tmp_path / "first")
    with pytest.raises(Unusable, match=r"ps\.MapDataset\.from_shards"):
        ps.pack(tmp_path / "first", tmp_path / "second")
    packed = ps.pack(tmp_path / "first", tmp_path / "second", include="**/*.tar")
    assert packed.format.name == "tar"
    assert ps.MapDataset(packed)[0].fields == ("tar",)


def test_sources_that_cannot_be_packed(tree, tmp_path):
    for given in ({"url": tmp_path / "none"}, {"url": tree, "exclude": "**"}):
        with pytest.raises(NotFound, match="no objects there") as caught:
            ps.pack(given.pop("url"), tmp_path / "x", **given)
        assert "allow_empty" not in str(caught.value)
    with pytest.raises(Unusable, match="got a list"):
        ps.pack([str(tree)], tmp_path / "to")
    with pytest.raises(Unusable, match="one by one"):
        ps.pack(ps.concat(*[ps.MapDataset.from_prefix(f"{tree}/")] * 2), tmp_path / "to")
    with pytest.raises(NotFound):
        ps.pack(tmp_path / "none", tmp_path / "to")
    with pytest.raises(NotFound, match="nothing to pack"):
        ps.pack(ps.Catalog.scan(tree)[:0], tmp_path / "to")
    with pytest.raises(Unusable, match=r"Catalog\.filter"):
        ps.pack(ps.Catalog.scan(tree), tmp_path / "to", include="*.jpg")
    for to in (tree, tree / "to"):
        with pytest.raises(Unusable, match="in the prefix that is read"):
            ps.pack(tree, to)


def test_samples_of_shards_are_packed_again(tree, tmp_path):
    packed = ps.pack(tree, tmp_path / "to", samples=7)
    chosen = packed[::2]
    for source in (ps.MapDataset(chosen), chosen, ps.IterableDataset(chosen), ps.MapDataset(packed)):
        to = tmp_path / f"again-{len([*tmp_path.iterdir()])}"
        again = ps.pack(source, to, bytes=10_000)
        wanted = [(each.key, each["jpg"].read()) for each in ps.MapDataset(chosen if len(again) == 10 else packed)]
        assert [(each.key, each["jpg"].read()) for each in ps.MapDataset(again)] == wanted
        assert ps.Catalog.from_shards(f"{to}/").digest == again.digest


def test_fields_that_are_not_bytes_become_text_or_json(tree, tmp_path):
    class Values(ps.MapDataset):
        def __init__(self, catalog, value, **options):
            super().__init__(catalog, **options)
            self.value = value

        def __getitem__(self, index):
            sample = super().__getitem__(index)
            sample._values["value"] = self.value
            return sample

    packed = ps.pack(tree, tmp_path / "to")
    for number, (value, data) in enumerate(
        [
            ("é", "é".encode()),
            (5, b"5"),
            (None, None),
            ({"a": [1.5]}, b'{"a": [1.5]}'),
            (np.float64(0.5), b"0.5"),
            (np.array([1, 2]), b"[1, 2]"),
        ]
    ):
        again = ps.pack(Values(packed[:3], value), tmp_path / f"{number}")
        sample = ps.MapDataset(again)[0]
        assert sample.fields == (("cls", "jpg", "value") if data is not None else ("cls", "jpg"))
        assert data is None or sample["value"].read() == data
    with pytest.raises(Unusable, match="neither bytes nor text nor JSON"):
        ps.pack(Values(packed[:3], {1, 2}), tmp_path / "no")


def test_transformed_samples_are_packed_if_they_are_samples(tree, tmp_path):
    with pytest.raises(Unusable, match="got a bytes"):
        ps.pack(ps.MapDataset.from_prefix(f"{tree}/", transform=lambda sample: sample.read()), tmp_path / "to")
    assert not shards(tmp_path / "to") if (tmp_path / "to").exists() else True
    same = ps.MapDataset.from_prefix(f"{tree}/", include="**/*.jpg", transform=lambda sample: sample)
    ps.pack(same, tmp_path / "same")
    assert members(shards(tmp_path / "same")[0]) == [each for each in contents(tree) if each[0].endswith("jpg")]


def test_samples_of_a_single_field_get_numbers_as_names(tree, tmp_path):
    packed = ps.pack(tree, tmp_path / "to")
    ps.pack(ps.MapDataset.from_shards(f"{tmp_path}/to/", fields="cls"), tmp_path / "cls")
    assert [name for name, _ in members(shards(tmp_path / "cls")[0])][:2] == ["000000000.cls", "000000001.cls"]
    assert len(packed) == 20


def test_labels_of_a_manifest_are_kept(tree, tmp_path):
    entries = [each._replace(label={"box": [number, 1]}) for number, each in enumerate(ps.Catalog.scan(f"{tree}/"))]
    catalog = ps.Catalog.build("file:///", f"{tree}/"[1:], entries)
    ps.pack(catalog.filter(include="**/*.jpg"), tmp_path / "to")
    assert ps.MapDataset.from_catalog(tmp_path / "to" / "index.catalog")[1].label == {"box": [3, 1]}


def test_order_is_that_of_the_catalog_and_samples_stay_together(tree, tmp_path):
    catalog = ps.Catalog.scan(f"{tree}/")
    order = np.random.default_rng(0).permutation(len(catalog))
    packed = ps.pack(catalog[order], tmp_path / "to")
    keys = [catalog[int(row)].key.removeprefix(catalog.base).partition(".")[0] for row in order]
    assert [each.key for each in ps.MapDataset(packed)] == [*dict.fromkeys(keys)]


def test_labels_and_columns_are_those_of_the_source(tree, tmp_path):
    catalog = ps.Catalog.scan(f"{tree}/", labels="folder")
    catalog = catalog.with_columns(number=[int(each.key[-7:-4]) for each in catalog], split=["a", "b"] * 20)
    with pytest.raises(Unusable, match="other columns"):
        ps.pack(catalog, tmp_path / "to")
    catalog = catalog.with_columns(split=["a" if each.key[-5] < "5" else "b" for each in catalog])
    packed = ps.pack(catalog[::-1], tmp_path / "to", samples=3)
    opened = ps.Catalog.open(tmp_path / "to" / "index.catalog")
    for each in (packed, opened):
        assert each.classes == ("c0", "c1", "c2")
        assert each.columns["number"].tolist()[:3] == [17, 14, 11]
        assert each.labels.tolist() == sorted([0, 1, 2] * 7, reverse=True)[:20] or len(each.labels) == 20
    sample = ps.MapDataset(opened)[0]
    assert (sample.key, sample.label, sample.columns) == ("c2/017", 2, {"number": 17, "split": "b"})


def test_missing_numbers_of_a_sample_are_the_same_for_all_its_objects(tree, tmp_path):
    catalog = ps.Catalog.scan(f"{tree}/")
    scores = np.repeat([np.nan, 1.0], [2, len(catalog) - 2])
    packed = ps.pack(catalog.with_columns(score=scores), tmp_path / "to")
    np.testing.assert_array_equal(packed.columns["score"], scores[::2])
    scores[1] = 1.0
    with pytest.raises(Unusable, match="other columns"):
        ps.pack(catalog.with_columns(score=scores), tmp_path / "other")


def test_rows_of_parquet_are_packed_with_their_columns(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "rows").mkdir()
    images = [{"bytes": b"image %d" % number, "path": None} for number in range(50)]
    table = arrow.table({"image": images, "label": range(50), "box": [[1.5, number] for number in range(50)]})
    parquet.write_table(table, tmp_path / "rows" / "0.parquet", row_group_size=20)
    packed = ps.pack(ps.Catalog.from_shards(f"{tmp_path}/rows/"), tmp_path / "to", samples=30)
    assert [len(members(each)) for each in shards(tmp_path / "to")] == [90, 60]
    sample = ps.MapDataset(packed)[31]
    assert (sample.key, sample["image"].read()) == ("000000031", b"image 31")
    assert (sample["label"].read(), sample["box"].read()) == (b"31", b"[1.5, 31.0]")


def test_names_of_images():
    assert [each for each in ("jpg", "JPEG", "seg.png", "image", "images", "cls", "png.txt") if is_image(each)] == [
        "jpg",
        "JPEG",
        "seg.png",
        "image",
    ]


def test_text_with_half_of_a_pair_of_surrogates_is_refused_with_its_sample(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "whole"}\n{"text": "half \\ud834"}\n')
    dataset = ps.MapDataset.from_shards(tmp_path / "a.jsonl", fields=("text",))
    for form in ("tar", "parquet"):
        with pytest.raises(Unusable, match=r"the field 'text' is not valid text.*/a\.jsonl#bytes=18-"):
            ps.pack(dataset, tmp_path / form, format=form)


def test_half_of_a_pair_of_surrogates_within_json_is_kept():
    assert json.loads(encode_field(value := {"a": ["\ud834", "é"]}, "json", "")) == value
