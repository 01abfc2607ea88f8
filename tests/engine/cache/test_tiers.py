"""A cache as its users see it: nothing that goes wrong with the disk breaks a read."""

import os
import pickle
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.engine.cache.entry import About
from penstock.engine.cache.files import path_of
from penstock.engine.cache.tiers import Cache, CacheTiers, tiers_of
from penstock.errors import ConfigError
from penstock.options import CacheOptions
from tests.children import in_child
from tests.engine.cache.entries import MIB, cache_in, content, du, held, keep, name


def test_kept_entry_is_readable_in_same_process_and_in_a_child(tmp_path):
    cache = cache_in(tmp_path)
    assert held(cache, "a") is None
    assert keep(cache, "a")
    assert held(cache, "a") == content("a")

    def child():
        assert held(cache, "a") == content("a")
        assert keep(cache, "b")

    in_child(child)
    assert held(cache, "b") == content("b")


def test_equal_options_share_one_cache_object_per_process(tmp_path):
    options = CacheOptions(path=str(tmp_path))
    assert tiers_of(options) is tiers_of(pickle.loads(pickle.dumps(options)))


def test_a_directory_that_is_deleted_under_it_is_made_again(tmp_path):
    cache = cache_in(tmp_path)
    keep(cache, "a")
    shutil.rmtree(tmp_path / "penstock-cache-1")
    assert held(cache, "a") is None
    assert keep(cache, "a")
    assert held(cache, "a") == content("a")
    assert cache.usage().entries == 1


def test_a_directory_that_is_deleted_while_threads_use_it_breaks_no_read(tmp_path):
    cache = cache_in(tmp_path)

    def use(number):
        for each in range(60):
            keep(cache, f"{number}/{each}", 1000)
            assert held(cache, f"{number}/{each}") in (None, content(f"{number}/{each}", 1000))

    with ThreadPoolExecutor(4) as threads:
        uses = [threads.submit(use, number) for number in range(4)]
        while not all(each.done() for each in uses):
            shutil.rmtree(tmp_path / "penstock-cache-1", ignore_errors=True)
    assert [each.exception() for each in uses] == [None] * 4


def test_a_disk_that_is_really_full_breaks_no_read(disk, caplog):
    def child():
        cache = cache_in(disk)
        kept = [key for key in map(str, range(200)) if keep(cache, key, 20_000)]
        assert 10 < len(kept) < 120
        assert "stores no new entries" in caplog.text
        assert all(held(cache, key) == content(key, 20_000) for key in kept)
        assert cache.verify().damaged == 0

    in_child(child)  # a mapping of the disk's would keep it mounted


def test_a_disk_that_is_full_before_the_cache_is_made_breaks_nothing(disk):
    def child():
        cache = cache_in(disk / "near")
        (disk / "near" / "penstock-cache-1" / "writers").mkdir(parents=True)
        (disk / "near" / "penstock-cache-1").chmod(0o700)
        with suppress(OSError), open(disk / "other", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        assert not keep(cache, "a")
        assert cache._tiers.room_bytes() == 0
        assert held(cache, "a") is None

    in_child(child)


def test_a_damaged_entry_is_a_miss_and_is_removed(tmp_path, caplog):
    cache = cache_in(tmp_path)
    keep(cache, "a")
    (path,) = (tmp_path / "penstock-cache-1").glob("??/*")
    data = bytearray(path.read_bytes())
    data[77] ^= 1
    path.write_bytes(data)
    assert held(cache, "a") is None
    assert "damaged" in caplog.text
    assert cache._tiers.counts.damaged == 1
    assert not path.exists()
    assert keep(cache, "a")
    assert held(cache, "a") == content("a")


def test_verify_reports_and_removes_damaged_entries(tmp_path):
    cache, told = cache_in(tmp_path), []
    for key in "abc":
        keep(cache, key)
    path = next((tmp_path / "penstock-cache-1").glob("??/*"))
    os.truncate(path, 5000)
    (path.parent / "stray").write_bytes(b"no entry")
    found = cache.verify(lambda *each: told.append(each))
    assert (found.entries, found.damaged, found.size_bytes) == (4, 2, 20_000)
    assert sum(count for count, _ in told) == 4
    assert sum(size for _, size in told) == 20_000
    assert cache.usage().entries == 2


def test_a_clear_leaves_nothing(tmp_path):
    cache = cache_in(tmp_path)
    for key in "abc":
        keep(cache, key)
    done = cache.clear()
    assert done.entries == 3
    assert [*tmp_path.iterdir()] == []
    assert keep(cache, "a")
    assert held(cache, "a") == content("a")


def test_a_clear_by_prefix_leaves_the_others(tmp_path):
    cache = cache_in(tmp_path)
    for key in ("a/1", "a/2", "b/1"):
        keep(cache, key)
    assert cache.clear("s3://bucket/a/").entries == 2
    assert [held(cache, key) is not None for key in ("a/1", "a/2", "b/1")] == [False, False, True]


def test_unwritable_cache_directory_is_logged_once_and_raises_nothing(tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    cache = cache_in(tmp_path / "file")
    assert not keep(cache, "a")
    assert not keep(cache, "b")
    assert held(cache, "a") is None
    assert len(caplog.records) == 1
    assert "stores no new entries" in caplog.text


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o722])
def test_a_directory_that_others_or_a_group_may_write_to_is_refused(tmp_path, mode):
    keep(cache_in(tmp_path), "a")
    (tmp_path / "penstock-cache-1").chmod(mode)
    again = cache_in(tmp_path)
    for use in (lambda: keep(again, "b"), lambda: held(again, "a")):
        with pytest.raises(ConfigError, match="other users"):
            use()


def test_the_default_is_below_the_users_cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert CacheTiers(CacheOptions()).disk.root == str(tmp_path / "penstock" / "penstock-cache-1")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert CacheTiers(CacheOptions()).disk.root == str(tmp_path / ".cache" / "penstock" / "penstock-cache-1")
    assert CacheTiers(CacheOptions(path="~/x")).disk.root == str(tmp_path / "x" / "penstock-cache-1")


def test_ttl_is_asked_for_by_time(tmp_path):
    cache = cache_in(tmp_path)
    keep(cache, "a")
    kept_s = cache._tiers.look(name("a")).kept_s
    assert cache._tiers.read(name("a"), 0, 10, since_s=kept_s) is not None
    assert cache._tiers.read(name("a"), 0, 10, since_s=kept_s + 0.001) is None


def test_hit_share_is_shared_with_other_cache_instances(tmp_path):
    cache = cache_in(tmp_path)
    keep(cache, "a")
    for _ in range(6400):
        cache._tiers.note(hit=True, size_bytes=1)
    assert cache._tiers.counts.hits == 6400
    assert cache_in(tmp_path).usage().hit_share > 0.9
    assert du(tmp_path) < 1 << 20


LOOKS = {
    "entries": lambda cache: list(cache.entries()),
    "usage": Cache.usage,
    "verify": Cache.verify,
    "clear": Cache.clear,
    "clear, a prefix": lambda cache: cache.clear("s3://"),
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("below", ["", "/cache/deep"])
def test_a_file_in_place_of_the_directory_is_refused(tmp_path, name, below):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ConfigError, match="choose a directory for the cache"):
        LOOKS[name](Cache(CacheOptions(path=f"{tmp_path}/file{below}")))
    own = tmp_path / "penstock-cache-1"
    own.write_bytes(b"x")
    with pytest.raises(ConfigError, match="choose a directory for the cache"):
        LOOKS[name](Cache(CacheOptions(path=str(tmp_path))))


@pytest.mark.parametrize("name", LOOKS)
def test_a_directory_that_is_not_there_yet_is_an_empty_cache(tmp_path, name):
    LOOKS[name](Cache(CacheOptions(path=str(tmp_path / "none"))))
    assert not (tmp_path / "none").exists()


def test_cache_works_after_descriptors_are_closed_and_keeps_reused_numbers_open(tmp_path):
    """As daemons do. The numbers of the cache's files are those of others then."""
    root = tmp_path / "penstock-cache-1"

    def child():
        cache = cache_in(tmp_path)
        assert keep(cache, "a")
        known = {path.stat().st_ino for path in (root / "lock", root / "state", *(root / "writers").iterdir())}
        closed = [number for number in range(3, 256) if _inode(number) in known]
        assert len(closed) == 3
        for number in closed:
            os.close(number)
        os.utime(root / path_of(name("a")), (0, 0))  # so that the hit tells how long it has waited
        assert held(cache, "a") == content("a")
        for number in closed:
            os.dup2(os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT), number)
        inodes = {number: _inode(number) for number in closed}
        assert keep(cache, "b")
        assert held(cache, "b") == content("b")
        assert {number: _inode(number) for number in closed} == inodes
        cache.close()
        assert {number: _inode(number) for number in closed} == inodes

    in_child(child)


def _inode(descriptor):
    with suppress(OSError):
        return os.fstat(descriptor).st_ino
    return None


@pytest.mark.parametrize("given", [5, "directory", None])
def test_a_cache_of_something_else_than_options_is_refused(given):
    with pytest.raises(ConfigError, match="options must be CacheOptions"):
        Cache(given)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, whom root can be")
def test_another_users_swap_of_the_directory_costs_the_cache_and_never_a_read():
    """Above the cache others may write, so one puts a directory of theirs in its place, in a process that reads."""
    place = Path(tempfile.mkdtemp())
    try:
        place.chmod(0o777)
        (victim := place / "victims").mkdir(mode=0o700)
        for number in range(256):
            (victim / f"{number}").write_bytes(bytes(1000))
        cache = cache_in(place, 4 * MIB)
        keep(cache, "a")
        forged = cache_in(place / "evil", 4 * MIB)
        forged._tiers.store(name("a"), b"forged", About("s3://bucket/a", "etag", 0, 6))
        shards = place / "evil" / "penstock-cache-1"
        for number in range(256):
            with suppress(FileExistsError):
                (shards / f"{number:02x}").symlink_to(victim)
        for path in (place / "evil", shards, *shards.rglob("*")):
            os.chown(path, 12345, 12345, follow_symlinks=False)

        def child():
            os.setuid(12345)
            os.rename(place / "penstock-cache-1", place / "aside")  # noqa: PTH104
            os.rename(shards, place / "penstock-cache-1")  # noqa: PTH104

        in_child(child)
        assert held(cache, "a") in (content("a"), None)
        assert cache._tiers.look(name("a")).size_bytes != len(b"forged")
        for number in range(400):  # more than fits, so that some are given up
            keep(cache, f"{number}", 20_000)
        cache.clear()
        assert len([*victim.iterdir()]) == 256
        again = cache_in(place, 4 * MIB)
        for use in (lambda: keep(again, "b"), lambda: held(again, "a"), again.clear, lambda: [*again.entries()]):
            with pytest.raises(ConfigError, match="other users"):
                use()
        assert len([*victim.iterdir()]) == 256
    finally:
        shutil.rmtree(place)


def test_a_link_in_the_place_of_the_directory_is_refused(tmp_path):
    keep(cache_in(tmp_path / "one"), "a")
    (tmp_path / "two").mkdir()
    (tmp_path / "two/penstock-cache-1").symlink_to(tmp_path / "one/penstock-cache-1")
    with pytest.raises(ConfigError, match="other users"):
        held(cache_in(tmp_path / "two"), "a")


def test_a_process_that_closes_all_its_descriptors_reads_on(tmp_path):
    keep(cache_in(tmp_path), "a")

    def child():
        cache = cache_in(tmp_path)
        assert held(cache, "a") == content("a")
        os.closerange(3, 256)
        for _ in range(20):  # others in their places
            os.open("/", os.O_RDONLY)
        assert held(cache, "a") == content("a")
        assert keep(cache, "b")
        assert held(cache, "b") == content("b")

    in_child(child)
