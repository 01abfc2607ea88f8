"""Filesystems that fsspec opens keep a driver's promises: in memory, in a folder, over an event loop."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import threading
import uuid
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest

import penstock as ps
import penstock.source as source_module
from penstock.engine.contracts.driver import Attributes, Payload
from penstock.engine.transport.work import Threads
from penstock.errors import (
    AlreadyExists,
    ConfigError,
    Damaged,
    Forbidden,
    InvalidURL,
    MissingExtra,
    NoSpace,
    NotFound,
    TimedOut,
    Transient,
    UnknownScheme,
    Unreachable,
    Unsupported,
    Unusable,
)
from penstock.stores.fsspec.driver import (
    FsspecDriver,
    Instances,
    Spool,
    filesystem_class,
    is_file,
    parse_info,
    translate_error,
)
from penstock.testing.drivers import KEYS, DriverContract, ReadingTests, Trial
from penstock.values import UNKNOWN_SIZE
from tests.children import forked
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


# -- What infos of filesystems say, under each of their names --


NOW = datetime(2026, 11, 22, 10, 58, tzinfo=UTC)


@pytest.mark.parametrize(
    ("info", "version"),
    [
        ({"ETag": '"abc"', "LastModified": NOW}, "abc"),
        ({"etag": "abc", "generation": "7"}, "abc"),
        ({"generation": 7}, "7"),
        ({"ETag": None, "blob_id": "f00"}, "f00"),
        ({"mtime": 12.5}, "12.5-9"),
        ({"created": NOW.replace(tzinfo=None)}, f"{NOW.timestamp()!r}-9"),
        ({"updated": "2026-11-22T10:58:00Z"}, f"{NOW.timestamp()!r}-9"),
        ({"modified": "Sun, 22 Nov 2026 10:58:00 GMT"}, f"{NOW.timestamp()!r}-9"),
        ({"updated": "yesterday"}, ""),
        ({"ino": 5}, "5-9"),
        ({}, ""),
    ],
)
def test_etag_is_derived_from_version_fields_or_modification_time(info, version):
    assert parse_info("k", {"size": 9, **info}).etag == version


def test_known_size_time_and_content_type_are_reported():
    found = parse_info("k", {"size": 9, "LastModified": NOW, "ContentType": "image/png"})
    assert (found.key, found.size, found.modified, found.content_type) == ("k", 9, NOW.timestamp(), "image/png")
    for size in (None, -1, "9", True):
        assert parse_info("k", {"size": size}).size == UNKNOWN_SIZE


def test_directory_entry_does_not_count_as_file():
    assert is_file({"type": "file"})
    assert is_file({})
    assert not is_file({"type": "directory"})


# -- Parts are put together in a file, in any order, and nothing of it stays --


def test_parts_are_written_where_they_belong():
    spool = Spool()
    upload = spool.begin("key", Attributes())
    spool.write(upload, b"56", 5)
    spool.write(upload, memoryview(b"01234"), 0)
    with open(spool.path(upload), "rb") as file:
        assert file.read() == b"0123456"
    assert [each.key for each in spool] == ["key"]
    assert Path(upload).stat().st_mode & 0o077 == 0
    for _ in range(2):
        spool.end(upload)
    assert not Path(upload).exists()
    with pytest.raises(NotFound):
        spool.path(upload)
    with pytest.raises(NotFound):
        spool.write("/etc/passwd", b"x", 0)


# -- Errors of filesystems, by class and number, and without secrets --


class AuthFailed(Exception):
    pass


class ReadTimeout(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("x"), NotFound),
        (IsADirectoryError("x"), NotFound),
        (FileExistsError("x"), AlreadyExists),
        (PermissionError("x"), Forbidden),
        (TimeoutError(), TimedOut),
        (ConnectionResetError(), Unreachable),
        (OSError(errno.EHOSTUNREACH, "x"), Unreachable),
        (EOFError(), Unreachable),
        (NotImplementedError(), Unsupported),
        (OSError(errno.ENOSPC, "x"), NoSpace),
        (OSError(errno.EROFS, "x"), Unusable),
        (OSError("something"), Transient),
        (ValueError("x"), Unusable),
        (KeyError("x"), Unusable),
        (AuthFailed(), Forbidden),
        (ReadTimeout(), TimedOut),
        (Exception("who knows"), Transient),
    ],
)
def test_exception_type_selects_the_translated_error(error, kind):
    found = translate_error(error, "read", "fsspec+x://k")
    assert type(found) is kind
    assert (found.url, found.__cause__) == ("fsspec+x://k", error)
    assert "cannot read" in str(found)


def test_penstocks_own_errors_stay():
    error = NotFound("gone")
    assert translate_error(error, "read", "u") is error
    assert error.url == "u"


def test_a_cause_with_a_secret_in_it_is_left_out():
    assert translate_error(OSError("login with hush-hush"), "read", "u", ["hush-hush"]).__cause__ is None


def test_a_server_that_cannot_be_reached_is_not_a_missing_file():
    error = FileNotFoundError("x")
    error.__cause__ = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    assert type(translate_error(error, "read", "u")) is Unreachable
    error.__cause__ = FileNotFoundError("x")
    assert type(translate_error(error, "read", "u")) is NotFound


# -- Instances: one call at a time, made anew in a forked child, and none of a class that leads back --


def test_unknown_protocol_raises_and_penstock_protocol_is_refused():
    assert filesystem_class("memory", "u").__name__ == "MemoryFileSystem"
    with pytest.raises(UnknownScheme, match="'nope'"):
        filesystem_class("nope", "u")
    with pytest.raises(InvalidURL, match="fsspec would call Penstock"):
        filesystem_class("penstock", "u")


def test_a_class_whose_library_is_missing_names_it():
    fsspec.register_implementation("lacking", "no_such_library.FS", clobber=True, errtxt="install no_such_library")
    with pytest.raises(MissingExtra, match="install no_such_library"):
        filesystem_class("lacking", "u")


def test_another_scheme_of_penstock_leads_back_too():
    fsspec.register_implementation("roundabout", "penstock.interop.fsspec.PenstockFileSystem", clobber=True)
    with pytest.raises(InvalidURL, match="fsspec would call Penstock"):
        filesystem_class("roundabout", "u")


def test_unsupported_storage_arguments_raise_config_error():
    with pytest.raises(ConfigError, match="storage_options"), Instances("github://", {"token": "x"}).borrow():
        pass


def test_two_calls_at_a_time_use_two_instances(tmp_path):
    instances = Instances(f"file://{tmp_path}/", {})
    with instances.borrow() as (one, root), instances.borrow() as (two, _):
        assert one is not two
        assert root == f"{tmp_path}/"
    with instances.borrow() as (again, _):
        assert again in (one, two)


@pytest.mark.parametrize(("error", "kept"), [(EOFError("closed"), False), (FileNotFoundError("x"), True)])
def test_instance_whose_connection_was_lost_is_not_used_again(tmp_path, error, kept):
    instances = Instances(f"file://{tmp_path}/", {})
    with pytest.raises(type(error)), instances.borrow() as (lost, _):
        raise error
    with instances.borrow() as (another, _):
        assert (another is lost) is kept


def test_an_instance_for_coroutines_serves_all():
    pytest.importorskip("aiohttp")
    instances = Instances("http://127.0.0.1:9/", {})
    with instances.borrow() as (one, _), instances.borrow() as (two, root):
        assert one is two
        assert root == "http://127.0.0.1:9/"


def test_a_forked_child_forgets_the_loop():
    asyn = pytest.importorskip("fsspec.asyn")
    asyn.get_loop()
    assert any(thread.name == "fsspecIO" for thread in threading.enumerate())
    child = os.fork()
    if not child:
        os._exit(0 if asyn.loop[0] is None and asyn.get_loop() is not None else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_forked_child_cleanup_keeps_parent_connections_usable(served):
    """They share one epoll set: what the child takes out of it the parent waits for without end."""
    pytest.importorskip("aiohttp")
    (served.folder / "x").write_bytes(b"content")
    url = f"fsspec+{served.roots['index']}x"
    assert ps.open(url).read() == b"content"

    def work():
        source_module._engines.forget()
        gc.collect()

    for _ in range(3):
        with forked(work) as status:
            assert status() == 0
    found = []
    reader = threading.Thread(target=lambda: found.append(ps.open(url).read()), daemon=True)
    reader.start()
    reader.join(20)
    assert found == [b"content"]
