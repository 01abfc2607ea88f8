"""Memory comes back with the last reference to an array, and never before."""

import ctypes
import gc
import pickle
import random
import tracemalloc
from threading import Thread

import numpy as np
import pytest
import torch

from penstock.data.reading.pool import MemoryPool

SIZE = 1 << 20
FLOATS = np.dtype("f4")


def _address(array):
    return array.__array_interface__["data"][0]


def test_an_array_is_one_of_numpys_with_the_shape_and_type():
    array = MemoryPool(SIZE).empty((2, 3, 50_000), FLOATS)
    assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == (
        (2, 3, 50_000),
        FLOATS,
        True,
        True,
    )


def test_memory_is_used_again_once_nothing_refers_to_it():
    pool = MemoryPool(64 * SIZE)
    array = pool.empty((SIZE,), np.dtype("u1"))
    address = _address(array)
    del array
    assert pool.free_bytes == SIZE
    assert _address(pool.empty((SIZE // 4,), FLOATS)) == address


def _out_of_band(array):
    buffers = []
    pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
    return buffers[0].raw()


def _begun(some):
    next(some)
    return some


def _traceback(array):
    try:
        array[1 << 40]
    except IndexError as error:
        return error


SHARES = {
    "view": lambda array: array[5:, 1],
    "number": lambda array: array[5, 1, ...],
    "tensor": lambda array: torch.from_numpy(array).view(-1)[7:],
    "as-tensor": lambda array: torch.as_tensor(array)[0],
    "from-buffer": lambda array: torch.frombuffer(array.reshape(-1), dtype=torch.float32),
    "dlpack": torch.from_dlpack,
    "dlpack-back": lambda array: np.from_dlpack(torch.from_numpy(array)),
    "tensor-back": lambda array: torch.from_numpy(array).numpy()[3],
    "gradient": lambda array: torch.from_numpy(array).requires_grad_().reshape(-1)[3:].sum(),
    "memoryview": lambda array: memoryview(array)[4:],
    "out-of-band": _out_of_band,
    "ctypes": np.ctypeslib.as_ctypes,
    "pointer": lambda array: array.ctypes.data_as(ctypes.c_void_p),
    "strided": lambda array: np.lib.stride_tricks.as_strided(array[2:], (3,), (8,)),
    "windows": lambda array: np.lib.stride_tricks.sliding_window_view(array, 3, 1),
    "subclass": lambda array: array.view(np.recarray).view(np.ndarray).T,
    "masked": lambda array: np.ma.masked_array(array).data[1:],
    "other-type": lambda array: array.view([("a", "u1"), ("b", "u1", 3)])["b"][9:],
    "flat": lambda array: array.flat,
    "generator": lambda array: _begun(row for row in array),
    "traceback": _traceback,
}


@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
def test_pool_memory_is_kept_until_its_last_shared_view_is_released(share):
    pool = MemoryPool(64 * SIZE)
    array = pool.empty((1024, 256), FLOATS)
    address = _address(array)
    array[:] = 7
    kept = share(array)
    del array
    gc.collect()
    assert not pool.free_bytes
    others = [pool.empty((1024, 256), FLOATS) for _ in range(4)]
    assert address not in [_address(each) for each in others]
    del kept
    assert pool.free_bytes == 4 * (1024 * 256)
    assert _address(pool.empty((1024, 256), FLOATS)) == address


@pytest.mark.parametrize("strategy", sorted(torch.multiprocessing.get_all_sharing_strategies()))
def test_memory_comes_back_once_a_tensor_has_moved_to_shared_memory(strategy, monkeypatch):
    monkeypatch.setattr(torch.multiprocessing, "_sharing_strategy", strategy)
    pool = MemoryPool(64 * SIZE)
    tensor = torch.from_numpy(pool.empty((1024, 256), FLOATS)).fill_(7)
    view = tensor[3:]
    tensor.share_memory_()
    assert pool.free_bytes == 1024 * 256 * 4
    pool.empty((1024, 256), FLOATS)[:] = 1
    assert view.unique().tolist() == [7]


def test_small_arrays_and_objects_are_not_pooled():
    pool = MemoryPool(SIZE)
    for array in (pool.empty((3,), FLOATS), pool.empty((100_000,), np.dtype(object)), pool.empty((0, 9), FLOATS)):
        assert array.base is None
    assert not pool.free_bytes


def test_pool_keeps_no_more_free_bytes_than_its_limit():
    pool = MemoryPool(5 * SIZE)
    held = [pool.empty((SIZE,), np.dtype("u1")) for _ in range(32)]
    held.clear()
    assert pool.free_bytes <= 5 * SIZE


def test_no_more_is_kept_where_threads_give_back_at_once(monkeypatch):
    pool = MemoryPool(2 * SIZE)
    first, second = (pool.empty((SIZE + SIZE // 2,), np.dtype("u1")) for _ in range(2))
    held, asked = [second], MemoryPool.free_bytes.fget
    del second

    def free(self):
        found = asked(self)
        held.clear()  # between the look and what follows another thread gives back
        return found

    monkeypatch.setattr(MemoryPool, "free_bytes", property(free))
    del first
    monkeypatch.undo()
    assert pool.free_bytes <= pool.most_bytes


def test_memory_of_other_sizes_is_let_go_before_more_is_allocated():
    pool = MemoryPool(1 << 30)
    held = [pool.empty((16 * SIZE,), np.dtype("u1")) for _ in range(4)]
    held.clear()
    assert pool.free_bytes == 64 * SIZE
    held = [pool.empty((20 * SIZE,), np.dtype("u1")) for _ in range(2)]
    assert pool.free_bytes == 0


def test_pool_memory_never_exceeds_the_peak_of_bytes_in_use(seed):
    draw, pool, held, most = random.Random(seed), MemoryPool(1 << 30), [], 0
    tracemalloc.start()
    try:
        for _ in range(300):
            held.append(pool.empty((draw.choice((1, 2, 3, 5, 9)) * SIZE // 8,), np.dtype("u1")))
            most = max(most, sum(each.nbytes for each in held))
            assert tracemalloc.get_traced_memory()[0] < most + SIZE
            for _ in range(draw.randrange(3)):
                held.pop(draw.randrange(len(held))) if held else None
    finally:
        tracemalloc.stop()


def test_pool_allocation_inside_garbage_collection_does_not_deadlock():
    pool, found = MemoryPool(64 * SIZE), []

    def collected(phase, _):
        if phase == "stop" and len(found) < 50:
            found.append(pool.empty((SIZE // 8 + len(found),), np.dtype("u1")))

    def work():
        before = gc.get_threshold()
        gc.callbacks.append(collected)
        gc.set_threshold(1, 1 << 30, 1 << 30)  # often, and of the youngest objects alone
        try:
            for size in range(50):
                pool.empty((SIZE + size,), np.dtype("u1"))
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(collected)

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert found


def test_threads_never_share_memory(seed):
    pool, failed = MemoryPool(1 << 30), []

    def work(number):
        draw, held = random.Random(seed + number), []
        for _ in range(500):
            array = pool.empty((draw.choice((SIZE, SIZE // 2)),), np.dtype("u1"))
            array[::4096] = number
            held.append(array)
            if len(held) > draw.randrange(6):
                if any((each[::4096] != number).any() for each in held):
                    failed.append(number)
                del held[: draw.randrange(3)]

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not failed


def test_a_pickled_pool_has_no_memory():
    pool = MemoryPool(64 * SIZE)
    pool.empty((SIZE,), np.dtype("u1"))
    arrived = pickle.loads(pickle.dumps(pool))
    assert (arrived.most_bytes, arrived.free_bytes) == (64 * SIZE, 0)
