"""A pool of decoding threads keeps the order, never runs ahead of its bound, and is gone when its iterator is."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
import weakref
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple

import numpy as np
import pytest
import torch
import zarr

import penstock as ps
from penstock.data.loading import decoding
from penstock.data.loading.decoding import DecodeOptions, DecodePool, chained, mover, place_transform, to_device
from penstock.data.order.sampling import Cursor
from penstock.data.reading.objects import ObjectReading
from penstock.data.reading.reading import Delivery, Skipped
from penstock.engine.contracts.exchange import Work
from penstock.errors import Damaged, Unusable
from tests.children import forked
from tests.data.datasets.transforms import number, numbered
from tests.engine.transport.calls import Once
from tests.threads import until

COUNT, BATCH = 40, 4
WAIT_S = 60


@pytest.fixture
def folder(tmp_path):
    yield numbered(tmp_path / "data", COUNT)
    assert not decoders(), "a thread has outlived its test"


def pool(folder: str, transform=number, **changes) -> DecodePool:
    dataset = ps.MapDataset.from_prefix(folder, transform=transform)
    options = DecodeOptions(**{"threads": 3, "ahead": 2, "on_error": "raise", "finish": list, **changes})
    cursor, reading = dataset.batched(BATCH).reading()
    return DecodePool(reading, cursor, options)


def decoders() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-decode-")]


def waits(function: str) -> bool:
    """Say whether some thread waits in that function of the pool."""
    frames = list(sys._current_frames().values())
    stacks = [[each.f_code.co_name for each, _ in traceback.walk_stack(frame)] for frame in frames]
    return any(stack[:2] == ["wait", function] for stack in stacks)


class Turnstile:
    """A transform that is done with samples in an order drawn at random."""

    def __init__(self, seed: int, count: int = COUNT) -> None:
        self.random = random.Random(seed)
        self.count = count
        self.waiting: list[threading.Event] = []
        self.come = threading.Condition()
        threading.Thread(target=self.release, daemon=True).start()

    def __call__(self, sample: ps.Sample) -> int:
        self.hold()
        return number(sample)

    def hold(self) -> None:
        mine = threading.Event()
        with self.come:
            self.waiting.append(mine)
            self.come.notify()
        assert mine.wait(WAIT_S)

    def release(self) -> None:
        for _ in range(self.count):
            with self.come:
                if not self.come.wait_for(lambda: self.waiting, WAIT_S):
                    return
                self.waiting.pop(self.random.randrange(len(self.waiting))).set()


@pytest.mark.parametrize("ahead", [1, 3])
def test_batch_order_is_independent_of_sample_transform_time(folder, seed, ahead):
    for draw in range(5):
        deliveries = list(pool(folder, Turnstile(seed + draw), threads=6, ahead=ahead))
        assert [delivery.batch for delivery in deliveries] == whole()
        assert {delivery.cursor for delivery in deliveries} == {Cursor()}


def whole() -> list[list[int]]:
    return [list(range(at, at + BATCH)) for at in range(0, COUNT, BATCH)]


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_no_more_batches_are_begun_than_it_may_be_ahead(folder, ahead):
    begun: list[int] = []

    def noted(sample: ps.Sample) -> int:
        begun.append(number(sample))
        return begun[-1]

    decoded = pool(folder, noted, ahead=ahead)
    for taken in range(3):
        until(lambda: waits("_draw"))  # it wants to begin another batch, and may not
        until(lambda expected=(taken + ahead) * BATCH: len(begun) >= expected)
        assert len(begun) == (taken + ahead) * BATCH
        next(decoded)
    decoded.close()


def test_samples_are_let_go_once_their_batch_is_made(folder):
    samples: weakref.WeakSet[threading.Event] = weakref.WeakSet()

    def made(_: ps.Sample) -> threading.Event:
        event = threading.Event()
        samples.add(event)
        return event

    decoded = pool(folder, made, finish=len)
    until(lambda: waits("_draw"))
    until(lambda: not samples)  # two batches wait, and no thread has its latest sample
    assert next(decoded).batch == BATCH
    decoded.close()


def test_an_error_comes_in_its_turn_and_ends_it(folder):
    def ninth(sample: ps.Sample) -> int:
        if number(sample) == 9:
            raise ValueError("nine")
        return int(sample.data[:])

    decoded = pool(folder, ninth, ahead=5)
    got = [next(decoded).batch, next(decoded).batch]
    with pytest.raises(ValueError, match="nine") as caught:
        next(decoded)
    assert got == whole()[:2]
    assert "while transforming" in caught.value.__notes__[0]
    assert "009" in caught.value.__notes__[0]
    assert decoders() == []
    assert list(decoded) == []


def test_of_two_errors_in_a_batch_the_first_in_order_is_raised(folder):
    second_failed = threading.Event()

    def broken(sample: ps.Sample) -> int:
        if number(sample) == 2:
            second_failed.set()
            raise ValueError("two")
        if sample.key.endswith("000"):
            assert second_failed.wait(WAIT_S)
            raise ValueError("zero")
        return 1

    with pytest.raises(ValueError, match="zero"):
        next(pool(folder, broken, threads=4))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, BaseException])
def test_base_exception_in_a_transform_thread_is_raised_in_the_consumer(folder, kind):
    def broken(sample: ps.Sample) -> int:
        if number(sample) == 6:
            raise kind("six")
        return 1

    for on_error in ("raise", "skip"):
        decoded = pool(folder, broken, on_error=on_error)
        next(decoded)
        with pytest.raises(kind, match="six"):
            next(decoded)
        assert decoders() == []


@pytest.mark.parametrize(("raised", "heard"), [(ValueError, "odd"), (StopIteration, "raised StopIteration")])
def test_a_collate_fn_that_raises_does_so_in_its_turn(folder, raised, heard):
    def finish(samples):
        if 8 in samples:
            raise raised("odd")
        return samples

    decoded = pool(folder, finish=finish)
    assert [next(decoded).batch, next(decoded).batch] == whole()[:2]
    with pytest.raises((ValueError, RuntimeError), match=heard):
        next(decoded)


def test_an_object_that_is_gone_is_an_error_in_its_turn(folder, tmp_path):
    decoded = pool(folder, ahead=1)
    first = next(decoded)
    decoded.close()
    (tmp_path / "data" / "005").unlink()
    decoded = pool(folder, ahead=1)
    (tmp_path / "data" / "007").unlink()
    assert next(decoded).batch == first.batch
    got = [delivery.batch for delivery in pool(folder)]
    assert sum(got, []) == [index for index in range(COUNT) if index not in (5, 7)]
    decoded.close()


def test_an_order_that_breaks_is_raised_and_ends_it(folder):
    def order():
        yield from whole()[:3]
        raise ValueError("no more")

    dataset = ps.MapDataset.from_prefix(folder, transform=number)
    decoded = DecodePool(ObjectReading(dataset, order(), 1), None, DecodeOptions(3, 10, "raise", list))
    with pytest.raises(ValueError, match="no more"):
        list(decoded)
    assert decoders() == []
    assert list(decoded) == []


def test_skipping_shrinks_the_batch_and_records_skipped_samples(folder, tmp_path):
    def picky(sample: ps.Sample) -> int:
        if number(sample) in (4, 6, 13):
            raise ValueError("no")
        return int(sample.data[:])

    dataset = ps.MapDataset.from_prefix(folder, transform=picky)
    (tmp_path / "data" / "014").unlink()
    cursor, reading = dataset.batched(BATCH).reading()
    deliveries = list(DecodePool(reading, cursor, DecodeOptions(3, 2, "skip", list)))
    assert [delivery.batch for delivery in deliveries[:4]] == [[0, 1, 2, 3], [5, 7], [8, 9, 10, 11], [12, 15]]
    assert [[skipped.url[-3:] for skipped in delivery.skipped] for delivery in deliveries[:4]] == [
        *([], ["004", "006"], [], ["013", "014"])
    ]
    assert deliveries[1].skipped[0].error == "ValueError: no"
    assert deliveries[3].skipped[1].error.startswith("NotFound: ")


def test_a_batch_of_which_nothing_is_left_ends_it(folder):
    def none(sample: ps.Sample) -> int:
        if number(sample) // BATCH == 2:
            raise ValueError("no")
        return int(sample.data[:])

    decoded = pool(folder, none, on_error="skip")
    assert [next(decoded).batch, next(decoded).batch] == whole()[:2]
    with pytest.raises(Damaged, match=r"008 \(ValueError: no\).*011"):
        next(decoded)


def test_break_and_dropping_it_unused_leave_no_thread(folder):
    for _ in pool(folder):
        break
    assert decoders() == []
    pool(folder)
    assert decoders() == []
    decoded = pool(folder)
    assert len(decoders()) == 3
    del decoded
    assert decoders() == []


def test_an_exception_that_is_kept_keeps_no_thread(folder):
    def train() -> None:
        for _ in pool(folder):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        train()
    assert decoders() == []
    del caught


def test_interrupts_at_random_moments_leave_no_thread_of_it_waiting(folder, seed):
    chance, before = random.Random(seed), signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(150):
            decoded = pool(folder)
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 5e-3))
                    list(decoded)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            began = monotonic()
            decoded.close()
            until(lambda: not decoders())
            assert monotonic() - began < 10
    finally:
        signal.signal(signal.SIGALRM, before)


def test_closing_twice_and_going_on_afterwards(folder):
    decoded = pool(folder)
    next(decoded)
    decoded.close()
    assert decoders() == []
    decoded.close()
    assert list(decoded) == []
    assert next(decoded, None) is None


def test_close_stops_waiting_for_a_hung_transform_after_timeout(folder, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def hung(sample: ps.Sample) -> int:
        begun.set()
        assert go_on.wait(WAIT_S)
        return number(sample)

    monkeypatch.setattr(decoding, "_CLOSE_S", 0.05)
    decoded = pool(folder, hung, threads=1)
    assert begun.wait(WAIT_S)
    decoded.close()
    assert len(decoders()) == 1
    go_on.set()
    until(lambda: not decoders())


def test_close_from_another_thread_wakes_a_consumer_waiting_for_a_batch(folder, monkeypatch):
    begun, go_on, outcome = threading.Event(), threading.Event(), []

    def hung(sample: ps.Sample) -> int:
        begun.set()
        assert go_on.wait(WAIT_S)
        return number(sample)

    monkeypatch.setattr(decoding, "_CLOSE_S", 0.05)
    decoded = pool(folder, hung)
    consumer = threading.Thread(target=lambda: outcome.append(next(decoded, "ended")), daemon=True)
    consumer.start()
    assert begun.wait(WAIT_S)
    until(lambda: waits("take"))
    decoded.close()
    consumer.join(WAIT_S)
    assert outcome == ["ended"]
    go_on.set()
    until(lambda: not decoders())


def test_pool_may_drop_its_last_reference_on_a_decoder_thread(folder):
    """Garbage is collected on whatever thread it likes; that one cannot be waited for."""
    held, ready = [], threading.Event()

    def dropping(sample: ps.Sample) -> int:
        assert ready.wait(WAIT_S)
        held.clear()
        return number(sample)

    held.append(pool(folder, dropping))
    ready.set()
    until(lambda: not decoders())


def test_garbage_may_be_collected_on_a_thread_that_reads(folder, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def hung(sample: ps.Sample) -> int:
        begun.set()
        assert go_on.wait(WAIT_S)
        return number(sample)

    monkeypatch.setattr(decoding, "_CLOSE_S", 10 * WAIT_S)
    dataset = ps.MapDataset.from_prefix(folder, transform=hung)
    circle = [dataset, DecodePool(dataset.batched(BATCH).reading()[1], Cursor(), DecodeOptions(3, 2, "raise", list))]
    circle.append(circle)  # only the collector finds it, on whatever thread that runs
    transport = dataset._source._fetcher()._transport
    assert begun.wait(WAIT_S)
    call = Once(lambda: Work(gc.collect))
    gc.disable()
    try:
        del circle
        transport.submit([call])
        assert call.wait(WAIT_S / 2).fault is None, "waiting there would hold up those that it waits for"
    finally:
        gc.enable()
        go_on.set()
    until(lambda: not decoders())


def test_in_a_fork_it_is_refused_and_may_be_dropped_while_its_lock_was_held(folder):
    decoded = pool(folder)
    assert next(decoded).batch == whole()[0]
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with decoded._shared._lock:
            held.set()
            let_go.wait(WAIT_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(WAIT_S)

    def child() -> None:
        nonlocal decoded
        with pytest.raises(Unusable, match="fork"):
            next(decoded)
        decoded = None
        gc.collect()
        assert [delivery.batch for delivery in pool(folder)] == whole()

    with forked(child) as status:
        let_go.set()
        assert status() == 0
    holder.join(WAIT_S)
    assert [delivery.batch for delivery in decoded] == whole()[1:]


SCRIPT = """
import os, sys, threading, time
import penstock as ps

def slow(sample):
    os.write(1, b"ready\\n")
    time.sleep(0.02)
    return int(sample.read())

def names():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock-decode")]

dataset = ps.MapDataset.from_prefix(sys.argv[1], transform=slow)
loader = ps.DataLoader(dataset, 4, num_workers=int(sys.argv[2]), decode_threads=None if int(sys.argv[2]) else 3)
"""


def script(body: str, folder: str, workers: int) -> subprocess.Popen:
    code = SCRIPT + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code, folder, str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_ends_it_and_leaves_nothing_behind_its_traceback(folder, workers):
    body = """
        try:
            while True:
                for batch in loader:
                    pass
        except KeyboardInterrupt as error:
            kept = error if loader.num_workers == 0 else None  # torch's own iterator lives as long as its frames
        import multiprocessing
        sys.exit(f"left: {names()} {multiprocessing.active_children()}")
    """
    with script(body, folder, workers) as training:
        assert training.stdout.readline().strip() == "ready"
        training.send_signal(signal.SIGINT)
        _, errors = training.communicate(timeout=WAIT_S)
    assert errors.strip().splitlines()[-1] == "left: [] []"


@pytest.mark.parametrize("workers", [0, 1])
def test_an_interpreter_ends_while_it_runs(folder, workers):
    body = """
        batches = iter(loader)
        next(batches)
    """
    with script(body, folder, workers) as training:
        _, errors = training.communicate(timeout=WAIT_S)
    assert (training.returncode, errors) == (0, "")


def test_threads_decode_arriving_chunks_while_batches_wait_for_the_consumer(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.data.zarr.samples.arrangement._KEPT_BYTES", 0)
    values = np.arange(320, dtype="f4").reshape(40, 8)
    zarr.create_array(str(tmp_path), data=values, chunks=(2, 8), dimension_names=("time", "x"))
    dataset, decoded, every = ps.ZarrDataset(str(tmp_path)), set(), threading.Event()
    decode = dataset.contents.chunks.decode

    def counted(chunk, read, pool=None):
        decoded.add(chunk)
        if len(decoded) == 20:
            every.set()
        return decode(chunk, read, pool)

    monkeypatch.setattr(dataset.contents.chunks, "decode", counted)
    batches = iter(ps.DataLoader(dataset, 4, decode_threads=2))
    first = next(batches)
    assert every.wait(60), "all chunks are decoded, though one batch of ten was taken"
    assert np.array_equal(np.concatenate([first, *batches]), values)


CPU = torch.device("cpu")


class Pair(NamedTuple):
    image: torch.Tensor
    label: object


def test_moving_to_device_preserves_cursor_and_skipped_samples():
    deliveries = [Delivery([torch.tensor([number])], Cursor(1, 2), (Skipped("a", "b"),)) for number in range(3)]
    moved = list(to_device(iter(deliveries), CPU))
    assert [delivery.batch[0].device for delivery in moved] == [CPU] * 3
    assert moved == deliveries


def test_the_copy_of_memory_that_is_not_pinned_is_waited_for():
    asked = []

    class Asked(torch.Tensor):
        def to(self, *_, non_blocking=False):
            asked.append(non_blocking)
            return self

        def is_pinned(self):
            return bool(self[0])

    mover(torch.device("cuda"))([torch.tensor([each]).as_subclass(Asked) for each in (0, 1)])
    assert asked == [False, True]


def test_an_error_comes_after_the_batches_before_it():
    def broken():
        yield Delivery(torch.tensor(1), Cursor())
        raise ValueError("two")

    got = []
    with pytest.raises(ValueError, match="two"):
        got.extend(to_device(broken(), CPU))
    assert [delivery.batch.item() for delivery in got] == [1]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("device", ["cpu", CPU])
def test_loader_delivers_batches_on_the_requested_device(tmp_path, workers, device):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", 10), transform=number)
    loader = ps.DataLoader(dataset, 4, num_workers=workers, device=device, pin_memory=True)
    got = []
    for batch in loader:
        got.append(batch.tolist())
        assert batch.device == CPU
        assert loader.state_dict()["position"] == sum(map(len, got))
    assert got == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_unknown_device_is_refused_by_the_constructor(tmp_path):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", 1))
    with pytest.raises(Unusable, match="toaster"):
        ps.DataLoader(dataset, device="toaster")


def halve(batch):
    return batch / 2


def fail(batch):
    if 4 in batch.tolist():
        raise ValueError("four")
    return batch


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork"), (1, "spawn")])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_device_transform_makes_each_batch_wherever_batches_are_made(tmp_path, workers, context, device):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", 10), transform=number)
    options = {"num_workers": workers, "multiprocessing_context": context, "device": device}
    loader = ps.DataLoader(dataset, 4, device_transform=halve, **options)
    assert [batch.tolist() for batch in loader] == [[0, 0.5, 1, 1.5], [2, 2.5, 3, 3.5], [4, 4.5]]
    assert loader.state_dict() == ps.DataLoader(dataset, 4).state_dict() | {"epoch": 1}


def test_device_transform_runs_in_the_threads_that_decode(tmp_path):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", 10), transform=number)
    names = []
    loader = ps.DataLoader(dataset, 4, device_transform=lambda _: names.append(threading.current_thread().name))
    assert [*loader] == [None] * 3
    assert {name.rpartition("-")[0] for name in names} == {"penstock-decode"}


@pytest.mark.parametrize("workers", [0, 1])
def test_error_of_a_device_transform_comes_in_place_of_its_batch(tmp_path, workers):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", 10), transform=number)
    loader = ps.DataLoader(dataset, 4, device_transform=fail, num_workers=workers, on_error="skip")
    got = []
    with pytest.raises(ValueError, match="four") as caught:
        got.extend(loader)
    assert [batch.tolist() for batch in got] == [[0, 1, 2, 3]]
    assert "while device_transform had a whole batch" in "".join(traceback.format_exception(caught.value))


def test_stop_iteration_of_a_device_transform_does_not_end_the_epoch(tmp_path):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", 10), transform=number)
    with pytest.raises(RuntimeError, match="device_transform raised StopIteration"):
        list(ps.DataLoader(dataset, 4, device_transform=lambda _: next(iter(()))))


def test_device_transform_that_cannot_be_called_is_refused(tmp_path):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", 1))
    with pytest.raises(Unusable, match="device_transform must be a function of a batch, got 'half'"):
        ps.DataLoader(dataset, device_transform="half")


def test_transform_for_cuda_runs_on_the_stream_of_the_copies_one_batch_ahead(monkeypatch):
    """No GPU: streams are stand-ins, and tensors stay where they are."""
    events, streams = [], []

    class FakeStream:
        def __init__(self, _device):
            pass

        def record_event(self):
            events.append("recorded")

        def wait_event(self, _event):
            events.append("awaited")

    @contextmanager
    def on_stream(stream):
        streams.append(stream)
        yield
        streams.pop()

    def transform(batch):
        events.append(f"made {batch.item()} on {len(streams)} stream")
        return batch * 10

    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", on_stream)
    monkeypatch.setattr(torch.cuda, "current_stream", FakeStream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    made, moved = place_transform(transform, torch.device("cuda"))
    assert made is None
    given = [Delivery(torch.tensor(number), Cursor()) for number in (1, 2)]
    deliveries = to_device(iter(given), torch.device("cuda"), chained(lambda batch: batch, moved))
    events.extend(f"yielded {delivery.batch.item()}" for delivery in deliveries)
    assert events == [
        *("made 1 on 1 stream", "recorded", "made 2 on 1 stream", "recorded"),
        *("awaited", "yielded 10", "awaited", "yielded 20"),
    ]
