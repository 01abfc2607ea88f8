"""A writer publishes whole or not at all, however it is left; trap 2 is what happens where this is not so."""

import contextlib
import gc
import io
import pickle
import signal
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.engine.contracts.driver import Attributes
from penstock.engine.contracts.exchange import Request
from penstock.engine.write import upload
from penstock.engine.write.publish import put
from penstock.errors import Cancelled, Damaged, Forbidden, NotFound, PenstockError, Transient, Unusable
from penstock.options import RetryOptions, StoreOptions
from penstock.source import Source
from penstock.stores.urls import parse
from penstock.testing.servers import Scripted, reply
from tests.children import in_child, python
from tests.engine.fetch.store import QUICK, fetcher
from tests.engine.transport.calls import Once
from tests.engine.write.uploads import OPTIONS, PART, Uploads, any_bytes, say, small_parts, unfinished, writing
from tests.servers.hostile import document
from tests.threads import at_once, until

OLD = b"what stood there before"


@pytest.fixture
def source(bucket):
    return small_parts(bucket)


def _stored(bucket, key="key"):
    return bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read()


class TestWhole:
    @pytest.mark.parametrize(
        ("size", "piece"),
        [(size, 777_777) for size in (0, 1, 100_000, PART - 1, PART, PART + 1, 2 * PART, 3 * PART + 7)]
        + [(4 * PART, 4 * PART)],
    )
    def test_written_bytes_equal_the_stored_object(self, source, bucket, size, piece):
        data = any_bytes(size)
        with source.open_write("key") as file:
            for start in range(0, size, piece):
                assert file.write(data[start : start + piece]) == len(data[start : start + piece])
                assert file.tell() == min(start + piece, size)
        assert _stored(bucket) == data
        etag = bucket.client.head_object(Bucket=bucket.name, Key="key")["ETag"]
        assert ("-" in etag) == (size > PART), "one PUT where it fits in one part"
        assert unfinished(bucket) == []

    def test_anything_with_bytes_can_be_written_and_bytes_are_counted_not_items(self, source, bucket):
        numbers = np.arange(1000.0)
        with source.open_write("key") as file:
            several = (b"a", bytearray(b"b"), memoryview(numbers), numbers[:0])
            assert [file.write(each) for each in several] == [1, 1, 8000, 0]
            with pytest.raises(TypeError):
                file.write("text")
            file.write(b"c")
        assert _stored(bucket) in (b"ab" + numbers.tobytes() + b"c", b"")
        source.put("key", memoryview(numbers))
        assert _stored(bucket) == numbers.tobytes()

    def test_wrapped_as_python_s_own_files_are(self, source, bucket):
        with io.TextIOWrapper(source.open_write("key"), encoding="utf-8") as file:
            file.write("zwölf\n" * 100)
        assert _stored(bucket).decode() == "zwölf\n" * 100
        with source.open_write("key") as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr("inside", "text")
        assert zipfile.ZipFile(io.BytesIO(_stored(bucket))).read("inside") == b"text"


class _Stop(Exception):
    """Whatever a block may raise."""


SIZES = pytest.mark.parametrize("size", [10, 2 * PART + 10])


class TestInterrupted:
    """Trap 2: each of these published a truncated object over a good one somewhere."""

    @pytest.fixture(autouse=True)
    def _old(self, bucket):
        bucket.client.put_object(Bucket=bucket.name, Key="key", Body=OLD)
        yield
        until(lambda: unfinished(bucket) == [])
        assert _stored(bucket) == OLD

    @SIZES
    @pytest.mark.parametrize("error", [_Stop, KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_trap_02_an_exception_publishes_nothing(self, source, size, error):
        with pytest.raises(error), source.open_write("key") as file:
            file.write(bytes(size))
            raise error
        assert file.closed

    @SIZES
    def test_trap_02_nor_does_close_on_the_way_out(self, source, size):
        def finally_close(file):
            try:
                file.write(bytes(size))
                raise _Stop
            finally:
                file.close()

        def closing(file):
            with contextlib.closing(file):
                file.write(bytes(size))
                raise _Stop

        def stack(file):
            with contextlib.ExitStack() as leave:
                leave.callback(file.close)
                file.write(bytes(size))
                raise _Stop

        def text(file):
            with io.TextIOWrapper(file) as wrapped:
                wrapped.write("\0" * size)
                raise _Stop

        for way in (finally_close, closing, stack, text):
            with pytest.raises(_Stop) as caught:
                way(source.open_write("key"))
            assert "nothing was published" in caught.value.__notes__[0], way

    @SIZES
    def test_trap_02_a_dropped_writer_publishes_nothing_and_logs_an_error(self, source, size, caplog):
        source.open_write("key").write(bytes(size))
        gc.collect()
        [record] = caplog.records
        assert record.levelname == "ERROR"
        assert "dropped unclosed: nothing was published; use 'with ps.open" in record.getMessage()
        assert "/key" in record.getMessage()

    def test_a_writer_of_a_generator_that_ends_early_logs_an_error(self, source, caplog):
        def rows(file):
            with file:
                yield file.write(b"half")

        for _ in rows(source.open_write("key")):
            break
        gc.collect()
        assert "a generator that ended early" in caplog.text

    @SIZES
    @pytest.mark.parametrize("wrap", [io.TextIOWrapper, io.BufferedWriter], ids=["text", "buffer"])
    def test_trap_02_a_dropped_wrapper_of_io_publishes_nothing(self, source, size, wrap):
        file = wrap(source.open_write("key"))
        file.write("\0" * size if wrap is io.TextIOWrapper else bytes(size))
        with pytest.warns(ResourceWarning, match=r"was not closed: nothing was published at s3://.*/key"):
            del file

    @pytest.mark.parametrize("left", [False, True], ids=["dropped", "left"])
    def test_garbage_may_be_collected_on_the_thread_that_sends(self, source, monkeypatch, left):
        monkeypatch.setattr(upload, "_ABORT_S", 100)
        monkeypatch.setattr(upload, "_INTERRUPTED_S", 100)

        def within(file):
            with file:
                yield

        file = source.open_write("key")
        file.write(bytes(PART + 1))
        circle = [within(file) if left else file]
        circle.append(circle)  # only the collector finds it, on whatever thread that runs
        kept = file if left else None
        if left:
            next(circle[0])
        session = source._fetcher()._transport
        call = Once(lambda: gc.collect() and Request("GET", source.options.endpoint))
        gc.disable()
        try:
            del file, circle
            session.submit([call])
            assert call.wait(60).status, "waiting there would hold up every transfer of the process"
        finally:
            gc.enable()
        assert kept is None or kept.closed

    def test_a_part_that_cannot_be_sent(self, source, bucket):
        file = source.open_write("key")
        file.write(bytes(PART + 1))
        bucket.client.abort_multipart_upload(Bucket=bucket.name, Key="key", UploadId=unfinished(bucket)[0]["UploadId"])
        with pytest.raises(PenstockError):
            file.write(bytes(6 * PART))
            file.close()
        assert file.closed
        with pytest.raises(ValueError, match="closed"):
            file.write(b"")


class TestGoingBack:
    """An object is written from its first byte to its last; some libraries do not hear that ``seek`` was refused."""

    @pytest.mark.parametrize("how", [(0,), (3,), (-1, 1), (-2, 2), (9,)], ids=str)
    def test_write_after_a_refused_seek_raises_and_publishes_nothing(self, source, bucket, how):
        file = source.open_write("key")
        file.write(b"hello")
        with pytest.raises(io.UnsupportedOperation, match="written sequentially"):
            file.seek(*how)
        with contextlib.suppress(Unusable):
            file.write(b"again")
        with pytest.raises(Unusable, match=r"io\.BytesIO"):
            file.close()
        assert "Contents" not in bucket.client.list_objects_v2(Bucket=bucket.name)

    @pytest.mark.parametrize(
        ("before", "how"), [(b"", (7,)), (b"", (0, 2)), (b"hello", (5,)), (b"hello", (0, 1))], ids=str
    )
    def test_harmless_seek_attempt_raises_but_does_not_prevent_publishing(self, source, bucket, before, how):
        with source.open_write("key") as file:
            file.write(before)
            with pytest.raises(io.UnsupportedOperation):
                file.seek(*how)
            file.write(b"more")
        assert _stored(bucket) == before + b"more"


def test_files_closed_and_blocks_left_well_inside_a_handler_publish(source, bucket):
    before = source.open_write("before")
    try:
        raise _Stop
    except _Stop:
        file = source.open_write("key")
        file.write(b"kept")
        file.close()
        with source.open_write("other") as other:
            other.write(b"kept too")
        with before:
            before.write(b"kept as well")
    assert [_stored(bucket, key) for key in ("key", "other", "before")] == [b"kept", b"kept too", b"kept as well"]


_PROCESS = """
    import os, signal, sys, threading
    from penstock import S3Options, StoreOptions, WriteOptions
    from penstock.source import open_source
    endpoint, access, secret, url, way, size = sys.argv[1:]
    part = 5 << 20
    store = S3Options(endpoint=endpoint, access_key=access, secret_key=secret, region="us-east-1",
                         write=WriteOptions(part_bytes=part, buffer_bytes=2 * part))
    source, key = open_source(url, store)
    file = source.open_write(key)
    file.write(bytes(int(size)))
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "exit":
        sys.exit(3)
    elif way == "raise":
        raise RuntimeError("oops")
    elif way == "drop":
        del file
    elif way == "term":
        os.kill(os.getpid(), signal.SIGTERM)
    elif way == "thread":
        threading.Thread(target=file.write, args=(bytes(4 * part),)).start()
"""


class TestProcesses:
    @SIZES
    @pytest.mark.parametrize("way", ["end", "exit", "raise", "drop", "thread", "term", "kill"])
    def test_trap_02_a_process_that_ends_publishes_nothing(self, moto_server, way, size):
        client = moto_server.client()
        name = f"ends-{way}-{size}"
        client.create_bucket(Bucket=name)
        client.put_object(Bucket=name, Key="key", Body=OLD)
        keys = (moto_server.endpoint, moto_server.access_key, moto_server.secret_key)
        ended = python(_PROCESS, *keys, f"s3://{name}/key", way, str(size))
        codes = {"exit": 3, "raise": 1, "term": -signal.SIGTERM, "kill": -signal.SIGKILL}
        assert ended.returncode == codes.get(way, 0), ended.stderr
        assert client.get_object(Bucket=name, Key="key")["Body"].read() == OLD
        left = client.list_multipart_uploads(Bucket=name).get("Uploads", [])
        assert len(left) == (1 if size > PART and way in ("term", "kill") else 0), "only the killed cannot clean up"

    def test_a_store_that_does_not_answer_delays_no_exit(self):
        script = """
            import threading
            from penstock import S3Options, StoreOptions, WriteOptions
            from penstock.engine.write import upload
            from penstock.source import open_source
            from penstock.testing.servers import Scripted, reply
            upload._ABORT_S = 1.0
            def answer(received, send):
                if "uploads" not in received.path:
                    threading.Event().wait()
                root = "InitiateMultipartUploadResult"
                send(reply(200, f"<{root}><UploadId>id</UploadId></{root}>".encode()))
                return True
            server = Scripted(answer).__enter__()
            write = WriteOptions(part_bytes=5 << 20, buffer_bytes=10 << 20)
            store = S3Options(endpoint=server.url, anonymous=True, write=write)
            source, key = open_source("s3://bucket/key", store)
            file = source.open_write(key)
            file.write(bytes((5 << 20) + 1))
        """
        began = time.monotonic()
        ended = python(script, limit_s=60)
        assert (ended.returncode, ended.stderr.count("\n")) == (0, 1), "only the error that nothing was published"
        assert time.monotonic() - began < 6 * upload._ABORT_S


@pytest.mark.parametrize("end", ["with", "close", "handling"])
def test_a_failed_write_that_its_caller_let_pass_is_raised_at_the_end(end):
    with writing(Uploads(part=say(reply(403, document("Error", Code="AccessDenied"))))) as writer:
        with contextlib.ExitStack() as block:
            if end == "with":
                block.enter_context(pytest.raises(Forbidden))
                block.enter_context(writer)
            with contextlib.suppress(Forbidden):
                while True:
                    writer.write(bytes(PART))
        if end == "close":
            with pytest.raises(Forbidden):
                writer.close()
        if end == "handling":
            with contextlib.suppress(_Stop):
                try:
                    raise _Stop
                finally:
                    writer.close()  # what is being handled says enough
        else:
            writer.close()  # told once


class TestAnswers:
    @pytest.mark.parametrize(("code", "error"), [("InternalError", Transient), ("AccessDenied", Forbidden)])
    def test_a_200_with_an_error_in_it_is_an_error(self, code, error):
        script = Uploads(complete=say(reply(200, document("Error", Code=code))))
        with writing(script) as file:
            file.write(bytes(PART + 1))
            with pytest.raises(error):
                file.close()
        assert not script.published
        assert script.aborted.is_set()

    # On a kept connection libcurl sends again by itself, so the engine counts one attempt of the first.
    @pytest.mark.parametrize("ceph_16", [False, True], ids=["s3", "ceph-16"])
    def test_lost_completion_response_still_publishes_the_upload(self, ceph_16):
        def complete(_received, send, answer):
            if not script.published:
                return bool(answer()) and False
            if ceph_16:  # it says so for ever after
                send(reply(500, document("Error", Code="InternalError")))
            return ceph_16 or None

        script = Uploads(complete=complete)
        with writing(script, RetryOptions(base_s=0.001, attempts=4) if ceph_16 else QUICK) as file:
            file.write(bytes(PART + 1))
            file.close()
        assert script.published
        assert ceph_16 or not script.aborted.is_set()

    def test_an_upload_that_someone_aborted_is_one(self):
        with writing(Uploads(complete=say(reply(404, document("Error", Code="NoSuchUpload"))))) as file:
            file.write(bytes(PART + 1))
            with pytest.raises(NotFound, match="NoSuchUpload"):
                file.close()

    @pytest.mark.parametrize(
        "shown", [{"content_length": "4", "etag": '"whole"'}, {"content_length": "5", "etag": '"other"'}]
    )
    def test_size_or_etag_mismatch_after_upload_raises_damaged(self, shown):
        with writing(Uploads(head=say(reply(200, **shown)))) as file:
            file.write(b"12345")
            with pytest.raises(Damaged, match="wrote 5 bytes"):
                file.close()

    def test_an_empty_tag_from_the_store_is_not_compared(self):
        script = Uploads(put=lambda _received, send, answer: send(answer().replace(b'"whole"', b"")) or True)
        with writing(script) as file:
            file.write(b"12345")
            file.close()

    def test_every_part_carries_its_digest(self):
        with Scripted(Uploads()) as server:
            engine = fetcher(server.url)
            put(engine, "key", b"x", Attributes())
            assert engine.driver.abilities.digest
        assert server.received[0].body == b"x"


class TestManners:
    def test_writer_reports_its_capabilities_and_refuses_unsupported_operations(self, source):
        file = source.open_write("key")
        assert (file.writable(), file.readable(), file.seekable()) == (True, False, False)
        assert (file.tell(), file.flush()) == (0, None)
        assert file.url.endswith("/key")
        assert (file.name, file.mode, source.open_write("key", create_only=True).mode) == (file.url, "wb", "xb")
        for call in (file.read, file.readline, lambda: file.readinto(bytearray(1)), lambda: file.seek(0), file.fileno):
            with pytest.raises(io.UnsupportedOperation):
                call()
        file.abort()

    @pytest.mark.parametrize("shape", [0, (0, 3), (2, 0)], ids=str)
    def test_an_array_of_nothing_writes_nothing(self, shape):
        source = Source(parse("memory://nothing/"), StoreOptions())
        with source.open_write("key") as file:
            assert (file.write(np.zeros(shape)), file.tell()) == (0, 0)
        assert source.put("key", np.zeros(shape)) == source.head("key").etag

    def test_closed_is_closed(self, source):
        file = source.open_write("key")
        for _ in range(2):
            file.close()
        calls = [
            *(lambda: file.write(b"more"), lambda: file.write(b""), lambda: file.writelines([b"x"]), file.tell),
            *(file.flush, file.writable, file.seekable, file.isatty, file.__enter__),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="closed"):
                call()
        with pytest.raises(ValueError, match=r"is closed.*: s3://"), file:
            raise AssertionError("a closed file was entered")
        file.abort()
        assert source.head("key").size == 0

    def test_open_writer_cannot_be_pickled(self, source):
        with source.open_write("key") as file, pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(file)

    def test_trap_01_a_fork_leaves_the_writer_to_the_parent(self, source, bucket):
        with source.open_write("key") as file:
            file.write(bytes(PART + 1))

            def child():
                with pytest.raises(Unusable, match="fork"):
                    file.write(b"child's")
                with pytest.raises(Unusable, match="fork"):
                    file.close()
                file.abort()
                upload._abort_all()

            in_child(child)
            file.write(b"parent's")
        assert _stored(bucket) == bytes(PART + 1) + b"parent's"

    def test_trap_02_a_memory_or_local_writer_keeps_the_same_promises(self, tmp_path):
        for url in (f"memory://{tmp_path.name}/", f"file://{tmp_path}/"):
            source = Source(parse(url), StoreOptions(write=OPTIONS))
            key = parse(url).key + "key"
            source.put(key, OLD)
            with pytest.raises(_Stop), source.open_write(key) as file:
                file.write(bytes(2 * PART))
                raise _Stop
            file = source.open_write(key)
            file.write(bytes(2 * PART))
            del file
            assert source.open_read(key).read() == OLD
            data = any_bytes(2 * PART + 1)
            with source.open_write(key) as file:
                file.write(data)
            assert source.open_read(key).read() == data
        until(lambda: [path.name for path in tmp_path.iterdir()] == ["key"])

    def test_a_local_writer_cleans_up_when_the_interpreter_ends(self, tmp_path):
        script = """
            import sys
            from penstock.source import open_source
            source, key = open_source(sys.argv[1])
            file = source.open_write(key)
            file.write(bytes(40 << 20))
        """
        ended = python(script, str(tmp_path / "key"))
        assert (ended.returncode, ended.stderr.count("\n")) == (0, 1), "only the error that nothing was published"
        assert list(tmp_path.iterdir()) == []


class TestThreads:
    def test_threads_that_close_one_writer_publish_it_once(self, source, bucket):
        data = any_bytes(PART + 1000)
        for _ in range(3):
            file = source.open_write("key")
            file.write(data)
            assert at_once(*[file.close] * 3) == [None] * 3
            assert _stored(bucket) == data
        assert unfinished(bucket) == []

    def test_threads_that_write_to_one_writer_follow_one_another(self, source, bucket):
        piece = any_bytes(1 << 20)
        with source.open_write("key") as file:
            assert at_once(*[lambda: [file.write(piece) for _ in range(3)]] * 4) == [[len(piece)] * 3] * 4
        assert _stored(bucket) == piece * 12

    def test_an_error_of_the_closing_thread_is_raised_in_all_that_wait(self):
        came, refuse, complete = _held(lambda send: send(reply(403, document("Error", Code="AccessDenied"))) or True)
        script = Uploads(complete=complete)
        with writing(script) as file, ThreadPoolExecutor(1) as others:
            file.write(bytes(PART + 1))
            outcomes = others.submit(at_once, *[file.close] * 3)
            assert came.wait(60)
            until(lambda: sum("engine/write/upload.py" in _where(thread) for thread in threading.enumerate()) == 3)
            refuse.set()
            assert [type(each) for each in outcomes.result(60)] == [Forbidden] * 3
            assert len({id(each) for each in outcomes.result()}) == 3, "each has a traceback of its own"
        assert script.parts == {1: PART, 2: 1}
        assert script.aborted.is_set()

    def test_abort_cancels_a_write_in_progress_on_another_thread(self):
        came, go, part = _held()
        script = Uploads(part=part)
        with writing(script) as file, ThreadPoolExecutor(1) as other:
            written = other.submit(file.write, bytes(9 * PART))
            assert came.wait(60)
            began = time.monotonic()
            file.abort()
            assert time.monotonic() - began < 30
            assert type(written.exception(60)) is Cancelled
            go.set()
            until(script.aborted.is_set)
        assert not script.published

    def test_abort_leaves_the_object_to_a_close_that_has_begun_to_publish(self, monkeypatch):
        monkeypatch.setattr(upload, "_ABORT_S", 0.1)
        came, go, complete = _held()
        script = Uploads(complete=complete)
        with writing(script) as file, ThreadPoolExecutor(1) as other:
            file.write(bytes(PART + 1))
            closing = other.submit(file.close)
            assert came.wait(60)
            file.abort()
            go.set()
            assert closing.exception(60) is None
        assert script.published
        assert not script.aborted.is_set()


def _held(then=lambda _send: None):
    """Return what says that a request came, what lets it go on, and an oddity of ``Uploads`` that waits between."""
    came, go = threading.Event(), threading.Event()
    return came, go, lambda _received, send, _answer: (came.set(), go.wait(60), then(send))[2]


def _where(thread):
    """Return the files a thread's stack is in."""
    frame, files = sys._current_frames().get(thread.ident), []
    while frame is not None:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    return " ".join(files)
