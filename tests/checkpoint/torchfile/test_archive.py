"""A ``torch.save`` file is a stranger's: whatever is wrong with it is found, and nothing of it runs."""

from __future__ import annotations

import io
import pickle
import random
import signal
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import suppress

import pytest
import torch

import penstock as ps
from penstock.checkpoint.gather import Object
from penstock.checkpoint.torchfile.archive import archive
from penstock.checkpoint.torchfile.load import load_torchfile
from penstock.errors import Changed, CheckpointError, ChecksumMismatch, Damaged, InvalidURL, NotFound
from penstock.events import RangeRead, subscribe
from penstock.source import open_source

STATE = {"a": torch.arange(50), "b": [torch.arange(7.0), "text"], "c": torch.empty(0)}


def saved(obj=STATE) -> bytes:
    file = io.BytesIO()
    torch.save(obj, file)
    return file.getvalue()


def stored(body):
    source, key = open_source("memory://test-archive/a.pt")
    source.put(key, bytes(body))
    meta = source.head(key)
    return source, Object(key, meta.etag, meta.size, source.url(key), None)


def loaded(body):
    return load_torchfile(*stored(body), map_location=None, weights_only=True)


def right(found) -> bool:
    return torch.equal(found["a"], STATE["a"]) and torch.equal(found["b"][0], STATE["b"][0]) and found["b"][1] == "text"


def test_a_flipped_byte_in_any_record_is_found_and_the_record_named():
    body = saved()
    opened = archive(*stored(body))
    assert {"data.pkl", "byteorder", "version", "data/0", "data/1", "data/2"} < opened.records.keys()
    for record in opened.records.values():
        for at in {record.start, (record.start + record.stop) // 2, record.stop - 1} if record.size else ():
            damaged = bytearray(body)
            damaged[at] ^= 0x10
            with pytest.raises(ChecksumMismatch, match=f"record '{record.name}' .*memory://test-archive/a.pt"):
                loaded(damaged)


@pytest.mark.filterwarnings("ignore")
def test_a_flipped_byte_anywhere_never_gives_other_values(seed):
    rng, body, found = random.Random(seed), saved(), 0
    for at in range(len(body)):
        damaged = bytearray(body)
        damaged[at] ^= 1 << rng.randrange(8)
        try:
            assert right(loaded(damaged)), at
        except Damaged:
            found += 1
    assert found > 500


def test_a_file_that_was_cut_is_damaged_wherever_it_was():
    body = saved()
    for size in range(4, len(body)):
        with pytest.raises(CheckpointError, match=r"truncated|was cut"):
            loaded(body[:size])


def test_missing_archive_record_raises_checkpoint_error_with_its_name():
    for name in ("data/0", "data.pkl"):
        file = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(saved())) as old, zipfile.ZipFile(file, "w") as new:
            for info in old.infolist():
                if not info.filename.endswith(f"/{name}"):
                    new.writestr(info.filename, old.read(info))
        with pytest.raises(CheckpointError, match=name):
            loaded(file.getvalue())


def test_records_over_each_other_or_outside_are_refused():
    """As bombs are made: one record's bytes, given as many."""
    body = saved()
    directory = body.index(b"PK\1\2")
    entries = [at for at in range(directory, len(body)) if body.startswith(b"PK\1\2", at)]
    for header in (0, 64, len(body), 2**31):
        damaged = bytearray(body)
        for entry in entries[1:4]:
            damaged[entry + 42 : entry + 46] = header.to_bytes(4, "little")
        with pytest.raises(CheckpointError):
            loaded(damaged)
    for size in (2**31, len(body), 401, 399):
        damaged = bytearray(body)
        entry = next(at for at in entries if damaged[at + 46 :].startswith(b"archive/data/0"))
        damaged[entry + 20 : entry + 28] = 2 * size.to_bytes(4, "little")
        with pytest.raises(Damaged):
            loaded(damaged)


def test_names_are_nothing_but_names():
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved())) as old, zipfile.ZipFile(file, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
        for name in ("archive/../../etc/passwd", "archive//abs", "archive/data/../x", "archive/", "archive/ü\n"):
            new.writestr(name, b"")
    assert right(loaded(file.getvalue()))


class _Evil:
    def __reduce__(self):
        return (pytest.fail, ("this ran",))


def test_nothing_of_a_file_runs():
    body = saved({"a": torch.ones(3), "evil": _Evil(), "b": torch.ones(2)})
    opened = archive(*stored(body))
    assert [use.record.name for use in opened.uses] == ["data/0", "data/1"]
    assert not opened.plain
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        loaded(body)


def replaced(pickled):
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved())) as old, zipfile.ZipFile(file, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, pickled if info.filename.endswith("data.pkl") else old.read(info))
    return file.getvalue()


def test_unreadable_pickle_raises_checkpoint_error_unless_weights_only_is_false():
    for data in (b"", b"garbage", pickle.dumps(1)[:-1], b"\x80\x02P1\n.", b"\x80\x02K\x01Q."):
        body = replaced(data)
        with pytest.raises(CheckpointError, match=r"cannot tell.*memory://test-archive/a.pt"):
            loaded(body)
        with pytest.raises(Exception) as ours:  # noqa: PT011  torch's own, whatever it is
            load_torchfile(*stored(body), map_location=None, weights_only=False)
        with pytest.raises(ours.type):
            torch.load(io.BytesIO(body), weights_only=False)


BOMBS = {
    "a memo's index": b"\x80\x02Nr\xff\xff\xff\x0f.",
    "zeros": b"\x80\x02c__builtin__\nbytearray\nJ\0\0\0\x40\x85R.",
    "a storage": b"\x80\x02ctorch.storage\nUntypedStorage\nJ\0\0\0\x40\x85R.",
    "zeros beside a storage by number": (
        b"\x80\x02(c__builtin__\nbytearray\nJ\0\0\0\x40\x85R"
        b"(X\x07\0\0\0storagectorch\nFloatStorage\nK\0X\x03\0\0\0cpuK\x32tQt."
    ),
    "zeros beside what is no opcode of torch's": b"\x80\x02(c__builtin__\nbytearray\nJ\0\0\0\x40\x85RI1\nt.",
    "a tensor": b"\x80\x02ctorch\nTensor\nJ\0\0\0\x40\x85\x81.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_few_bytes_take_little_memory(name):
    place = stored(replaced(BOMBS[name]))
    tracemalloc.start()
    with suppress(CheckpointError):
        load_torchfile(*place, map_location=None, weights_only=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_opening_reads_the_ends_and_no_storage():
    many = {str(number): torch.zeros(1000) for number in range(3000)}
    for state, most in ((STATE, 1), ({"large": torch.zeros(5_000_000)}, 2), (many, 4)):
        place = stored(saved(state))
        reads: list[int] = []
        leave = subscribe(lambda event, to=reads: to.append(event.size_bytes) if isinstance(event, RangeRead) else None)
        assert archive(*place) is not None
        leave()
        assert 1 <= len(reads) <= most
        assert sum(reads) < 1_000_000


def test_another_version_is_not_mixed_in(tmp_path):
    source, key = open_source(f"{tmp_path}/a.pt")
    source.put(key, saved({"a": torch.zeros(5_000_000)}))
    meta = source.head(key)
    of = Object(key, meta.etag, meta.size, source.url(key), None)
    source.put(key, saved({"a": torch.ones(5_000_000)}))
    with pytest.raises(Changed):
        load_torchfile(source, of, map_location=None, weights_only=True)


# Checkpoints are files: a reader that seeks, and a writer that publishes only what is whole.


OLD = b"the checkpoint of yesterday"


@pytest.fixture
def url(bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="run/last.ckpt", Body=OLD)
    return f"{bucket.url}run/last.ckpt"


def test_checkpoint_reader_returns_the_written_bytes_and_can_seek(bucket, url):
    checkpoint = ps.Checkpoint(store=bucket.store)
    with checkpoint.writer(url) as writer:
        pickle.dump({"step": 7, "data": b"x" * 100_000}, writer)
    with checkpoint.reader(url) as reader:
        assert reader.seekable()
        assert pickle.load(reader)["step"] == 7
        reader.seek(-3, io.SEEK_END)
        assert len(reader.read()) == 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("size", [100, 40 << 20])
def test_trap_02_a_block_that_fails_publishes_nothing(bucket, url, error, size):
    with pytest.raises(error), ps.Checkpoint(store=bucket.store).writer(url) as writer:
        writer.write(b"n" * size)
        raise error
    assert bucket.client.get_object(Bucket=bucket.name, Key="run/last.ckpt")["Body"].read() == OLD
    assert bucket.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", []) == []


ENDINGS = {
    "dropped": "writer = None",
    "left open at exit": "pass",
    "sys.exit in the block": "sys.exit(0)",
    "kill -9": "os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_trap_02_a_process_that_ends_publishes_nothing(bucket, url, ending, tmp_path):
    code = f"""
import os, sys, penstock as ps
store = ps.S3Options(endpoint=sys.argv[1], access_key=sys.argv[2], secret_key=sys.argv[3])
writer = ps.open({url!r}, "wb", store=store)
writer.write(b"n" * (40 << 20))
{ENDINGS[ending]}
"""
    (tmp_path / "dies.py").write_text(code)
    server = bucket.server
    command = [sys.executable, str(tmp_path / "dies.py"), server.endpoint, server.access_key, server.secret_key]
    done = subprocess.run(command, timeout=60, check=False)
    killed = ending == "kill -9"
    assert done.returncode == (-signal.SIGKILL if killed else 0)
    assert bucket.client.get_object(Bucket=bucket.name, Key="run/last.ckpt")["Body"].read() == OLD
    uploads = bucket.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", [])
    assert len(uploads) == (1 if killed else 0)


def test_a_url_without_a_key_is_refused_before_anything_is_sent(bucket):
    for mode in ("reader", "writer"):
        with pytest.raises(InvalidURL, match="bucket"):
            getattr(ps.Checkpoint(store=bucket.store), mode)(bucket.url)


def test_nothing_to_read(bucket):
    with pytest.raises(NotFound) as caught:
        ps.Checkpoint(store=bucket.store).reader(f"{bucket.url}none")
    assert caught.value.url == f"{bucket.url}none"
    assert isinstance(caught.value, FileNotFoundError)
