"""Four constructors of a dataset: their signatures, what they check first, and what each says when it cannot."""

from __future__ import annotations

import inspect
import json
import pickle
import resource
import shutil
from itertools import islice
from multiprocessing.reduction import ForkingPickler

import pytest

import penstock as ps
from penstock.errors import Changed, InvalidURL, ManifestError, NotFound, StateMismatch, UnknownScheme, Unusable
from penstock.testing.servers import Scripted, reply
from tests.children import forked
from tests.data.datasets.transforms import explode, key_and_bytes, number, numbered


@pytest.fixture
def folder(tmp_path):
    return numbered(tmp_path / "data", 20)


def _grow(folder):
    """Write objects that a new listing would find, before and after those that are there."""
    for name in ("000a", "011a", "020"):
        with open(folder + name, "wb") as file:
            file.write(b"99")


@pytest.mark.parametrize("kind", [ps.MapDataset, ps.IterableDataset])
class TestBoth:
    def test_a_prefix(self, kind, folder):
        dataset = kind.from_prefix(folder, transform=number)
        assert list(dataset) == list(range(20))
        assert (dataset.catalog[3].key.rpartition("/")[2], dataset.catalog[3].size) == ("003", 1)

    def test_globs_choose(self, kind, folder):
        assert list(kind.from_prefix(folder, include="01*", exclude=["*5", "*6"], transform=number)) == [
            10, 11, 12, 13, 14, 17, 18, 19,
        ]  # fmt: skip

    def test_objects_by_url_in_the_order_given(self, kind, folder):
        urls = [f"{folder}{name}" for name in ("007", "003", "003")]
        dataset = kind.from_objects(urls, transform=number)
        assert list(dataset) == [7, 3, 3]
        assert dataset.catalog[0].size == -1

    def test_a_manifest_beside_the_data(self, kind, folder):
        with open(f"{folder}list.txt", "w") as file:
            file.write("004 four\n002 two\n")
        dataset = kind.from_manifest(f"{folder}list.txt")
        assert [(sample.label, sample.read()) for sample in dataset] == [("four", b"4"), ("two", b"2")]

    def test_a_manifest_elsewhere_and_a_parser_of_ones_own(self, kind, folder, tmp_path):
        (tmp_path / "mine").write_bytes(b"001=one;012=twelve")

        def parser(reader):
            for item in reader.read().decode().split(";"):
                yield tuple(item.split("="))

        dataset = kind.from_manifest(tmp_path / "mine", parser=parser, base=folder)
        assert [(sample.label, sample.read()) for sample in dataset] == [("one", b"1"), ("twelve", b"12")]

    def test_a_catalog_is_listed_once_and_used_twice(self, kind, folder):
        catalog = ps.MapDataset.from_prefix(folder).catalog
        assert list(kind.from_catalog(catalog, transform=number)) == list(range(20))

    def test_saved_catalog_excludes_objects_added_later(self, kind, folder, tmp_path):
        ps.Catalog.scan(folder, include="01*").save(tmp_path / "train.catalog")
        _grow(folder)
        assert list(kind.from_catalog(tmp_path / "train.catalog", transform=number)) == list(range(10, 20))
        assert list(kind.from_catalog(f"{tmp_path}/train.catalog", transform=number)) == list(range(10, 20))

    def test_non_catalog_file_raises_manifest_error_with_its_url(self, kind, folder):
        with pytest.raises(ManifestError, match="not a catalog") as caught:
            kind.from_catalog(f"{folder}003")
        assert caught.value.url == f"file://{folder}003"
        with pytest.raises(NotFound):
            kind.from_catalog(f"{folder}none")

    def test_a_base_is_a_folder_however_it_is_written(self, kind, folder, tmp_path):
        (tmp_path / "list.jsonl").write_text('{"key": "001", "size": 1}')
        catalogs = [
            kind.from_manifest(tmp_path / "list.jsonl", base=base).catalog
            for base in (folder, folder.removesuffix("/"))
        ]
        assert catalogs[0].digest == catalogs[1].digest == ps.Catalog.scan(folder, include="001").digest

    def test_empty_listing_raises_unless_allow_empty_is_set(self, kind, tmp_path):
        with pytest.raises(NotFound, match="allow_empty") as caught:
            kind.from_prefix(f"{tmp_path}/none/")
        assert caught.value.url.endswith("/none/")
        with pytest.raises(NotFound, match="allow_empty"):
            kind.from_objects([])
        (tmp_path / "empty.txt").touch()
        with pytest.raises(NotFound, match="allow_empty"):
            kind.from_manifest(tmp_path / "empty.txt")
        assert list(kind.from_prefix(f"{tmp_path}/none/", allow_empty=True)) == []
        assert list(kind.from_objects([], allow_empty=True)) == []
        assert list(kind.from_manifest(tmp_path / "empty.txt", allow_empty=True)) == []

    @pytest.mark.parametrize("given", ["no", 2, None])
    def test_allow_empty_is_true_or_false(self, kind, given, tmp_path):
        (tmp_path / "empty.txt").write_text("\n")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "a.bin").touch()
        (tmp_path / "empty.tar").write_bytes(bytes(10240))
        for make, what in (
            (kind.from_prefix, f"{tmp_path}/none/"),
            (kind.from_prefix, f"{tmp_path}/full/"),
            (kind.from_objects, []),
            (kind.from_objects, [f"{tmp_path}/full/a.bin"]),
            (kind.from_manifest, tmp_path / "empty.txt"),
            (kind.from_shards, tmp_path / "empty.tar"),
        ):
            with pytest.raises(Unusable, match="allow_empty must be True or False, got"):
                make(what, allow_empty=given)

    def test_a_line_that_does_not_parse_is_named(self, kind, tmp_path):
        (tmp_path / "bad.csv").write_text("key,size\na,1\nb,many\n")
        with pytest.raises(ManifestError, match="line 3"):
            kind.from_manifest(tmp_path / "bad.csv")

    def test_a_key_of_another_bucket_is_named_with_its_line(self, kind, tmp_path):
        (tmp_path / "stray.txt").write_text("a\ns3://other-bucket/b\n")
        with pytest.raises(ManifestError, match=r"stray.txt, line 2: 's3://other-bucket/b'"):
            kind.from_manifest(tmp_path / "stray.txt")

    def test_buckets_do_not_mix(self, kind):
        with pytest.raises(InvalidURL, match="other"):
            kind.from_objects(["s3://one-bucket/a", "s3://other-bucket/b"])

    def test_urls_that_cannot_be(self, kind):
        with pytest.raises(UnknownScheme):
            kind.from_prefix("s4://bucket/x")
        with pytest.raises(InvalidURL):
            kind.from_objects(["s3://"])

    def test_a_transforms_error_is_its_own_and_names_the_object(self, kind, folder):
        with pytest.raises(RuntimeError, match="boom") as caught:
            list(kind.from_prefix(folder, transform=explode))
        assert caught.value.__notes__ == [f"while transforming file://{folder}003"]

    def test_an_object_that_changed_since_it_was_listed(self, kind, folder):
        dataset = kind.from_prefix(folder)
        with open(f"{folder}005", "wb") as file:
            file.write(b"other")
        with pytest.raises(Changed) as caught:
            list(dataset)
        assert caught.value.url.endswith("005")

    def test_dataset_reads_objects_after_pickling(self, kind, folder):
        dataset = pickle.loads(pickle.dumps(kind.from_prefix(folder, transform=key_and_bytes)))
        assert [data for _, data in dataset] == [str(index).encode() for index in range(20)]

    def test_secrets_travel_only_where_they_were_passed(self, kind, monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKENVIRONMENT")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-environment")
        silent = kind.from_objects(["s3://bucket/key"])
        assert b"secret-of" not in pickle.dumps(silent)
        told = kind.from_objects(["s3://bucket/key"], store=ps.S3Options(access_key="a", secret_key="secret-told"))
        assert b"secret-told" in bytes(ForkingPickler.dumps(told))
        with pytest.raises(Unusable, match="worker processes only"):
            pickle.dumps(told)
        assert "secret" not in repr(told) + repr(silent) + repr(vars(told))


class TestAPrefixThatGrows:
    """A run is stopped, the prefix grows, and the run goes on."""

    @staticmethod
    def _batches(dataset):
        return dataset.batched(3, collate_fn=list)

    def test_saved_catalog_resumes_where_a_new_listing_is_refused(self, folder, tmp_path):
        options = {"shuffle": True, "seed": 5, "transform": number}
        ps.Catalog.scan(folder).save(tmp_path / "train.catalog")
        whole = list(self._batches(ps.IterableDataset.from_catalog(tmp_path / "train.catalog", **options)))

        first = self._batches(ps.IterableDataset.from_catalog(tmp_path / "train.catalog", **options))
        seen = list(islice(first, 4))
        state = json.loads(json.dumps(first.state_at(4)))
        _grow(folder)

        again = self._batches(ps.IterableDataset.from_catalog(tmp_path / "train.catalog", **options))
        again.load_state_dict(state)
        assert seen + list(again) == whole
        with pytest.raises(StateMismatch):
            self._batches(ps.IterableDataset.from_prefix(folder, **options)).load_state_dict(state)

    def test_so_does_a_copy_elsewhere(self, folder, tmp_path):
        ps.Catalog.scan(folder).save(tmp_path / "train.catalog")
        first = self._batches(ps.IterableDataset.from_catalog(tmp_path / "train.catalog", transform=number))
        assert len(list(islice(first, 4))) == 4
        state = first.state_at(4)
        shutil.copytree(folder, tmp_path / "copy")
        shutil.rmtree(folder)
        catalog = ps.Catalog.open(tmp_path / "train.catalog", root=tmp_path / "copy")
        again = self._batches(ps.IterableDataset.from_catalog(catalog, transform=number))
        again.load_state_dict(state)
        assert [each for batch in again for each in batch] == list(range(12, 20))


def test_manifest_in_the_bucket_and_listing_of_it(bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="train/a b", Body=b"1")
    bucket.client.put_object(Bucket=bucket.name, Key="train/ü", Body=b"22")
    bucket.client.put_object(Bucket=bucket.name, Key="train/dir/", Body=b"")
    bucket.client.put_object(
        Bucket=bucket.name, Key="lists/m.jsonl", Body='{"key": "a b", "label": [1]}\n{"key": "ü"}'.encode()
    )
    listed = ps.MapDataset.from_prefix(f"{bucket.url}train/", store=bucket.store)
    assert [(sample.key, sample.read()) for sample in listed] == [("train/a b", b"1"), ("train/ü", b"22")]
    told = ps.IterableDataset.from_manifest(f"{bucket.url}lists/m.jsonl", base=f"{bucket.url}train", store=bucket.store)
    assert [(sample.label, sample.read()) for sample in told] == [([1], b"1"), (None, b"22")]
    bucket.client.put_object(Bucket=bucket.name, Key="train/ü", Body=b"33")
    with pytest.raises(Changed):
        listed[1]


def test_secrets_are_in_no_error_of_a_dataset(bucket):
    wrong = ps.S3Options(endpoint=bucket.server.endpoint, access_key="AKWRONG", secret_key="very-secret-value")
    with pytest.raises(ps.PenstockError) as caught:
        ps.MapDataset.from_prefix(f"{bucket.url}none/", store=wrong)
    assert "very-secret" not in f"{caught.value!r} {caught.value} {vars(caught.value)}"


def test_datasets_of_one_catalog_take_no_descriptor_each(folder):
    catalog = ps.MapDataset.from_prefix(folder).catalog

    def many() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        kept = [kind.from_catalog(catalog, transform=number) for kind in (ps.MapDataset, ps.IterableDataset) * 150]
        batches = [dataset.batched(5) for dataset in kept]
        samplers = [ps.BatchSampler(dataset, 5) for dataset in kept[::2]]
        assert [len(each) for each in (*batches, *samplers)] == [4] * 450
        assert list(kept[-1]) == list(kept[0]) == list(range(20))
        batches[1].set_epoch(5)
        assert [each.state_dict()["epoch"] for each in batches[:5]] == [0, 5, 0, 0, 0]

    with forked(many) as status:
        assert status() == 0


CONSTRUCTORS = {
    "from_prefix": ("url", {"include", "exclude", "allow_empty"}),
    "from_objects": ("urls", {"allow_empty"}),
    "from_manifest": ("manifest", {"parser", "base", "allow_empty"}),
    "from_catalog": ("catalog", set()),
}
OWN = {ps.MapDataset: {"transform", "store"}, ps.IterableDataset: {"transform", "shuffle", "seed", "place", "store"}}


@pytest.mark.parametrize("name", CONSTRUCTORS)
@pytest.mark.parametrize("kind", OWN)
def test_a_constructor_names_each_argument(kind, name):
    first, others = CONSTRUCTORS[name]
    parameters = inspect.signature(getattr(kind, name)).parameters
    assert next(iter(parameters)) == first
    assert {each for each in parameters if each != first} >= others | OWN[kind]
    assert {each.kind for each in list(parameters.values())[1:]} == {inspect.Parameter.KEYWORD_ONLY}
    described = inspect.getdoc(getattr(kind, name))
    assert all(each in described for each in others)
    assert f"Args:\n    {first}: " in described


@pytest.fixture(scope="module")
def counting():
    """A store that answers anything with 404 and counts what is asked."""
    with Scripted(lambda _received, send: send(reply(404)) or True) as server:
        yield server


MEANT_OTHERWISE = {
    "transform": ({"transform": 3}, Unusable, "plain function"),
    "store": ({"store": {"region": "eu"}}, Unusable, "ps.S3Options"),
    "option of the store": ({"region": "eu-west-1"}, TypeError, r"store=ps\.S3Options\(region="),
    "endpoint": ({"endpoint": "http://localhost"}, TypeError, r"store=ps\.S3Options\(endpoint="),
    "retry": ({"retry": ps.RetryOptions()}, TypeError, r"store=ps\.StoreOptions\(retry="),
    "batch size": ({"batch_size": 4}, TypeError, "ps.DataLoader"),
    "sampler": ({"sampler": None}, TypeError, "ps.DataLoader"),
    "anything": ({"nonsense": 1}, TypeError, "nonsense"),
    "seed": ({"seed": 0.5}, Unusable, "whole number"),
    "shuffle": ({"shuffle": "yes"}, Unusable, "True"),
    "place": ({"place": 1}, Unusable, "ps.Place"),
}


@pytest.mark.parametrize("name", ["from_prefix", "from_manifest", "from_catalog"])
@pytest.mark.parametrize("wrong", MEANT_OTHERWISE)
@pytest.mark.parametrize("kind", OWN)
def test_a_wrong_argument_costs_no_request(kind, wrong, name, counting):
    arguments, error, says = MEANT_OTHERWISE[wrong]
    if kind is ps.MapDataset and wrong in ("seed", "shuffle", "place"):
        error, says = TypeError, "ps.DataLoader"
    store = ps.S3Options(endpoint=counting.url, access_key="a", secret_key="b")
    with pytest.raises(error, match=says):
        getattr(kind, name)("s3://bucket/train/", **{"store": store, **arguments})
    assert not counting.received


def test_a_request_that_is_made_is_counted(counting):
    store = ps.S3Options(endpoint=counting.url, access_key="a", secret_key="b")
    with pytest.raises(NotFound):
        ps.MapDataset.from_catalog("s3://bucket/train/", store=store)
    assert counting.received
    counting.received.clear()


class Scaled(ps.MapDataset):
    """Takes one argument more, which has no default."""

    def __init__(self, catalog, *, scale, **options):
        super().__init__(catalog, **options)
        self.scale = scale

    def __getitem__(self, index):
        return self.scale * super().__getitem__(index)


class Fixed(ps.IterableDataset):
    """Takes fewer arguments, and other defaults."""

    def __init__(self, catalog, *, shuffle=True, store=None):
        super().__init__(catalog, transform=number, shuffle=shuffle, seed=7, store=store)


class Named(Scaled):
    """Gives ``transform`` another meaning."""

    def __init__(self, catalog, *, transform, **options):
        super().__init__(catalog, transform={"number": number}[transform], **options)


def test_constructor_arguments_of_a_subclass_are_passed_through(folder):
    dataset = Scaled.from_prefix(folder, include="00*", transform=number, scale=3)
    assert (type(dataset), dataset[4]) == (Scaled, 12)
    assert Scaled.from_catalog(dataset.catalog, transform=number, scale=2)[4] == 8
    assert Named.from_prefix(folder, transform="number", scale=2)[5] == 10


def test_a_slice_of_a_subclass_keeps_its_arguments(folder):
    dataset = Scaled.from_prefix(folder, transform=number, scale=3)
    part = ps.MapDataset.__getitem__(dataset, slice(4, 8))
    assert (isinstance(part, ps.MapDataset), len(part), part[1]) == (True, 4, 15)
    assert (type(part.whole), part.whole.scale, [*part.rows]) == (Scaled, 3, [4, 5, 6, 7])


def test_a_subclass_keeps_its_defaults_unless_the_caller_overrides_them(folder):
    assert sorted(Fixed.from_prefix(folder)) == list(range(20)) != list(Fixed.from_prefix(folder))
    assert list(Fixed.from_prefix(folder, shuffle=False)) == list(range(20))


@pytest.mark.parametrize("arguments", [{}, {"scale": 1, "scope": 2}, {"scale": 1, "seed": 2}])
def test_an_argument_a_subclass_lacks_costs_no_request(arguments, counting):
    store = ps.S3Options(endpoint=counting.url, access_key="a", secret_key="b")
    with pytest.raises(TypeError, match=r"Scaled\.from_prefix\(\).*(scale|scope|seed)"):
        Scaled.from_prefix("s3://bucket/train/", store=store, **arguments)
    assert not counting.received
