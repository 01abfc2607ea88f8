"""Reads by version id: a catalog reads the listed versions after its objects were replaced or deleted."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from dataclasses import replace
from itertools import chain, islice, pairwise

import numpy as np
import pytest

import penstock as ps
from penstock.data.catalog.catalog import make_catalog
from penstock.data.catalog.columns.table import TableBuilder
from penstock.engine.buffer import Buffer
from penstock.engine.listing.names import PackedEntries
from penstock.errors import Changed, ManifestError, NotFound, Unsupported, Unusable
from penstock.source import open_source
from penstock.stores.s3.driver import S3Driver
from penstock.values import VERSION, Span, version_id
from tests.data.catalog.test_saved import _parts, _sealed
from tests.data.datasets.ranks import free_port, ranks
from tests.refusals import refused


def _keep_versions(bucket, status="Enabled"):
    bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": status})


def _put(bucket, key, data):
    bucket.client.put_object(Bucket=bucket.name, Key=f"d/{key}", Body=data)


def _delete(bucket, key, **version):
    bucket.client.delete_object(Bucket=bucket.name, Key=f"d/{key}", **version)


def _disturb(bucket, names, *, deleted=()):
    for name in names:
        _put(bucket, name, b"overwritten by something longer than before")
    for name in deleted:
        _delete(bucket, name)


@pytest.fixture
def versioned(bucket):
    _keep_versions(bucket)
    return bucket


def _scan(bucket, **options):
    return ps.Catalog.scan(f"{bucket.url}d/", versions=True, store=bucket.store, **options)


def _contents(catalog, store):
    dataset = ps.MapDataset.from_catalog(catalog, store=store)
    return [dataset[at].read() for at in range(len(dataset))]


def _fill(bucket, count):
    names = [f"{at:03}" for at in range(count)]
    for name in names:
        _put(bucket, name, f"first {name}".encode())
    return names, [f"first {name}".encode() for name in names]


def test_overwritten_and_deleted_objects_are_read_as_they_were(versioned):
    names = ["a", "b/ü +%&=?", "c", "d"]
    for name in names:
        _put(versioned, name, b"older")
        _put(versioned, name, f"first {name}".encode())
    _put(versioned, "gone", b"x")
    _delete(versioned, "gone")
    catalog = _scan(versioned)
    assert [each.key for each in catalog] == [f"d/{name}" for name in names]
    assert catalog.versioned
    _disturb(versioned, names[:2], deleted=["c"])
    assert _contents(catalog, versioned.store) == [f"first {name}".encode() for name in names]


def test_every_way_to_read_asks_for_the_version(versioned):
    big = np.random.default_rng(0).bytes(300_000)
    _put(versioned, "big", big)
    _put(versioned, "empty", b"")
    catalog = _scan(versioned)
    _disturb(versioned, ["empty"], deleted=["big"])
    span, empty = catalog.span(0), catalog.span(1)
    for split_bytes in (1 << 20, 100_000):
        store = replace(versioned.store, read=ps.ReadOptions(split_bytes=split_bytes))
        source, _ = open_source(versioned.url, store)
        assert source.read(span) == big
        assert source.read(empty) == b""
        assert source.read(Span(span.key, 7, 9, span.etag)) == big[7:9]
        assert source.read(Span(span.key, 0, None, span.etag)) == big
        assert source.read(Span(span.key, -120_000, None, span.etag)) == big[-120_000:]
        assert source.read(Span(empty.key, -5, None, empty.etag)) == b""
        assert source.read_version(Span(span.key, -50, None, span.etag)) == (big[-50:], span.etag)
    sample = next(iter(ps.IterableDataset.from_catalog(catalog, store=versioned.store)))
    assert sample.read() == big


def test_requests_name_the_version_id_and_still_compare_the_etag():
    driver = open_source("s3://bkt/", ps.S3Options(region="us-east-1", anonymous=True))[0]._fetcher().driver
    etag, target = f"abc{VERSION}7+/", Buffer.allocate(4)
    part, whole = Span("k", 2, 6, etag), Span("k", 0, 4, etag, whole=True)
    for exchange in (
        driver.read(part, target),
        driver.read(whole, target),
        driver.suffix("k", etag, target),
        driver.get("k", etag),
    ):
        assert exchange.request.url.endswith("/k?versionId=7%2B%2F")
        assert 'if-match: "abc"' in [line.lower() for line in exchange.request.headers]


def test_parts_and_copies_of_a_catalog_keep_the_versions(versioned, tmp_path):
    names, wanted = _fill(versioned, 8)
    catalog = _scan(versioned, labels=lambda key: key[-1:])
    catalog.save(tmp_path / "saved.catalog")
    saved = ps.Catalog.open(tmp_path / "saved.catalog", root=catalog.root + catalog.base)
    _disturb(versioned, names[1:], deleted=names[:1])
    first, second = saved.split(3, 5, seed=1)
    parts = {
        "saved": saved,
        "pickled": pickle.loads(pickle.dumps(catalog)),
        "sliced": catalog[:],
        "chosen": catalog[np.arange(8)],
        "filtered": catalog.filter(include="*"),
        "joined": catalog[:3] + saved[3:],
        "columns": catalog.with_columns(number=np.arange(8)),
    }
    for name, each in parts.items():
        assert each.versioned, name
        assert [entry.etag for entry in each] == [entry.etag for entry in catalog], name
        assert each.fingerprint == catalog.fingerprint, name
    assert sorted(_contents(first, versioned.store) + _contents(second, versioned.store)) == wanted
    assert _contents(saved, versioned.store) == wanted
    both = ps.Catalog.join({"a": catalog, "b": saved})
    sample = ps.MapDataset.from_catalog(both, store=versioned.store)[2]
    assert both.versioned
    assert (sample["a"].read(), sample["b"].read()) == (wanted[2], wanted[2])


def test_groups_keep_the_versions(versioned):
    for name in ("1.jpg", "1.txt", "2.jpg", "2.txt"):
        _put(versioned, name, name.encode())
    catalog = _scan(versioned, group="stem")
    _disturb(versioned, ["1.txt"], deleted=["2.jpg"])
    dataset = ps.MapDataset.from_catalog(catalog, store=versioned.store)
    assert [[each[field].read() for field in ("jpg", "txt")] for each in map(dataset.__getitem__, range(2))] == [
        [b"1.jpg", b"1.txt"],
        [b"2.jpg", b"2.txt"],
    ]


def test_deleted_version_raises_not_found_with_the_object_and_the_version(versioned):
    _put(versioned, "a", b"first")
    catalog = _scan(versioned)
    version = version_id(catalog[0].etag)
    _delete(versioned, "a", VersionId=version)
    _put(versioned, "a", b"other")
    source, _ = open_source(versioned.url, versioned.store)
    span = catalog.span(0)
    for each in (span, Span(span.key, 0, 2, span.etag), Span(span.key, -2, None, span.etag), span._replace(stop=None)):
        error = refused(NotFound, f"cannot read version .*{version[:8]}.*no longer has it", source.read, each)
        assert error.url == f"{versioned.url}d/a"


class TestUnversioned:
    def test_bucket_without_versioning_is_refused(self, bucket):
        _put(bucket, "a", b"first")
        refused(Unusable, "versioning of the bucket is not enabled", _scan, bucket)

    def test_bucket_with_suspended_versioning_is_refused(self, versioned):
        _put(versioned, "a", b"first")
        _keep_versions(versioned, "Suspended")
        refused(Unusable, "versioning of the bucket is not enabled", _scan, versioned)

    @pytest.mark.parametrize("url", ["memory://unversioned/d/", "az://account/container/d/"])
    def test_store_without_versions_is_refused(self, url):
        store = ps.AzureOptions(account="account", anonymous=True) if url.startswith("az") else None
        refused(Unsupported, "cannot read versions by id", ps.Catalog.scan, url, versions=True, store=store)

    def test_folder_is_refused(self, tmp_path):
        (tmp_path / "a").write_bytes(b"x")
        refused(Unsupported, "cannot read versions by id", ps.Catalog.scan, tmp_path, versions=True)

    def test_versions_must_be_a_switch(self, bucket):
        refused(Unusable, "versions must be", ps.Catalog.scan, bucket.url, versions="all", store=bucket.store)

    def test_object_from_before_versioning_is_read_until_its_null_version_is_overwritten(self, bucket):
        _put(bucket, "a", b"first")
        _keep_versions(bucket)
        catalog = _scan(bucket)
        assert version_id(catalog[0].etag) == "null"
        _put(bucket, "a", b"second")
        assert _contents(catalog, bucket.store) == [b"first"]
        _keep_versions(bucket, "Suspended")
        _put(bucket, "a", b"third")
        refused(Changed, "has changed", _contents, catalog, bucket.store)


class TestCache:
    def test_each_version_is_kept_apart(self, versioned, tmp_path):
        store = replace(versioned.store, cache=ps.CacheOptions(path=str(tmp_path / "cache")))
        names, first = _fill(versioned, 3)
        before = _scan(versioned)
        for name in names:
            _put(versioned, name, b"other bytes")
        after = _scan(versioned)
        for _ in range(2):
            assert _contents(before, store) == first
            assert _contents(after, store) == [b"other bytes"] * 3
        for entry in before:
            _delete(versioned, entry.key[2:], VersionId=version_id(entry.etag))
        assert _contents(before, store) == first
        refused(NotFound, "no longer has it", _contents, before, versioned.store)

    def test_warmed_versions_are_those_of_the_catalog(self, versioned, tmp_path):
        store = replace(versioned.store, cache=ps.CacheOptions(path=str(tmp_path / "cache")))
        names, first = _fill(versioned, 3)
        catalog = _scan(versioned)
        _disturb(versioned, names)
        assert ps.warm(catalog, store=store).fetched == 3
        for entry in catalog:
            _delete(versioned, entry.key[2:], VersionId=version_id(entry.etag))
        assert _contents(catalog, store) == first


def _batches(catalog, store, world, rank, **options):
    place = ps.Place(rank=rank, world=world)
    dataset = ps.MapDataset.from_catalog(catalog, transform=lambda sample: (sample.key, sample.read()), store=store)
    return ps.DataLoader(dataset, 12 // world, shuffle=True, place=place, collate_fn=list, **options)


def test_resumed_epoch_has_the_bytes_of_the_first_run_on_another_number_of_ranks(versioned, tmp_path):
    """Two ranks read two batches; all objects are replaced or deleted; three ranks with workers read the rest."""
    names, wanted = _fill(versioned, 48)
    _scan(versioned).save(tmp_path / "run.catalog")
    catalog = ps.Catalog.open(tmp_path / "run.catalog", root=f"{versioned.url}d/")
    loaders = [_batches(catalog, versioned.store, 2, rank) for rank in range(2)]
    seen = [*islice(zip(*loaders, strict=True), 2)]
    state = json.loads(json.dumps(loaders[0].state_dict()))
    _disturb(versioned, names[:40], deleted=names[40:])
    rest = [_batches(catalog, versioned.store, 3, rank, num_workers=1) for rank in range(3)]
    for each in rest:
        each.load_state_dict(state)
    seen += [*zip(*rest, strict=True)]
    found = [*chain.from_iterable(chain.from_iterable(seen))]
    assert sorted(found) == [(f"d/{name}", data) for name, data in zip(names, wanted, strict=True)]
    whole = _batches(catalog, versioned.store, 1, 0, num_workers=2)
    assert [*chain.from_iterable(whole)] == found


def _scan_on_a_rank(url, store):
    catalog = ps.Catalog.scan(url, versions=True, store=store)
    return [entry.etag for entry in catalog], [
        sample.read() for sample in ps.IterableDataset.from_catalog(catalog, store=store, place=ps.Place())
    ]


def test_ranks_that_share_a_listing_share_its_versions(versioned):
    _, wanted = _fill(versioned, 4)
    address = f"tcp://127.0.0.1:{free_port()}"
    found = ranks(2, address, _scan_on_a_rank, f"{versioned.url}d/", versioned.store)
    assert found[0] == found[1] == ([entry.etag for entry in _scan(versioned)], wanted)


class TestListing:
    def test_pages_with_old_versions_and_deleted_objects_are_joined(self, versioned, monkeypatch):
        """Pages end within the versions of a key, and hold deleted objects alone."""
        names = [f"{folder}/{at:02} ü" for folder in "ab" for at in range(12)]
        for name in names:
            for data in (b"1", b"2", b"3"):
                _put(versioned, name, data)
        gone = [name for at, name in enumerate(names) if at % 3 == 0]
        for name in gone:
            _delete(versioned, name)
        monkeypatch.setattr(S3Driver, "page_keys", 5)
        catalog = _scan(versioned)
        left = [f"d/{name}" for name in names if name not in gone]
        assert [each.key for each in catalog] == left
        assert _contents(catalog, versioned.store) == [b"3"] * len(left)
        assert [each.key for each in _scan(versioned, include="b/*")] == left[len(left) // 2 :]

    def test_listing_begins_after_a_key_with_several_versions(self, versioned):
        names, _ = _fill(versioned, 3)
        _disturb(versioned, names)
        source, _ = open_source(versioned.url, versioned.store)
        with source.pager(versions=True) as pages:
            pages.start("d/", start_after=f"d/{names[0]}")
            ((_, page),) = pages.take()
        assert [each.key for each in page.entries] == [f"d/{name}" for name in names[1:]]

    def test_refreshed_catalog_has_the_versions_of_new_objects(self, versioned):
        names, wanted = _fill(versioned, 3)
        catalog = _scan(versioned)
        _disturb(versioned, names)
        _put(versioned, "new", b"new")
        more = catalog.refresh(store=versioned.store)
        _disturb(versioned, ["new"])
        assert _contents(more, versioned.store) == [*wanted, b"new"]

    def test_index_records_versions(self, versioned, tmp_path):
        names, wanted = _fill(versioned, 3)
        url, to = f"{versioned.url}d/", tmp_path / "made.catalog"
        ps.index(url, to, versions=True, store=versioned.store)
        _disturb(versioned, names)
        assert _contents(ps.Catalog.open(to, root=url), versioned.store) == wanted
        refused(Unusable, "cannot be combined with job=", ps.index, url, to, versions=True, format="tar", job=tmp_path)

    def test_manifest_with_ids_reads_these_versions(self, versioned, tmp_path):
        names, wanted = _fill(versioned, 3)
        lines = [json.dumps({"key": each.key, "size": each.size, "etag": each.etag}) for each in _scan(versioned)]
        (tmp_path / "all.jsonl").write_text("\n".join(lines))
        _disturb(versioned, names)
        options = {"base": versioned.url, "store": versioned.store}
        dataset = ps.MapDataset.from_manifest(tmp_path / "all.jsonl", **options)
        assert dataset.catalog.versioned
        assert [dataset[at].read() for at in range(3)] == wanted

    def test_packed_samples_are_those_of_the_catalog(self, versioned, tmp_path):
        names = [f"{at}.txt" for at in range(4)]
        for name in names:
            _put(versioned, name, name.encode())
        catalog = _scan(versioned)
        _disturb(versioned, names[:2], deleted=names[2:])
        ps.pack(catalog, tmp_path / "packed", store=versioned.store)
        packed = ps.MapDataset.from_shards(tmp_path / "packed", fields="txt")
        assert [packed[at].read() for at in range(4)] == [name.encode() for name in names]

    def test_profile_with_a_prefix_reads_versions(self, versioned, tmp_path, monkeypatch):
        names, wanted = _fill(versioned, 3)
        monkeypatch.chdir(tmp_path)
        for name, value in versioned.server.environment.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "penstock.toml").write_text(f"[profiles.mine]\nurl = '{versioned.url}d/'\n")
        catalog = ps.Catalog.scan("penstock://mine/", versions=True)
        _disturb(versioned, names[1:], deleted=names[:1])
        assert [each.key for each in catalog] == names
        assert _contents(catalog, None) == wanted


def _tar(names, word):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in names:
            data = f"{word} {name}".encode()
            member = tarfile.TarInfo(f"{name}.txt")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


class TestShards:
    @pytest.mark.parametrize("given", ["d/", "d/{a,b}.tar", "d/*.tar"])
    def test_samples_in_shards_are_those_of_the_listing(self, versioned, given):
        for shard, names in (("a", "123"), ("b", "456")):
            _put(versioned, f"{shard}.tar", _tar(names, "first"))
        options = {"fields": "txt", "versions": True, "store": versioned.store}
        catalog = ps.Catalog.from_shards(f"{versioned.url}{given}", **options)
        _put(versioned, "a.tar", _tar("123", "other"))
        _delete(versioned, "b.tar")
        wanted = [f"first {name}".encode() for name in "123456"]
        assert catalog.versioned
        assert _contents(catalog, versioned.store) == wanted
        assert _contents(catalog[[5, 0]], versioned.store) == [wanted[5], wanted[0]]

    def test_index_and_refresh_record_the_versions_of_shards(self, versioned, tmp_path):
        _put(versioned, "a.tar", _tar("123", "first"))
        options = {"fields": "txt", "versions": True, "store": versioned.store}
        catalog = ps.index(f"{versioned.url}d/", tmp_path / "made", format="tar", **options)
        _put(versioned, "b.tar", _tar("456", "first"))
        catalog = catalog.refresh(store=versioned.store)
        for shard in "ab":
            _put(versioned, f"{shard}.tar", _tar("1", "other"))
        assert len({entry.etag for entry in catalog if version_id(entry.etag)}) == 2
        assert _contents(catalog, versioned.store) == [f"first {name}".encode() for name in "123456"]

    def test_shards_from_before_versioning_have_the_null_version(self, bucket):
        _put(bucket, "a.tar", _tar("1", "first"))
        refused(Unusable, "not enabled", ps.Catalog.from_shards, f"{bucket.url}d/", versions=True, store=bucket.store)
        _keep_versions(bucket)
        catalog = ps.Catalog.from_shards(f"{bucket.url}d/", fields="txt", versions=True, store=bucket.store)
        _put(bucket, "a.tar", _tar("1", "other"))
        assert version_id(catalog[0].etag) == "null"
        assert _contents(catalog, bucket.store) == [b"first 1"]


class TestIdentities:
    def test_rewritten_bytes_are_another_version_only_where_both_catalogs_record_ids(self, versioned):
        names, _ = _fill(versioned, 3)
        before, plain = _scan(versioned), ps.Catalog.scan(f"{versioned.url}d/", store=versioned.store)
        _put(versioned, names[0], b"first 000")
        after = _scan(versioned)
        assert [each.key for each in before.diff(after).changed] == ["d/000"]
        assert before.diff(plain).equal == plain.diff(after).equal == 3
        assert before.digest == after.digest == plain.digest
        assert len({before.fingerprint, after.fingerprint, plain.fingerprint}) == 3

    def test_joined_with_a_catalog_without_ids_each_keeps_its_own(self, versioned):
        _, wanted = _fill(versioned, 4)
        with_ids, without = _scan(versioned), ps.Catalog.scan(f"{versioned.url}d/", store=versioned.store)
        for both in (with_ids[:2] + without[2:], without[:2] + with_ids[2:]):
            assert both.versioned
            assert len([each for each in both if version_id(each.etag)]) == 2
            assert _contents(both, versioned.store) == wanted

    def test_copy_elsewhere_has_no_versions(self, versioned, tmp_path):
        _fill(versioned, 3)
        _scan(versioned).save(tmp_path / "saved.catalog")
        moved = ps.Catalog.open(tmp_path / "saved.catalog", root="memory://elsewhere/d/")
        assert not moved.versioned
        assert {each.etag for each in moved} == {""}

    def test_verified_tree_compares_the_recorded_versions(self, versioned, tmp_path):
        names, _ = _fill(versioned, 3)
        catalog = _scan(versioned)
        catalog.save(tmp_path / "saved.catalog")
        _disturb(versioned, names)
        report = ps.verify(f"{versioned.url}d/", tmp_path / "saved.catalog", store=versioned.store)
        assert report.objects == 3
        _delete(versioned, names[0], VersionId=version_id(catalog[0].etag))
        refused(
            NotFound,
            "no longer has it",
            ps.verify,
            f"{versioned.url}d/",
            tmp_path / "saved.catalog",
            store=versioned.store,
        )


def _made(etags):
    builder = TableBuilder()
    keys = [f"d/{at:07}.jpg" for at in range(len(etags))]
    builder.add_all(PackedEntries.of(keys, [100] * len(etags), etags))
    return make_catalog("s3://bucket/", "d/", builder.freeze())


def test_version_ids_cost_their_length(tmp_path):
    count = 100_000
    tags, ids = [f"{at * 7919:032x}" for at in range(count)], [f"{at * 104729:032x}" for at in range(count)]
    plain, versioned = _made(tags), _made([f"{tag}{VERSION}{each}" for tag, each in zip(tags, ids, strict=True)])
    sizes = []
    for name, catalog in (("plain", plain), ("versioned", versioned)):
        catalog.save(tmp_path / name)
        sizes.append((tmp_path / name).stat().st_size)
    assert sizes[1] - sizes[0] == pytest.approx(32 * count, abs=2000)
    opened = ps.Catalog.open(tmp_path / "versioned", root="s3://bucket/d/")
    assert opened[count - 1].etag == f"{tags[-1]}{VERSION}{ids[-1]}"
    assert not plain.versioned


MARKED = {
    "one form": [f"{at:032x}{VERSION}{at:032d}" for at in range(100)],
    "parts": [f"{at:032x}{'-2' * (at % 3)}{VERSION}{'v' * (1 + at % 5)}" for at in range(100)],
    "some": [f"{at:032x}{VERSION * (at % 2)}{'null' * (at % 2)}" for at in range(100)],
    "marks within ids": [f"a{VERSION}b{VERSION}c", f"aaaaaaaaa b{VERSION}c", f"a{VERSION}b{VERSION}c"],
    "empty etags": [f"{VERSION}v{at}" for at in range(100)],
    "few of many": [*["e"] * 40_000, f"e{VERSION}v", ""],
}


@pytest.mark.parametrize("kind", MARKED)
def test_etags_with_ids_are_kept_byte_for_byte(tmp_path, kind):
    given = MARKED[kind]
    catalog = _made(given)
    catalog.save(tmp_path / "saved")
    opened = ps.Catalog.open(tmp_path / "saved", root="s3://bucket/d/")
    order = np.random.default_rng(0).permutation(len(given))
    assert catalog.versioned
    assert catalog.fingerprint == opened.fingerprint
    for each in (catalog, opened, pickle.loads(pickle.dumps(catalog))):
        assert [entry.etag for entry in each] == given
    opened[order].save(tmp_path / "mixed")
    mixed = ps.Catalog.open(tmp_path / "mixed", root="s3://bucket/d/")
    assert [entry.etag for entry in mixed] == [given[at] for at in order]
    ends, data = catalog._table.etags.joined(order)
    assert [data[start:stop].tobytes().decode() for start, stop in pairwise(ends.tolist())] == [
        given[at] for at in order
    ]
    assert catalog.diff(opened).changed.sizes.size == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [("id-bases", "id-texts"), ("id-ends", "ends"), ("id-bases", "id-lower"), ("id-texts", "id-id-texts")],
)
def test_saved_ids_that_do_not_fit_together_are_refused(tmp_path, old, new):
    _made([f"{at:032x}{VERSION}{'v' * (1 + at % 3)}" for at in range(100)]).save(tmp_path / "saved")
    header, columns = _parts((tmp_path / "saved").read_bytes())
    for vector in header["vectors"]:
        vector["part"] = new if vector["part"] == old else vector["part"]
    (tmp_path / "damaged").write_bytes(_sealed(header, columns))
    refused(ManifestError, None, ps.Catalog.open, tmp_path / "damaged", root="s3://bucket/d/")


def test_an_id_cannot_leave_its_field_of_the_query(bucket):
    _put(bucket, "a", b"first")
    etag = ps.stat(f"{bucket.url}d/a", store=bucket.store).etag
    source, _ = open_source(bucket.url, bucket.store)
    for odd in ("x&response-content-type=text/html", "a\r\nx-evil: 1", "../b?versionId=1", "é"):
        refused((NotFound, Unusable), "version", source.read, Span("d/a", 0, 5, f"{etag}{VERSION}{odd}", whole=True))
