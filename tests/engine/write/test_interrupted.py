"""Ctrl-C while a request takes effect: after the interrupted call has returned, nothing of it appears."""

import os
import signal
import threading
import time
from functools import partial

import pytest

import penstock as ps
from penstock.engine.fetch import fetcher
from penstock.engine.transport import work
from penstock.options import RetryOptions, WriteOptions
from penstock.source import Source, open_source
from penstock.stores import memory
from penstock.stores.local import aside
from penstock.stores.local import driver as local
from penstock.stores.urls import parse
from penstock.testing.servers import Scripted, reply
from tests.engine.write.uploads import PART, Uploads
from tests.threads import until

# The longest that a step waits for a second write, which can come first only if the first was let go.
_MOST_S = 0.5


class _Slow:
    """A step of a write that presses Ctrl-C in its first call, and goes on when the second write was made."""

    def __init__(self, step):
        self._step, self._calls = step, 0
        self.second, self.over = threading.Event(), threading.Event()

    def __call__(self, *arguments, **options):
        self._calls += 1
        if self._calls > 1:
            return self._step(*arguments, **options)
        os.kill(os.getpid(), signal.SIGINT)
        self.second.wait(_MOST_S)
        try:
            return self._step(*arguments, **options)
        finally:
            self.over.set()


def _opened(url, data):
    with ps.open(url, "wb") as file:
        file.write(data)


def _in_parts(url, data):
    _, key = open_source(url)
    source = Source(parse(str(url)), ps.StoreOptions(write=WriteOptions(part_bytes=PART, buffer_bytes=2 * PART)))
    with source.open_write(key) as file:
        file.write(data.ljust(PART + 1, b" "))


def _put(url, data):
    source, key = open_source(url)
    source.put(key, data)


def _copied(url, _):
    source, key = open_source(url)
    source.copy(f"{key}-source", key, source.head(f"{key}-source"))


def _then_second(slow, write):
    """Make a second write, let the interrupted one go on behind it, and wait until the stores' threads have ended."""
    write()
    slow.second.set()
    assert slow.over.wait(60)
    until(lambda: not any(each._jobs for each in list(work._all)))


@pytest.mark.parametrize("write", [_opened, _in_parts, _put])
@pytest.mark.parametrize("step", ["rename", "flush"])
def test_an_interrupted_write_of_a_file_never_replaces_a_later_one(monkeypatch, tmp_path, write, step):
    path = tmp_path / "key"
    slow = _Slow(os.replace if step == "rename" else os.fsync)
    if step == "flush":
        monkeypatch.setattr(os, "fsync", slow)
    else:
        monkeypatch.setattr(aside.publish, "__defaults__", (slow,))
        monkeypatch.setattr(aside, "renaming", lambda *_, **__: slow)
    with pytest.raises(KeyboardInterrupt):
        write(path, b"interrupted")
    _then_second(slow, partial(_opened, path, b"second"))
    assert path.read_bytes() == b"second"
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_an_interrupted_deletion_of_a_file_never_deletes_a_later_one(monkeypatch, tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b"first")
    slow = _Slow(os.unlink)
    monkeypatch.setattr(local.os, "unlink", slow)
    with pytest.raises(KeyboardInterrupt):
        ps.delete(path)
    _then_second(slow, partial(path.write_bytes, b"second"))
    assert path.read_bytes() == b"second"


@pytest.mark.parametrize("write", [_opened, _in_parts, _put, _copied])
def test_an_interrupted_write_to_memory_never_replaces_a_later_one(monkeypatch, write):
    url = f"memory://interrupted/{write.__name__}"
    if write is _copied:
        _put(f"{url}-source", b"interrupted")
    slow = _Slow(memory.time)
    monkeypatch.setattr(memory, "time", slow)
    with pytest.raises(KeyboardInterrupt):
        write(url, b"interrupted")
    _then_second(slow, partial(_opened, url, b"second"))
    assert ps.open(url).read() == b"second"


class TestServers:
    """A request that the server has is answered before the interrupted call returns."""

    @pytest.mark.parametrize(("verb", "size"), [("put", 10), ("complete", PART + 1)])
    def test_an_object_appears_before_the_interrupt_is_raised_or_never(self, verb, size):
        def late(_received, send, answer):
            os.kill(os.getpid(), signal.SIGINT)
            raised.wait(_MOST_S)
            send(answer())
            return True

        raised, script = threading.Event(), Uploads(**{verb: late})
        with Scripted(script) as server:
            write = WriteOptions(part_bytes=PART, buffer_bytes=2 * PART)
            store = ps.S3Options(endpoint=server.url, anonymous=True, write=write)
            with pytest.raises(KeyboardInterrupt), ps.open("s3://bucket/key", "wb", store=store) as file:
                file.write(bytes(size))
            published = script.published
            raised.set()
        assert published

    def test_a_refused_request_is_not_made_again_after_an_interrupt(self, monkeypatch):
        def refuse(_received, send, _answer):
            puts.append(1)
            if len(puts) == 1:
                os.kill(os.getpid(), signal.SIGINT)
                called_off.wait(60)
            send(reply(503, b""))
            return True

        def look(seconds):
            called_off.set()
            time.sleep(seconds)

        # What is called off is looked at until it has ended.
        monkeypatch.setattr(fetcher, "sleep", look)
        puts, called_off, script = [], threading.Event(), Uploads(put=refuse)
        with Scripted(script) as server:
            store = ps.S3Options(endpoint=server.url, anonymous=True, retry=RetryOptions(base_s=0.001))
            source, key = open_source("s3://bucket/key", store)
            with pytest.raises(KeyboardInterrupt):
                source.put(key, b"data")
        assert puts == [1]

    def test_a_server_that_never_answers_is_named_in_a_note(self):
        def silent(_received, _send, _answer):
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(60)
            return False

        over = threading.Event()
        with Scripted(Uploads(put=silent)) as server:
            store = ps.S3Options(endpoint=server.url, anonymous=True, retry=RetryOptions(patience_s=6))
            source, key = open_source("s3://bucket/key", store)
            with pytest.raises(KeyboardInterrupt) as caught:
                source.put(key, b"data")
            over.set()
        assert "may still carry it out: s3://bucket/key" in caught.value.__notes__[0]
