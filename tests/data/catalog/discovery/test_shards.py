"""Shards are found by prefix, glob, braces and list; their samples become a catalog, and errors name the shard."""

import pickle

import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from penstock.data.catalog.discovery.shards import expand_braces
from penstock.errors import Changed, ConfigError, Damaged, InvalidURL, NotFound, Unsupported, Unusable
from tests.data.shards.archives import tar
from tests.refusals import refused


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        pairs = [(at, end) for at in range(5) for end in ("jpg", "cls")]
        members = [(f"c{at % 2}/{number}{at:03}.{end}", f"{end}{at}".encode()) for at, end in pairs]
        (tmp_path / f"train-{number:02}.tar").write_bytes(tar(members))
    (tmp_path / "index.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    "urls",
    [
        lambda folder: f"{folder}/",
        lambda folder: f"{folder}/train-*.tar",
        lambda folder: f"{folder}/train-{{00..02}}.tar",
        lambda folder: [folder / f"train-{number:02}.tar" for number in range(3)],
        lambda folder: [f"{folder}/train-{{00..01}}.tar", f"{folder}/train-02.tar"],
    ],
    ids=["prefix", "glob", "braces", "list", "list-of-braces"],
)
def test_shards_may_be_named_in_several_ways(folder, urls):
    catalog = ps.Catalog.from_shards(urls(folder))
    assert repr(catalog) == f"<Catalog of 15 samples in 3 tar shards under file://{folder}/>"
    assert [sample.key for sample in ps.MapDataset(catalog)] == [
        f"c{at % 2}/{number}{at:03}" for number in range(3) for at in range(5)
    ]


def test_glob_with_a_format_takes_any_name(folder):
    (folder / "train-02.tar").rename(folder / "train-00002-of-00003")
    assert len(ps.Catalog.from_shards(f"{folder}/train-*", format="tar")) == 15
    assert len(ps.Catalog.from_shards(f"{folder}/train-*")) == 10
    assert len(ps.Catalog.from_shards(folder, format="tar")) == 10
    assert len(ps.Catalog.from_shards(folder / "train-00002-of-00003", format="tar")) == 5


def test_single_shard_and_order_of_a_list(folder):
    assert len(ps.Catalog.from_shards(folder / "train-01.tar")) == 5
    reverse = ps.Catalog.from_shards([folder / "train-02.tar", folder / "train-00.tar"])
    assert [entry.key[-6:] for entry in reverse[[0, 5]]] == ["02.tar", "00.tar"]


@pytest.mark.parametrize(
    ("urls", "error", "says"),
    [
        ("{}/none/", NotFound, "no objects there"),
        ("{}*.tar", NotFound, r"in a glob, \* stays in one folder"),
        ("{}/test-*.tar", NotFound, r"no objects there: (?!.*literal).*/test-\]"),
        (
            "{}/index*",
            NotFound,
            "none of the 1 objects is a shard .*; for shards of other names, pass a glob",
        ),
        ("pipe:aws s3 cp s3://bucket/train-{{00..02}}.tar -", InvalidURL, "pass the URL that it copies"),
        ("{}/tokens.bin", NotFound, "ps.TokenDataset.from_shards reads files of tokens"),
        ("{}/labels.csv", NotFound, "a table that lists objects is a manifest, ps.MapDataset.from_manifest"),
        ("{}/clips/", NotFound, r"found no shard: ps\.VideoDataset\.from_shards makes clips of videos.*clips/b\.mp4"),
        ("{}/clips/b.mp4", NotFound, r"found no shard: ps\.VideoDataset\.from_shards makes clips of videos"),
        ("{}/train-{{00..03}}.tar", NotFound, "train-03.tar"),
        ("{}/train-{{00..}}.tar", InvalidURL, "neither numbers"),
        ("{}/train-{{00..02.tar", InvalidURL, "not in pairs"),
        ("{}/train-{{5..1}}.tar", InvalidURL, "count upwards"),
        ("{}/train-{{0..99999999}}.tar", InvalidURL, "count upwards"),
        ("{}/{{a,b}}{{0..999999}}.tar", InvalidURL, "more than 1048576 shards"),
    ],
)
def test_urls_that_name_no_shards_are_refused(folder, urls, error, says):
    (folder / "tokens.bin").write_bytes(bytes(8))
    (folder / "labels.csv").write_bytes(b"key,label\na.png,3\n")
    (folder / "clips").mkdir(exist_ok=True)
    for name in ("a.txt", "b.mp4"):
        (folder / "clips" / name).write_bytes(b"no shard")
    refused(error, says, ps.Catalog.from_shards, urls.format(folder))


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"fields": ("jpg", "txt"), "missing": "drop"}, NotFound, r"in 3 shards with fields=\('jpg', 'txt'\)"),
        ({"skip": "**"}, NotFound, r"with fields=\(\), .*skip="),
        ({"key": lambda _: None}, NotFound, "and key=<function"),
        ({"key": lambda name: name}, Unusable, r"key= must return \(key, field\), two str.*'c0/0000\.jpg'.*train-00"),
        ({"key": lambda name: {}[name]}, Unusable, r"function key= fails for 'c0/0000\.jpg': KeyError"),
        ({"skip": 5}, ConfigError, "skip must be a str"),
        ({"index": 5}, Unusable, "index must be 'energon'"),
        ({"labels": r"(z)"}, Unusable, r"exclude=\['.*train-00\.tar/c0/0000'\]; members of shards with skip="),
    ],
)
def test_arguments_that_leave_no_sample_or_fail_are_refused(folder, arguments, error, says):
    refused(error, says, ps.Catalog.from_shards, folder, **arguments)


def test_shards_without_any_sample_are_refused(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar([]))
    refused(NotFound, "no sample was found in 1 shard", ps.Catalog.from_shards, tmp_path)
    assert len(ps.MapDataset.from_shards(tmp_path, allow_empty=True)) == 0
    refused(NotFound, "no sample was found in 1 shard", ps.index, tmp_path, tmp_path / "saved.catalog", format="tar")


def test_lists_that_cannot_be_meant_are_refused(folder):
    for url in (f"{folder}/train-*.tar", f"{folder}/train-00.tar::{folder}/train-01.tar", f"{folder}/"):
        refused((NotFound, InvalidURL), "names shards one by one", ps.Catalog.from_shards, [url])
    refused(NotFound, "list of shards is empty", ps.Catalog.from_shards, [])
    refused(InvalidURL, "named twice", ps.Catalog.from_shards, [folder / "train-00.tar"] * 2)
    with pytest.raises(InvalidURL, match=r"ps\.concat"):
        ps.Catalog.from_shards([folder / "train-00.tar", "memory://bucket/train-00.tar"])
    refused(Unusable, "format must be", ps.Catalog.from_shards, folder, format="targz")


@pytest.mark.parametrize("kind", [set, frozenset])
def test_urls_without_an_order_are_refused_since_ranks_would_differ(folder, kind):
    urls = kind(f"{folder}/train-{number:02}.tar" for number in range(3))
    refused(Unusable, r"another order in each process.*sorted", ps.Catalog.from_shards, urls)
    with pytest.raises(Unusable, match=r"another order in each process.*sorted"):
        ps.TokenDataset.from_shards(urls, length=4, dtype="uint16")
    assert len(ps.Catalog.from_shards(sorted(urls))) == 15


def test_braces_count_and_list():
    assert expand_braces("a{08..11}b{x,y}") == [f"a{at}b{end}" for at in ("08", "09", "10", "11") for end in "xy"]
    assert expand_braces("{8..10}") == ["8", "9", "10"]
    assert expand_braces("{0..2}") == ["0", "1", "2"]
    # As in a shell.
    assert expand_braces("{8..010}") == ["008", "009", "010"]
    assert [expand_braces("{00..100}")[at] for at in (0, 9, 10, 100)] == ["000", "009", "010", "100"]
    assert expand_braces("plain") == ["plain"]


@pytest.mark.parametrize(
    "log", ["_delta_log/00000000000000000000.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json"]
)
@pytest.mark.parametrize("below", ["", "tables/rows/"])
def test_a_table_whose_log_says_which_files_count_is_refused(tmp_path, log, below):
    for name, rows in (("old.parquet", [1]), ("new.parquet", [2])):
        path = tmp_path / below / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pa.parquet.write_table(pa.table({"x": rows}), path)
    place = tmp_path / below / log
    place.parent.mkdir()
    place.write_bytes(b"{}")
    with pytest.raises(Unusable, match=r"log of a table.*pass the URLs of those that count") as caught:
        ps.Catalog.from_shards(f"{tmp_path}/")
    assert caught.value.url.endswith(log)
    assert len(ps.Catalog.from_shards([tmp_path / below / "new.parquet"])) == 1
    assert len(ps.Catalog.from_shards(f"{tmp_path}/**/*.parquet")) == 2


def test_labels_are_a_rule_over_shard_and_key(folder):
    assert ps.Catalog.from_shards(folder, labels="folder").classes == ("c0", "c1")
    catalog = ps.Catalog.from_shards(folder, labels=r"train-(\d+)\.tar/")
    assert catalog.classes == ("00", "01", "02")
    assert catalog.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5


def test_catalog_is_saved_opened_sliced_and_pickled_with_its_format(folder):
    catalog = ps.Catalog.from_shards(folder, fields=("cls",), labels="folder")
    catalog.save(folder / "saved.catalog")
    opened = ps.Catalog.open(folder / "saved.catalog")
    assert (opened.digest, opened.format, opened.classes) == (catalog.digest, catalog.format, catalog.classes)
    for each in (opened, pickle.loads(pickle.dumps(catalog)), catalog[::-1][::-1], catalog[:7] + catalog[7:]):
        assert [sample["cls"].read() for sample in ps.MapDataset(each)] == [f"cls{at}".encode() for at in range(5)] * 3
        assert [each[at].label for at in (0, 1)] == [0, 1]
    part, rest = opened.split(0.5, seed=1)
    assert len(part) + len(rest) == 15


def test_samples_of_shards_are_not_grouped_again(folder):
    refused(Unusable, "have fields by key=", ps.Catalog.from_shards(folder).with_groups, "stem")


def test_split_draws_samples_and_not_shards(tmp_path):
    members = [(f"{at}.txt", b"t") for at in range(400)]
    (tmp_path / "a.tar").write_bytes(tar(members[:200]))
    before, _ = ps.Catalog.from_shards(f"{tmp_path}/").split(0.8, seed=3)
    assert 130 < len(before) < 190
    (tmp_path / "b.tar").write_bytes(tar(members[200:]))
    after, _ = ps.Catalog.from_shards(f"{tmp_path}/").split(0.8, seed=3)
    assert after[: len(before)].digest == before.digest


def test_catalogs_of_different_formats_are_not_added(folder):
    with pytest.raises(Unusable, match=r"ps\.concat"):
        ps.Catalog.from_shards(folder) + ps.Catalog.from_shards(folder, fields="cls")


def test_damaged_shard_is_named(folder):
    (folder / "train-01.tar").write_bytes(b"x" * 4096)
    refused(Damaged, r"no tar header is at byte 0.*train-01\.tar", ps.Catalog.from_shards, folder)


def test_compressed_shard_below_a_prefix_is_not_left_out_in_silence(folder):
    (folder / "train-03.tar.gz").write_bytes(b"")
    refused(Unusable, "train-03", ps.Catalog.from_shards, folder)
    refused(Unsupported, "train-03", ps.Catalog.from_shards, folder, format="tar")


def test_empty_shards_have_no_samples(folder):
    (folder / "train-00.tar").write_bytes(bytes(1024))
    (folder / "train-01.tar").write_bytes(tar([]))
    (folder / "train-02.tar").write_bytes(tar([("a.jpg", b"x")]))
    catalog = ps.Catalog.from_shards(folder)
    assert len(catalog) == 1
    catalog.save(folder / "catalog")
    assert [*ps.Catalog.open(folder / "catalog")] == [*catalog]


def test_same_key_in_two_shards_is_two_samples_and_in_one_packed_shard_an_error(tmp_path):
    for number, field in enumerate(("jpg", "cls")):
        (tmp_path / f"{number}.tar").write_bytes(tar([(f"a.{field}", b"x")]))
    dataset = ps.MapDataset.from_shards(tmp_path)
    assert [(sample.key, sample.fields) for sample in dataset] == [("a", ("jpg",)), ("a", ("cls",))]
    refused(Unusable, "two samples of one shard have the key 'a'", ps.pack, dataset, tmp_path / "to")


def test_shard_that_is_replaced_after_the_index_is_a_change(folder):
    dataset = ps.MapDataset.from_shards(folder)
    (folder / "train-01.tar").write_bytes(tar([("x.jpg", b"other")] * 1))
    with pytest.raises(Changed):
        dataset[7]
    with pytest.raises(Changed):
        list(ps.DataLoader(dataset, 4, shuffle=ps.order.Lanes()))


def test_many_shards_are_walked_at_once_and_in_order(tmp_path):
    for number in range(100):
        (tmp_path / f"{number:03}.tar").write_bytes(tar([(f"{number}.txt", b"t")] if number % 3 else []))
    catalog = ps.Catalog.from_shards(tmp_path)
    assert [int(sample.key) for sample in ps.MapDataset(catalog)] == [number for number in range(100) if number % 3]
