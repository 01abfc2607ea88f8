"""What is told of a cache: its entries, how full it is, what was compared and removed."""

from time import time

from tests.engine.cache.entries import cache_in, du, keep


def test_entries_report_url_etag_size_and_stored_bytes(tmp_path):
    cache = cache_in(tmp_path)
    for key in ("a", "a/b", "ä 🎈"):
        keep(cache, key)
    found = {each.url: each for each in cache.entries()}
    assert sorted(found) == ["s3://bucket/a", "s3://bucket/a/b", "s3://bucket/ä 🎈"]
    each = found["s3://bucket/a"]
    assert (each.etag, each.start, each.size_bytes, each.object_bytes) == ("etag", 0, 10_000, 10_000)
    assert each.stored_bytes >= each.size_bytes
    assert abs(time() - each.used_s) < 600
    assert abs(time() - each.kept_s) < 600
    usage = cache.usage()
    assert usage.entries == 3
    assert sum(each.stored_bytes for each in found.values()) <= usage.stored_bytes <= du(tmp_path) + 8192
    assert usage.path.startswith(str(tmp_path))


def test_a_cache_that_was_never_used_makes_no_directory(tmp_path):
    cache = cache_in(tmp_path / "never")
    assert cache.usage().entries == cache.verify().entries == cache.clear().entries == len([*cache.entries()]) == 0
    assert not (tmp_path / "never").exists()
