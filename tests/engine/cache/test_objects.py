"""Which entries have what is asked for, whatever was kept before."""

from random import Random

from penstock.engine.cache.entry import CachedPart
from penstock.engine.cache.layer import ALL, CachedObjects, Missing, StorePlace
from penstock.values import Span
from tests.engine.cache.entries import cache_in

BLOCK = 64 << 10
DATA = Random(1).randbytes(2 * BLOCK + 100)


def _objects(cache, store="s", base=""):
    return CachedObjects(cache._tiers, StorePlace(store, "s3://b/", base, lambda _keys: []))


def test_an_object_of_unknown_size_is_kept_in_blocks_that_tell_it(tmp_path):
    objects = _objects(cache_in(tmp_path, block_bytes=BLOCK))
    objects.keep(Missing(Span("k", 0, None, "e"), (ALL,), "e", -1), DATA, "e")
    assert objects.size("k", "e") == len(DATA)
    assert objects.unsized("k", "e", ALL) == (None, len(DATA))
    assert objects.unsized("k", "e", CachedPart("e", -5, None)) == (None, len(DATA))
    assert [objects.part("k", "e", part, 100, None).data for part in objects.parts(0, len(DATA))] == [
        DATA[at : at + 100] for at in (0, BLOCK, 2 * BLOCK)
    ]
    assert objects.part("k", "e", CachedPart("r", 7, 50), 43, None).data == DATA[7:50]
    assert objects.part("k", "e", CachedPart("b", 2 * BLOCK, None), 101, None) is None


def test_stores_and_versions_are_apart_and_profiles_are_not(tmp_path):
    cache = cache_in(tmp_path)
    _objects(cache, base="base/").keep(Missing(Span("k", 0, 9, "e", whole=True), (ALL,), "e", 9), DATA[:9], "e")
    assert _objects(cache).part("base/k", "e", ALL, 9, None).data == DATA[:9]
    assert _objects(cache, "other").part("base/k", "e", ALL, 9, None) is None
    assert _objects(cache).part("base/k", "e2", ALL, 9, None) is None


def test_a_url_with_a_query_is_not_written_down(tmp_path):
    cache = cache_in(tmp_path)
    place = StorePlace("s", "https://host/", "", lambda _keys: [])
    missing = Missing(Span("k?sig=secret", 0, 9, "e", whole=True), (ALL,), "e", 9)
    CachedObjects(cache._tiers, place).keep(missing, DATA[:9], "e")
    assert [each.url for each in cache.entries()] == ["https://host/k?…"]
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
