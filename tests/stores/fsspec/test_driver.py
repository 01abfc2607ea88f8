"""Filesystems that fsspec opens keep a driver's promises: in memory, in a folder, over an event loop."""

from __future__ import annotations

import io
import sys
import uuid

import pytest

from penstock.engine.contracts.driver import Attributes, Payload
from penstock.engine.transport.work import Threads
from penstock.errors import Damaged, InvalidURL, Transient, Unsupported
from penstock.stores.fsspec.driver import FsspecDriver, Instances
from penstock.testing.drivers import KEYS, DriverContract, ReadingTests, Trial
from tests.servers.folder import WEB_KEYS, Folder

# What a path of any filesystem may be: no empty component, none of dots.
PATHS = tuple(key for key in KEYS if "" not in (parts := key.split("/")) and not any(part[0] == "." for part in parts))


def _driver(url, **options):
    protocol = url.partition("://")[0]
    return FsspecDriver(f"fsspec+{url}", protocol, Instances(url, options))


class _Contract(DriverContract):
    keys = PATHS
    page_keys = sys.maxsize
    keeps_metadata = False
    heeds = ()


class TestMemory(_Contract):
    @pytest.fixture
    def store(self):
        return _driver(f"memory://{uuid.uuid4().hex}/"), Threads()


class TestFolder(_Contract):
    @pytest.fixture
    def store(self, tmp_path):
        return _driver(f"file://{tmp_path}/"), Threads()


class TestLoop(ReadingTests):
    """A filesystem that is read by coroutines."""

    keys = tuple(key for key in WEB_KEYS if key.replace("/", "").replace(".", "").isalnum() and key.isascii())
    keeps_metadata = False

    @pytest.fixture
    def store(self, served):
        pytest.importorskip("aiohttp")
        driver = _driver(served.roots["index"])
        driver.copy = driver.delete = None  # it is read only, as the filesystem says when it is asked
        return driver, Threads()

    @pytest.fixture
    def writer(self, served):
        return Folder(served.folder, served.roots["index"]), Threads()


def _trial(fs):
    class Given(Instances):
        def _make(self):
            return fs, "bucket/"

    return Trial(FsspecDriver("fsspec+odd://bucket/", "odd", Given("odd://bucket/", {})), Threads())


class _Odd:
    """A filesystem that does what no good one would."""

    async_impl = False

    def __init__(self, **methods):
        self.__dict__.update(methods)

    def invalidate_cache(self, path):
        pass

    def info(self, path):
        return {"name": path, "size": 9, "type": "file"}


def test_more_bytes_than_were_asked_for_are_damage():
    with pytest.raises(Damaged):
        _trial(_Odd(cat_file=lambda _path, start, end: b"x" * (end - start + 1))).read("k", 0, 3)


def test_a_file_of_unsaid_size_is_read_whole_and_not_described():
    unsaid = {"size": None, "type": "file"}
    fs = _Odd(info=lambda path: {"name": path, **unsaid}, open=lambda _path, _mode: io.BytesIO(b"content"))
    assert _trial(fs).get("k") == b"content"
    with pytest.raises(Unsupported):
        _trial(fs).head("k")


def test_a_file_that_changes_while_it_is_read_is_read_again():
    with pytest.raises(Transient):
        _trial(_Odd(cat_file=lambda _path: b"another")).get("k")


def test_a_listing_outside_its_root_is_damage():
    fs = _Odd(ls=lambda _path, **_: [{"name": "elsewhere/x", "type": "file", "size": 1}])
    with pytest.raises(Damaged, match="elsewhere"):
        list(_trial(fs).pages(delimiter="/"))


def test_failed_write_keeps_old_content_and_leaves_no_temporary_file(tmp_path):
    trial = Trial(_driver(f"file://{tmp_path}/"), Threads())
    trial.put("key", b"old")
    with trial.driver._instances.borrow() as (fs, _):
        fs.mv = lambda *_: (_ for _ in ()).throw(OSError("no"))
    with pytest.raises(Transient):
        trial.put("key", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert (tmp_path / "key").read_bytes() == b"old"


@pytest.mark.parametrize("key", ["a/", "", ".penstock-0", "a/.penstock-x"])
def test_invalid_file_key_raises_invalid_url(key, tmp_path):
    trial = Trial(_driver(f"file://{tmp_path}/"), Threads())
    with pytest.raises(InvalidURL):
        trial.do(trial.driver.put(key, Payload(b"x"), Attributes()))


def test_files_that_are_being_written_are_not_listed(tmp_path):
    trial = Trial(_driver(f"file://{tmp_path}/"), Threads())
    (tmp_path / f".penstock-{uuid.uuid4().hex}").write_bytes(b"part")
    trial.put("key", b"x")
    assert trial.keys() == ["key"]
    assert [page.entries[0].key for page in trial.pages(delimiter="/")] == ["key"]


def test_only_directories_are_grouped(tmp_path):
    with pytest.raises(Unsupported):
        _driver(f"file://{tmp_path}/").list("", delimiter="-")
