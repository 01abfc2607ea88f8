"""Memory comes back with the last reference to an array, and never before."""

import gc
import pickle
import random
from threading import Thread

import numpy as np
import torch

from penstock.datasets.zarr.pool import MemoryPool

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
    address, free = _address(array), pool.free_bytes
    del array
    assert pool.free_bytes == free + SIZE
    assert _address(pool.empty((SIZE // 4,), FLOATS)) == address


def test_a_view_or_a_tensor_keeps_the_memory():
    pool = MemoryPool(64 * SIZE)
    for share in (lambda array: array[5:, 1], lambda array: torch.from_numpy(array).view(-1)[7:], memoryview):
        array = pool.empty((1024, 256), FLOATS)
        free = pool.free_bytes
        kept = share(array)
        del array
        assert pool.free_bytes == free
        del kept
        assert pool.free_bytes == free + SIZE


def test_small_arrays_and_objects_are_not_pooled():
    pool = MemoryPool(SIZE)
    for array in (pool.empty((3,), FLOATS), pool.empty((100_000,), np.dtype(object)), pool.empty((0, 9), FLOATS)):
        assert array.base is None
    assert not pool.free_bytes


def test_no_more_is_kept_than_was_said():
    pool = MemoryPool(5 * SIZE)
    held = [pool.empty((SIZE,), np.dtype("u1")) for _ in range(32)]
    held.clear()
    assert pool.free_bytes <= 5 * SIZE


def test_memory_of_other_sizes_is_let_go_before_more_is_allocated():
    pool = MemoryPool(1 << 30)
    held = [pool.empty((16 * SIZE,), np.dtype("u1")) for _ in range(4)]
    held.clear()
    assert pool.free_bytes == 64 * SIZE
    held = [pool.empty((20 * SIZE,), np.dtype("u1")) for _ in range(2)]
    assert pool.free_bytes == 0


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
