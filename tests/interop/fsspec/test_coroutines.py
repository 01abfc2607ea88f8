"""fsspec's own abstract suite, as it is, on every store; by the blocking methods and by the coroutines."""

from __future__ import annotations

import asyncio
import io
import threading
import uuid

import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

import penstock as ps
from penstock.errors import AlreadyExists, InvalidURL, NotFound, Unusable
from penstock.interop.fsspec import PenstockFileSystem, coroutines
from penstock.interop.fsspec.coroutines import parent, strip_scheme, url_of
from penstock.source import open_source
from penstock.stores.memory import MemoryDriver
from tests.emulators import EMULATORS, names


class Awaited:
    """An ``asynchronous=True`` file system whose coroutines are awaited, on a loop of another thread."""

    def __init__(self, fs, loop):
        self._fs, self._loop = fs, loop

    def __getattr__(self, name):
        coroutine = getattr(self._fs, f"_{ {'cp': 'copy'}.get(name, name) }", None)
        if not asyncio.iscoroutinefunction(coroutine):
            return getattr(self._fs, name)
        return lambda *args, **options: asyncio.run_coroutine_threadsafe(
            coroutine(*args, **options), self._loop
        ).result(60)


@pytest.fixture(scope="module")
def loop():
    """Run an event loop on a thread of its own."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join(60)
    running.close()


class Fixtures(AbstractFixtures):
    """A file system of ``penstock://``, given URLs."""

    @pytest.fixture
    def fs(self, place):
        return PenstockFileSystem(place.store)

    @pytest.fixture
    def fs_path(self, place):
        return place.url.rstrip("/")

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class AwaitedFixtures(Fixtures):
    """The same, awaited."""

    @pytest.fixture
    def fs(self, place, loop):
        return Awaited(PenstockFileSystem(place.store, asynchronous=True), loop)


# The whole suite takes up to a minute for each store, so all stores run it in `make soak`. Every day memory does, both
# ways, and S3 in its quickest emulator (6 s); of all others a part. An account with a hierarchical namespace is none of
# them: its folders stay when they are empty, and a key cannot lie below another, as the suite has it.
FOLDERS = "azure-hns"
WHOLE = names(without=tuple(each for each in EMULATORS if each != "memory"))
DAILY = names(without=tuple(each for each in EMULATORS if each not in ("memory", "s3")))
REST = names(without=("memory", "s3", FOLDERS))
OTHERS = names(without=("memory", FOLDERS))


class Every(AbstractCopyTests, AbstractGetTests, AbstractPutTests, AbstractPipeTests, AbstractOpenTests):
    """All of it."""


@pytest.mark.parametrize("place", DAILY, indirect=True)
class TestBlocking(Fixtures, Every):
    pass


@pytest.mark.parametrize("place", WHOLE, indirect=True)
class TestAwaited(AwaitedFixtures, Every):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("place", REST, indirect=True)
class TestBlockingElsewhere(Fixtures, Every):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("place", OTHERS, indirect=True)
class TestAwaitedElsewhere(AwaitedFixtures, Every):
    pass


@pytest.mark.parametrize("place", REST, indirect=True)
class TestQuickElsewhere(Fixtures, AbstractPipeTests, AbstractOpenTests):
    """Of the suite what is quick on each store."""

    test_copy = AbstractCopyTests.test_copy_directory_to_existing_directory
    test_copy_list = AbstractCopyTests.test_copy_list_of_files_to_existing_directory
    test_get = AbstractGetTests.test_get_directory_to_existing_directory
    test_put = AbstractPutTests.test_put_directory_to_existing_directory


@pytest.mark.parametrize("place", OTHERS, indirect=True)
class TestQuickAwaitedElsewhere(AwaitedFixtures, AbstractPipeTests):
    """The same, awaited."""

    test_copy = AbstractCopyTests.test_copy_directory_to_existing_directory
    test_get = AbstractGetTests.test_get_directory_to_existing_directory
    test_put = AbstractPutTests.test_put_directory_to_existing_directory


def test_coroutines_run_on_two_busy_loops_at_once():
    fs = PenstockFileSystem(asynchronous=True)
    root = f"memory://{uuid.uuid4().hex}"
    keys = [f"{root}/{number:03}" for number in range(50)]

    async def busy(done):
        ticks = 0
        while not done.is_set():
            ticks += 1
            await asyncio.sleep(0)
        return ticks

    async def main():
        done = asyncio.Event()
        ticking = asyncio.create_task(busy(done))
        await asyncio.gather(*(fs._pipe_file(each, each.encode()) for each in keys))
        found = await fs._cat_ranges(keys, 0, None)
        sizes = await asyncio.gather(*(fs._size(each) for each in keys))
        listed = await fs._find(root)
        done.set()
        assert await ticking > 1
        return found == [each.encode() for each in keys], sum(sizes) == sum(map(len, found)), listed == keys

    outcomes = []
    threads = [threading.Thread(target=lambda: outcomes.append(asyncio.run(main()))) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert outcomes == [(True, True, True)] * 2


def test_a_batch_that_is_cancelled_is_called_off(monkeypatch):
    fs = PenstockFileSystem(asynchronous=True)
    root = f"memory://{uuid.uuid4().hex}"
    gate, begun = threading.Event(), threading.Event()
    whole = MemoryDriver.read

    def held(self, span, target):
        exchange = whole(self, span, target)
        run = exchange.request.run
        exchange.request.run = lambda: (begun.set(), gate.wait(60), run())[2]
        return exchange

    async def main():
        await fs._pipe_file(f"{root}/k", b"0123")
        monkeypatch.setattr(MemoryDriver, "read", held)
        reading = asyncio.create_task(fs._cat_ranges([f"{root}/k"] * 100, range(100), range(2, 102), max_gap=0))
        assert await asyncio.to_thread(begun.wait, 60)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        gate.set()
        return await fs._cat_file(f"{root}/k", 1, 3)

    assert asyncio.run(main()) == b"12"


@pytest.fixture
def source():
    found, _ = open_source(f"memory://{uuid.uuid4().hex}/")
    for key in ("a/x", "a/b/y", "ab", "c/", "c/d/", "e"):
        found.put(key, key.encode())
    return found


def _key(source):
    return lambda url: url.removeprefix(source.root)


def test_ls_returns_only_direct_children(source):
    found = {each["name"]: each["type"] for each in coroutines.ls(source, "", _key(source))}
    assert found == {"a": "directory", "ab": "file", "c": "directory", "e": "file"}
    assert [each["name"] for each in coroutines.ls(source, "a", _key(source))] == ["a/x", "a/b"]
    assert [each["name"] for each in coroutines.ls(source, "e", _key(source))] == ["e"]
    assert [each["name"] for each in coroutines.ls(source, "c", _key(source))] == ["c/d"]
    assert coroutines.ls(source, "c/d", _key(source)) == []
    with pytest.raises(NotFound):
        coroutines.ls(source, "none", _key(source))


def test_all_that_lies_below(source):
    assert sorted(coroutines.under(source, "", "", _key(source), withdirs=False)) == ["a/b/y", "a/x", "ab", "e"]
    with_dirs = coroutines.under(source, "", "", _key(source), withdirs=True)
    assert {name for name, each in with_dirs.items() if each["type"] == "directory"} == {"a", "a/b", "c", "c/d"}
    assert sorted(coroutines.under(source, "", "a", _key(source), withdirs=False)) == ["a/b/y", "a/x", "ab"]
    assert sorted(coroutines.under(source, "a", "", _key(source), withdirs=True)) == ["a/b", "a/b/y", "a/x"]
    found, prefixes = coroutines.level(source, "a", _key(source))
    assert ({each["name"] for each in found}, prefixes) == ({"a", "ab"}, ["a/"])
    assert sorted(source.keys_below("c/")) == ["c/", "c/d/"]


def test_descriptions(source):
    name = _key(source)
    assert coroutines.info(source, "e", name)["size"] == 1
    assert coroutines.info(source, "a", name)["type"] == "directory"
    assert coroutines.info(source, "", name)["type"] == "directory"
    with pytest.raises(NotFound, match="none"):
        coroutines.info(source, "none", name)
    file = coroutines.info(source, "a/b/y", name)
    assert coroutines.latest(source, "a/b/y", file) == coroutines.latest(source, "a/b", {"type": "directory"})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("s3://bucket/key", "bucket/key"),
        ("s3://bucket/", "bucket"),
        ("bucket/a//b/", "bucket/a//b"),
        ("gs://bucket/key/", "gs://bucket/key"),
        ("file:///", "file://"),
        ("bucket/a://b", "bucket/a://b"),
        ("s3://bucket/gs://x", "bucket/gs://x"),
        ("", ""),
    ],
)
def test_names_and_urls_lead_to_one_another(path, name):
    assert strip_scheme(path, "s3") == name
    assert strip_scheme(name, "s3") == name
    if name:
        assert strip_scheme(url_of(name, "s3"), "s3") == name


def test_parents_end_at_the_bucket():
    assert [parent(each) for each in ("b/a/c", "b", "gs://b/a", "gs://b")] == ["b/a", "", "gs://b", "gs://"]


def test_a_name_without_a_bucket_is_refused():
    with pytest.raises(InvalidURL, match="buckets cannot be listed"):
        url_of("", "s3")


@pytest.fixture
def fs():
    return PenstockFileSystem(asynchronous=True)


def test_streamed_write_is_read_back_asynchronously(fs, root):
    async def main():
        async with await fs.open_async(f"{root}/k", "wb") as file:
            assert await file.write(b"0123456789") == 10
            assert file.tell() == 10
        async with await fs.open_async(f"{root}/k") as file:
            assert (file.size, await file.read(4), file.tell()) == (10, b"0123", 4)
            file.seek(-2, io.SEEK_END)
            assert (await file.read(), await file.read()) == (b"89", b"")
        with pytest.raises(Unusable, match="closed"):
            await file.read()

    asyncio.run(main())


def test_in_a_transaction_a_file_is_published_at_its_end(fs, root):
    async def main():
        with fs.transaction:
            async with await fs.open_async(f"{root}/k", "wb") as file:
                await file.write(b"0123456789")
            assert not await fs._exists(f"{root}/k")
        assert await fs._cat_file(f"{root}/k") == b"0123456789"
        with pytest.raises(RuntimeError), fs.transaction:
            async with await fs.open_async(f"{root}/k", "wb") as file:
                await file.write(b"another")
            raise RuntimeError
        assert await fs._cat_file(f"{root}/k") == b"0123456789"

    asyncio.run(main())


def test_a_file_that_is_left_by_an_error_is_not_published(fs, root):
    async def main():
        with pytest.raises(RuntimeError):
            async with await fs.open_async(f"{root}/k", "wb") as file:
                await file.write(b"half")
                raise RuntimeError
        assert not await fs._exists(f"{root}/k")
        await fs._pipe_file(f"{root}/k", b"1")
        with pytest.raises(AlreadyExists):
            await fs.open_async(f"{root}/k", "xb")
        with pytest.raises(NotFound):
            await fs.open_async(f"{root}/none")
        for mode in ("r", "ab"):
            with pytest.raises(Unusable):
                await fs.open_async(f"{root}/k", mode)

    asyncio.run(main())


def _elsewhere(url, data=b"1"):
    with ps.open(url, "wb") as file:
        file.write(data)


def test_nothing_is_kept_by_default(root):
    fs = PenstockFileSystem()
    fs.pipe_file(f"{root}/a/x", b"1")
    looks = [
        lambda: fs.ls(f"{root}/a", detail=False),
        lambda: fs.find(root),
        lambda: fs.glob(f"{root}/a/*"),
        lambda: fs.du(root),
        lambda: fs.info(f"{root}/a/x")["size"],
        lambda: fs.ukey(f"{root}/a/x"),
        lambda: fs.isdir(f"{root}/c"),
        lambda: fs.cat_file(f"{root}/a/x"),
    ]
    before = [each() for each in looks]
    _elsewhere(f"{root}/a/x", b"longer")
    _elsewhere(f"{root}/a/y")
    _elsewhere(f"{root}/c/z")
    after = [each() for each in looks]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False] * len(looks)
    ps.delete(f"{root}/a/x")
    assert (fs.exists(f"{root}/a/x"), fs.isfile(f"{root}/a/x")) == (False, False)


def test_kept_listings_are_forgotten_by_writes_of_the_same_file_system(root):
    fs = PenstockFileSystem(use_listings_cache=True)
    fs.pipe_file(f"{root}/a/x", b"1")
    assert len(fs.ls(f"{root}/a")) == 1
    _elsewhere(f"{root}/a/y")
    assert len(fs.ls(f"{root}/a")) == 1
    fs.ls(f"{root}/a")[0]["size"] = 99
    _elsewhere(f"{root}/a/x", b"longer")
    assert (fs.info(f"{root}/a/x")["size"], fs.info(f"{root}/a/x", refresh=True)["size"]) == (1, 6)
    assert len(fs.ls(f"{root}/a", refresh=True)) == 2
    assert len(fs.ls(f"{root}/a")) == 2
    assert [names for *_, names in fs.walk(f"{root}/a", refresh=True)] == [["x", "y"]]
    _elsewhere(f"{root}/a/x")
    assert fs.info(f"{root}/a/x")["size"] == 6
    fs.ls(f"{root}/a", refresh=True)
    assert fs.info(f"{root}/a/x")["size"] == 1
    fs.invalidate_cache(f"{root}/a")
    assert len(fs.ls(f"{root}/a")) == 2
    for number, write in enumerate(
        [
            lambda: fs.pipe_file(f"{root}/a/z0", b""),
            lambda: fs.open(f"{root}/a/z1", "wb").close(),
            lambda: fs.cp_file(f"{root}/a/x", f"{root}/a/z2"),
            lambda: fs.touch(f"{root}/a/z3"),
        ]
    ):
        write()
        assert len(fs.ls(f"{root}/a")) == 3 + number
    fs.rm(f"{root}/a", recursive=True)
    assert fs.find(root) == []
    assert not fs.exists(f"{root}/a")


def test_a_listing_while_a_file_is_written_is_not_kept(root):
    fs = PenstockFileSystem(use_listings_cache=True)
    fs.pipe_file(f"{root}/a/x", b"1")
    with fs.open(f"{root}/a/y", "wb") as file:
        assert len(fs.ls(f"{root}/a")) == 1
        file.write(b"1")
    assert len(fs.ls(f"{root}/a")) == 2
    with fs.transaction:
        fs.pipe_file(f"{root}/a/z", b"1")
        assert len(fs.ls(f"{root}/a")) == 2
    assert len(fs.ls(f"{root}/a")) == 3
    fs.open(f"{root}/a/dropped", "wb").abort()
    assert len(fs.ls(f"{root}/a")) == 3
    _elsewhere(f"{root}/a/w")
    assert len(fs.ls(f"{root}/a")) == 3, "listings are kept again"


def test_a_listing_that_a_write_came_into_is_not_kept(root, monkeypatch):
    fs = PenstockFileSystem(use_listings_cache=True)
    fs.pipe_file(f"{root}/a/x", b"1")
    listed = coroutines.ls

    def check(before, write):
        def overtaken(*words):
            found = listed(*words)
            write()
            return found

        monkeypatch.setattr(coroutines, "ls", overtaken)
        assert len(fs.ls(f"{root}/a")) == before
        monkeypatch.undo()
        assert len(fs.ls(f"{root}/a")) == 3 - before
        fs.invalidate_cache()

    check(1, lambda: fs.pipe_file(f"{root}/a/y", b"1"))
    check(2, lambda: fs.rm_file(f"{root}/a/y"))
    check(1, lambda: fs.open(f"{root}/a/z", "wb").close())
