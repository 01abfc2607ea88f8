"""Reads that are sent together come in order, the first error in order is raised, and nobody writes afterwards."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.read.reader import read_into, read_many
from penstock.errors import Forbidden, NotFound, Unusable
from penstock.options import ReadOptions
from penstock.testing.servers import reply
from penstock.values import Span
from tests.children import python
from tests.engine.fetch.store import DATA, SIZE, Gate, serving


class TestMany:
    def test_bytes_come_in_order(self):
        data = {f"k{number}": DATA[: number * 97] for number in range(300)}
        with serving(data) as (_, engine):
            known = [Span(key, 0, len(each), "e1", whole=True) for key, each in data.items()]
            assert read_many(engine, known) == list(data.values())
            assert read_many(engine, [Span(key) for key in data]) == list(data.values())
            assert read_many(engine, []) == []

    def test_trap_03_an_error_is_raised_never_swallowed(self):
        with serving({"a": b"1", "c": b"3"}) as (_, engine), pytest.raises(NotFound, match="s3://bucket/b"):
            read_many(engine, [Span(key, 0, 1) for key in "abc"])

    def test_the_first_error_in_order_is_the_one(self):
        def fault(received, _answer, _send):
            if received.path.endswith("late"):
                threading.Event().wait(0.2)
            return False

        with serving({}, fault) as (_, engine), pytest.raises(NotFound, match="late"):
            read_many(engine, [Span("late", 0, 1), Span("early", 0, 1)])


class TestInto:
    def test_a_buffer_is_filled_and_nothing_else(self):
        buffer = np.full(SIZE + 20, 7, np.uint8)
        with serving({"key": DATA}, read=ReadOptions(split_bytes=9_000)) as (_, engine):
            read_into(engine, Span("key", 100, SIZE, "e1"), Buffer.borrow(buffer[10 : SIZE - 90]))
        assert buffer[10 : SIZE - 90].tobytes() == DATA[100:]
        assert set(buffer[:10]) | set(buffer[SIZE - 90 :]) == {7}

    @pytest.mark.parametrize("size", [0, 99, 101])
    def test_a_buffer_of_another_size_is_refused(self, size):
        with serving({"key": DATA}) as (server, engine):
            with pytest.raises(Unusable, match=f"100 bytes .* a buffer of {size}"):
                read_into(engine, Span("key", 0, 100), Buffer.borrow(bytearray(size)))
            assert server.received == []

    def test_nothing_is_a_range_too(self):
        with serving({"key": DATA}) as (_, engine):
            read_into(engine, Span("key", 5, 5), Buffer.borrow(bytearray()))
            with pytest.raises(NotFound):
                read_into(engine, Span("gone", 5, 5), Buffer.borrow(bytearray()))

    def test_after_an_error_nothing_writes(self):
        gate = Gate(lambda received: received.range[0] > 0)

        def fault(received, answer, send):
            gate(received, answer, send)
            if received.range[0] == 0:
                send(reply(403))
                return True
            return False

        split = ReadOptions(split_bytes=25_000)
        with serving({"key": DATA}, fault, read=split) as (_, engine), ThreadPoolExecutor(1) as reader:
            reading = reader.submit(read_into, engine, Span("key", 0, SIZE, "e1"), Buffer.borrow(bytearray(SIZE)))
            gate.wait_for(1)
            assert not reading.done(), "a part is still on its way into the buffer"
            gate.opened.set()
            assert type(reading.exception(60)) is Forbidden

    def test_ctrl_c_leaves_no_writer(self):
        script = """
            import os, signal, threading
            from penstock.engine.read.reader import read_into
            from penstock.options import ReadOptions
            from penstock.engine.buffer import Buffer
            from penstock.values import Span
            from tests.engine.fetch.store import serving
            size, sent, go = 1 << 20, threading.Semaphore(0), threading.Event()
            def slowly(received, answer, send):
                send(answer[:100_000])
                sent.release()
                go.wait(60)
                send(answer[100_000:])
                return True
            with serving({"key": b"x" * size}, slowly, read=ReadOptions(split_bytes=size // 4)) as (server, engine):
                def interrupt():
                    for _ in range(4):
                        sent.acquire()
                    os.kill(os.getpid(), signal.SIGINT)
                threading.Thread(target=interrupt).start()
                buffer = bytearray(size)
                try:
                    read_into(engine, Span("key", 0, size, "e1"), Buffer.borrow(buffer))
                except KeyboardInterrupt:
                    buffer[:] = bytes(size)
                    go.set()
                    print("interrupted", buffer.count(b"x"))
                again = bytearray(size)
                read_into(engine, Span("key", 0, size, "e1"), Buffer.borrow(again))
                print(again.count(b"x") == size, buffer.count(b"x"))
        """
        ended = python(script)
        assert ended.stdout == "interrupted 0\nTrue 0\n", ended.stderr
