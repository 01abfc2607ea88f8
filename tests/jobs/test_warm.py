"""Warming reads what the cache does not have, once, in bounded memory; what is there costs no request."""

import errno
import math
from dataclasses import replace

import pytest

import penstock as ps
from penstock.engine.cache import files
from penstock.errors import NotFound, Unusable
from penstock.jobs.warm import Warmed, _split_long_span, warm_into
from penstock.source import object_at
from penstock.testing.faults import FAULTS, Match
from penstock.values import Span

COUNT, SIZE = 40, 3000
MIB = 1 << 20


@pytest.fixture
def server(s3_faults, request):
    """Return a server with a bucket of this test's own, which has objects below ``a/``."""
    s3_faults.heal()
    s3_faults.bucket = f"warm-{abs(hash(request.node.name)) % 10**9}"
    for number in range(COUNT):
        s3_faults.put(s3_faults.bucket, f"a/é {number:03}", b"%03d" % number * (SIZE // 3))
    s3_faults.put(s3_faults.bucket, "a/ÿ zero", b"")
    return s3_faults


@pytest.fixture
def near(server, tmp_path):
    """Return a function that makes options of the server with a cache in a directory of this test's own."""

    def options(name="near", **cache):
        return ps.S3Options(
            **{each: getattr(server.store, each) for each in ("endpoint", "access_key", "secret_key", "region")},
            cache=ps.CacheOptions(path=str(tmp_path / name), **({"size_bytes": 64 * MIB} | cache)),
            retry=ps.RetryOptions(attempts=2, base_s=0.01),
        )

    return options


def url(server, key="a/"):
    return f"s3://{server.bucket}/{key}"


def gets(server):
    return len(server.seen("get", server.bucket))


def counts(done):
    return done.fetched, done.present, done.missing, done.left_out, done.failed


def test_shares_warm_each_read_once_together(server, near):
    store = near()
    found = [ps.warm(url(server), part=f"{number}/3", store=store) for number in (1, 2, 3)]
    assert [counts(each) for each in found] == [(14, 0, 0, 0, 0), (14, 0, 0, 0, 0), (13, 0, 0, 0, 0)]
    assert gets(server) == COUNT + 1


def test_a_cluster_warms_no_share_and_no_reads_of_a_rank(server, near):
    loader = ps.DataLoader(ps.MapDataset.from_prefix(url(server), store=near()), 4)
    for what, options, told in (
        (url(server), {"part": "1/2"}, "leave out part="),
        (loader, {}, "a DataLoader reads data of one rank"),
        (loader.dataset.batched(4), {}, "pass its dataset"),
        (url(server), {"store": near()}, "secret"),
    ):
        with pytest.raises(Unusable, match=told):
            ps.warm(what, on=ps.Ray(), **options)


def test_a_prefix_a_catalog_a_dataset_and_a_loader_warm_the_same_objects(server, near):
    store = near()
    catalog = ps.Catalog.scan(url(server), store=store)
    dataset = ps.MapDataset.from_catalog(catalog, store=store)
    loader = ps.DataLoader(dataset, 7, shuffle=True)
    first = ps.warm(catalog[: COUNT // 2], store=store)
    assert counts(first) == (COUNT // 2, 0, 0, 0, 0)
    assert first.fetched_bytes == COUNT // 2 * SIZE
    assert counts(ps.warm(url(server), store=store)) == (COUNT + 1 - COUNT // 2, COUNT // 2, 0, 0, 0)
    assert gets(server) == COUNT + 1
    every = (0, COUNT + 1, 0, 0, 0)
    for what in (catalog, url(server, "a"), url(server, "a/*"), [url(server)]):
        assert counts(ps.warm(what, store=store)) == every
    for what in (dataset, loader, dataset.batched(4)):
        assert counts(ps.warm(what)) == every
    read = {sample.key: bytes(sample.data) for batch in loader for sample in batch}
    assert read == server.objects(server.bucket)
    assert gets(server) == COUNT + 1


def test_replaced_object_is_fetched_again_by_warm(server, near):
    store = near()
    ps.warm(url(server), store=store)
    server.put(server.bucket, "a/é 003", b"another")
    assert counts(ps.warm(url(server), store=store)) == (1, COUNT, 0, 0, 0)
    assert bytes(ps.MapDataset.from_prefix(url(server), store=store)[3].data) == b"another"


def test_failed_object_does_not_stop_warming_the_rest(server, near):
    server.fail(FAULTS["denied"], when=Match(verb="get", key="a/é 007", times=None))
    done = ps.warm(url(server), store=near())
    assert counts(done) == (COUNT, 0, 0, 0, 1)
    assert [each.url for each in done.failures] == [url(server, "a/é 007")]
    server.heal()
    assert counts(ps.warm(url(server), store=near())) == (1, COUNT, 0, 0, 0)


def test_missing_object_is_counted_and_missing_bucket_raises(server, near):
    store = near(mode="ttl", ttl_s=math.inf)
    dataset = ps.MapDataset.from_objects([url(server, "a/é 001"), url(server, "a/none")], store=store)
    assert counts(ps.warm(dataset)) == (1, 0, 1, 0, 0)
    assert counts(ps.warm(dataset)) == (0, 1, 1, 0, 0)
    with pytest.raises(NotFound):
        ps.warm(ps.MapDataset.from_objects(["s3://no-such-bucket/x"], store=store))
    with pytest.raises(NotFound):
        ps.warm(url(server, "none/"), store=store)


def test_objects_beyond_cache_size_are_left_out_without_eviction(server, near):
    for number in range(12):
        server.put(server.bucket, f"large/{number:02}", bytes([number]) * MIB)
    store = near(size_bytes=8 * MIB)
    done = ps.warm(url(server, "large/"), store=store)
    assert done.fetched + done.left_out == 12
    assert 5 <= done.fetched <= 7
    before = gets(server)
    assert counts(ps.warm(url(server, "large/"), store=store)) == (0, done.fetched, 0, done.left_out, 0)
    assert gets(server) == before


def test_a_large_object_is_read_in_pieces_and_then_opened_from_the_cache(server, near):
    data = b"".join(bytes([number]) * MIB for number in range(35))
    server.put(server.bucket, "large", data)
    store = near()
    done = ps.warm(url(server, "large"), store=store)
    assert (counts(done), done.fetched_bytes) == ((3, 0, 0, 0, 0), 35 * MIB)
    before = gets(server)
    with ps.open(url(server, "large"), store=store) as file:
        assert file.read() == data
        file.seek(-5, 2)
        assert file.read() == data[-5:]
    assert gets(server) == before


def test_pieces_make_up_the_span():
    assert list(_split_long_span(Span("k", 0, None, "e"))) == [Span("k", 0, None, "e")]
    assert list(_split_long_span(Span("k", -7))) == [Span("k", -7)]
    assert list(_split_long_span(Span("k", 0, 16 * MIB, "e", whole=True))) == [Span("k", 0, 16 * MIB, "e", whole=True)]
    made = list(_split_long_span(Span("k", 5 * MIB, 50 * MIB, "e")))
    assert [(each.start, each.stop) for each in made] == [
        (5 * MIB, 16 * MIB),
        (16 * MIB, 32 * MIB),
        (32 * MIB, 48 * MIB),
        (48 * MIB, 50 * MIB),
    ]
    assert {(each.key, each.etag, each.whole) for each in made} == {("k", "e", False)}
    assert list(_split_long_span(Span("k", 0, 50 * MIB, whole=True))) == [Span("k", 0, 50 * MIB, whole=True)], (
        "no version"
    )


def test_a_large_object_without_a_version_is_found_by_the_read_that_needs_it(server, near):
    server.put(server.bucket, "large", bytes(20 * MIB))
    source, key = object_at(url(server, "large"), near(mode="ttl", ttl_s=math.inf, size_bytes=128 * MIB))
    span = Span(key, 0, 20 * MIB, whole=True)

    class Planned:
        def reads(self):
            yield source, iter([span])

    assert counts(ps.warm(Planned())) == (1, 0, 0, 0, 0)
    before = gets(server)
    assert len(source.read(span)) == 20 * MIB
    assert counts(ps.warm(Planned())) == (0, 1, 0, 0, 0)
    assert gets(server) == before


def test_cached_objects_take_no_additional_cache_space(server, near):
    for number in range(6):
        server.put(server.bucket, f"large/{number:02}", bytes([number]) * MIB)
    store = near(size_bytes=8 * MIB)
    assert counts(ps.warm(ps.Catalog.scan(url(server, "large/"), store=store)[:4], store=store)) == (4, 0, 0, 0, 0)
    assert counts(ps.warm(url(server, "large/"), store=store)) == (2, 4, 0, 0, 0)


def test_cache_write_failure_counts_objects_as_left_out(server, near, monkeypatch):
    def refuse(*_ignored):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(files, "write", refuse)
    store = near()
    store = replace(store, read=ps.ReadOptions(ahead_items=4))
    done = ps.warm(url(server), store=store)
    assert done.left_out > COUNT // 2
    assert done.fetched + done.left_out == COUNT + 1


def test_interrupted_warming_resumes_with_cached_objects(server, near):
    done, store = Warmed(), near()

    def count(_objects, _bytes):
        if done.fetched >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warm_into(done, url(server), store, count)
    again = ps.warm(url(server), store=store)
    assert again.present >= 5
    assert again.fetched + again.present == COUNT + 1


def test_worker_processes_read_warmed_objects_without_requests(server, near):
    dataset = ps.MapDataset.from_prefix(url(server), store=near())
    ps.warm(dataset)
    before = gets(server)
    loader = ps.DataLoader(dataset, 8, num_workers=2, collate_fn=keys)
    assert len({key for batch in loader for key in batch}) == COUNT + 1
    assert gets(server) == before


def keys(samples):
    return [sample.key for sample in samples if bytes(sample.data) is not None]


def test_unsupported_warm_argument_is_refused_with_advice(server, near, monkeypatch):
    monkeypatch.delenv("PENSTOCK_CACHE", raising=False)
    with pytest.raises(Unusable, match=r"no cache: pass store=ps\.StoreOptions"):
        ps.warm(url(server), store=server.store)
    with pytest.raises(Unusable, match=r"has no version.*mode='ttl'"):
        ps.warm(ps.MapDataset.from_objects([url(server, "a/é 001")], store=near()))
    with pytest.raises(Unusable, match="warm takes a URL"):
        ps.warm(7)
    with pytest.raises(Unusable, match="among the URLs"):
        ps.warm([7])
    with pytest.raises(Unusable, match="to a dataset when it is made"):
        ps.warm(ps.MapDataset.from_objects([url(server, "a/é 001")], store=server.store))
    assert gets(server) == 0


def test_store_argument_beside_a_dataset_with_its_own_store_is_refused(server, near):
    """It would be ignored: the cache of another store would stay empty without a word."""
    dataset = ps.MapDataset.from_prefix(url(server), store=near())
    for what in (dataset, ps.DataLoader(dataset, batch_size=4), dataset.batched(4)):
        with pytest.raises(Unusable, match=r"has its own store.*to the dataset when it is created"):
            ps.warm(what, store=near("other"))
    assert gets(server) == 0


def test_the_environment_names_the_cache_of_all_stores(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "near"))
    monkeypatch.setenv("PENSTOCK_CACHE_SIZE", "64 MiB")
    assert ps.warm(url(server), store=server.store).fetched == COUNT + 1
    dataset = ps.MapDataset.from_prefix(url(server), store=server.store)
    assert sum(1 for _ in dataset) == COUNT + 1
    assert gets(server) == COUNT + 1
    (tmp_path / "local").write_bytes(b"x")
    with pytest.raises(Unusable, match="no cache"):
        ps.warm(str(tmp_path / "local"))
