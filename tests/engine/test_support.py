"""A store without a verb says so before any request, by every public way to that verb, and does all its other verbs."""

import sys
import uuid

import pytest
import torch

import penstock as ps
from penstock.checkpoint.dcp import StorageWriter
from penstock.cli import main
from penstock.engine.contracts.driver import Copy, Delete, Head, Limits, List, Multipart, PartCopy, Put, Read
from penstock.engine.fetch.fetcher import Fetcher
from penstock.engine.support import require, supports
from penstock.engine.transport.work import Threads
from penstock.engine.write.copy import copy
from penstock.errors import Unsupported, Unusable
from penstock.options import ReadOptions, RetryOptions, WriteOptions
from penstock.source import open_source
from penstock.stores import urls
from penstock.stores.local.driver import LocalDriver
from penstock.stores.memory import MemoryDriver
from penstock.stores.s3.driver import S3Driver
from tests import readonly

VERBS = (Head, Read, List, Put, Multipart, Copy, PartCopy, Delete)


@pytest.fixture
def bucket(monkeypatch):
    """A read-only bucket with one object, ``train/1``, and the same one that takes writes."""
    monkeypatch.setitem(urls._loaded, "readonly", readonly.ReadOnlyStore())
    name = f"bucket-{uuid.uuid4().hex}"
    with ps.open(f"memory://{name}/train/1", "wb") as file:
        file.write(b"one")
    readonly.requests.clear()
    return f"readonly://{name}", f"memory://{name}"


def _state():
    return {"weight": torch.arange(3)}


# By the verb that is missing: each public way to it, of a bucket's URL.
WAYS = {
    "open-wb": ("write objects", lambda url: ps.open(f"{url}/x", "wb")),
    "open-xb": ("write objects", lambda url: ps.open(f"{url}/x", "xb")),
    "copy-into": ("write objects", lambda url: ps.copy("memory://elsewhere/x", f"{url}/x")),
    "copy-within": ("write objects", lambda url: ps.copy(f"{url}/train/1", f"{url}/x")),
    "delete": ("delete objects", lambda url: ps.delete(f"{url}/train/1")),
    "delete-many": ("delete objects", lambda url: ps.delete([f"{url}/train/", f"{url}/train/1"])),
    "save": ("write objects", lambda url: ps.save(_state(), f"{url}/model.pt")),
    "checkpoint-writer": ("write objects", lambda url: ps.Checkpoint().writer(f"{url}/model.pt")),
    "manager-save": ("write objects", lambda url: ps.CheckpointManager(f"{url}/run/").save(1, _state())),
    "overwrite": ("write objects", lambda url: ps.CheckpointManager(f"{url}/run/").save(1, _state(), overwrite=True)),
    "safetensors": ("write objects", lambda url: ps.save_safetensors(_state(), f"{url}/model.safetensors")),
    "dcp": ("write objects", lambda url: StorageWriter(f"{url}/dcp/").set_up_storage_writer(True)),
    "source-put": ("write objects", lambda url: open_source(url)[0].put("x", b"")),
    "source-publish": ("write objects", lambda url: open_source(url)[0].publish("x", b"")),
    "source-copy": ("copy objects", lambda url: open_source(url)[0].copy("train/1", "x")),
    "source-unfinished": ("take an object in parts", lambda url: list(open_source(url)[0].unfinished(""))),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_missing_verb_is_unsupported_before_any_request(bucket, way):
    url, _ = bucket
    action, call = WAYS[way]
    with pytest.raises(Unsupported, match=f"the store {url}/ cannot {action}: ") as caught:
        call(url)
    assert caught.value.url.startswith(f"{url}/")
    assert readonly.requests == []


@pytest.mark.parametrize(
    ("words", "action"),
    [
        (["cp", "memory://elsewhere/x", "{}/x"], "write objects"),
        (["cp", "{}/train/1", "{}/x"], "write objects"),
        (["cp", "-r", "--dry-run", "{}/train/", "{}/y/"], "write objects"),
        (["mv", "{}/train/1", "memory://elsewhere/x"], "delete objects"),
        (["mv", "-r", "{}/train/", "memory://elsewhere/"], "delete objects"),
        (["rm", "{}/train/1"], "delete objects"),
        (["rm", "-r", "--yes", "{}/train/"], "delete objects"),
        (["rm", "--incomplete", "{}/train/"], "take an object in parts"),
    ],
    ids=" ".join,
)
def test_a_command_that_needs_a_missing_verb_ends_with_one_line_and_status_2(
    bucket, monkeypatch, capsys, words, action
):
    url, _ = bucket
    monkeypatch.setattr(sys, "argv", ["penstock", *(word.format(url) for word in words)])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert (ended.value.code, told.out, readonly.requests) == (2, "", [])
    assert [f"cannot {action}: " in line for line in told.err.splitlines()] == [True], told.err


def test_a_read_only_store_is_read_listed_copied_from_and_trained_from(bucket):
    url, twin = bucket
    assert [each.key for each in ps.list(f"{url}/")] == ["train/1"]
    assert ps.stat(f"{url}/train/1").size == 3
    with ps.open(f"{url}/train/1") as file:
        assert file.read() == b"one"
    assert [bytes(sample.data) for sample in ps.MapDataset.from_prefix(f"{url}/train/")] == [b"one"]
    ps.copy(f"{url}/train/1", f"{twin}/copied")
    assert ps.stat(f"{twin}/copied").size == 3


def test_checkpoints_are_loaded_from_a_read_only_store(bucket):
    url, twin = bucket
    ps.save(_state(), f"{twin}/model.pt")
    ps.CheckpointManager(f"{twin}/run/").save(1, _state())
    assert ps.load(f"{url}/model.pt")["weight"].tolist() == [0, 1, 2]
    assert ps.CheckpointManager(f"{url}/run/").restore()["weight"].tolist() == [0, 1, 2]


class Small(MemoryDriver):
    """A store that takes an object in one request only, copies nothing, and lists nothing."""

    create = copy = copy_part = list = None


class Partless(MemoryDriver):
    """A store that copies whole objects only."""

    copy_part = None


def test_a_verb_is_there_when_all_its_methods_are():
    assert all(supports(driver, verb) for driver in (S3Driver, LocalDriver, MemoryDriver) for verb in VERBS)
    assert [verb.__name__ for verb in VERBS if supports(Small("m"), verb)] == ["Head", "Read", "Put", "Delete"]
    reads = readonly.ReadOnly(MemoryDriver("m"), "m")
    assert [verb.__name__ for verb in VERBS if supports(reads, verb)] == ["Head", "Read", "List"]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_unsupported_verb_error_names_store_object_and_remedy(verb):
    class Nothing:
        def url(self, key):
            return f"nothing://store/{key}"

    with pytest.raises(Unsupported, match=r"the store nothing://store/ cannot .+: .+") as caught:
        require(Nothing(), verb, "a/key")
    assert caught.value.url == "nothing://store/a/key"
    assert isinstance(caught.value, Unusable)


def test_object_within_one_request_is_written_to_store_without_multipart_uploads(monkeypatch):
    class SmallStore(readonly.ReadOnlyStore):
        def open(self, opening):
            return Small(opening.bucket), Threads(2)

    monkeypatch.setitem(urls._loaded, "readonly", SmallStore())
    name = f"readonly://{uuid.uuid4().hex}"
    few = ps.StoreOptions(write=WriteOptions(part_bytes=5 << 20))
    with ps.open(f"{name}/x", "wb", store=few) as file:
        file.write(b"x" * (4 << 20))
    assert ps.stat(f"{name}/x").size == 4 << 20
    parts = pytest.raises(Unsupported, match=r"in parts: pass WriteOptions\(part_bytes=…\)")
    with parts, ps.open(f"{name}/y", "wb", store=few) as file:
        file.write(b"x" * (11 << 20))
    with pytest.raises(ps.errors.NotFound):
        ps.stat(f"{name}/y")
    with pytest.raises(Unsupported, match="cannot list objects: name them"):
        next(ps.list(name))
    ps.copy(f"{name}/x", f"{name}/z")
    assert ps.stat(f"{name}/z").size == 4 << 20


def test_a_long_object_is_copied_through_this_machine_where_parts_cannot_be_copied():
    driver = Partless(f"m-{uuid.uuid4().hex}")
    fetcher = Fetcher(driver, Threads(2), RetryOptions(), ReadOptions(), Limits(copy_bytes=1 << 20))
    source, _ = open_source(driver.url(""))
    data = bytes(range(256)) * (6 << 12)
    source.put("from", data)
    copy(fetcher, source.head("from"), "to", WriteOptions())
    assert source.read_many([ps.values.Span("to", 0, len(data))]) == [data]
