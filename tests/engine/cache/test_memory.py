"""The tier in memory holds no more than it may, and what it holds is what was read."""

from penstock.engine.cache.tiers import Memory
from tests.engine.cache.entries import cache_in, content, held, keep, name


def test_entries_are_read_from_memory_when_the_files_are_gone(tmp_path):
    cache = cache_in(tmp_path, memory_bytes=100_000)
    keep(cache, "a")
    assert held(cache, "a") == content("a")
    for path in (tmp_path / "penstock-cache-1").glob("??/*"):
        path.unlink()
    assert held(cache, "a") == content("a")
    assert cache._tiers.read(name("a"), 5, 50).data == content("a")[5:50]
    memory = bytearray(45)
    assert cache._tiers.read(name("a"), 5, 50, memoryview(memory)).filled
    assert memory == content("a")[5:50]
    assert not cache._tiers.read(name("a"), 5, 10_001).filled
    cache.clear()
    assert held(cache, "a") is None


def test_the_bound_holds_and_large_entries_stay_out(tmp_path):
    cache = cache_in(tmp_path)
    memory = Memory(50_000)
    for key in "abcdefgh":
        keep(cache, key)
        memory.put(name(key), cache._tiers.read(name(key), 0, 10_000), 0.0)
    assert [key for key in "abcdefgh" if memory.get(name(key))] == ["d", "e", "f", "g", "h"]
    keep(cache, "i")
    memory.put(name("i"), cache._tiers.read(name("i"), 0, 10_000), 0.5)
    assert memory.get(name("i")) is None, "a full one takes in few"
    keep(cache, "large", 20_000)
    memory.put(name("large"), cache._tiers.read(name("large"), 0, 20_000), 0.0)
    assert memory.get(name("large")) is None
