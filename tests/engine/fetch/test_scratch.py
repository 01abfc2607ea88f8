"""Buffers for objects of unknown size are bounded together, and used again."""

from penstock.engine.operations.policy import Scratch
from penstock.options import ReadOptions
from tests.engine.fetch.store import fetcher


def test_scratch_buffers_in_flight_are_bounded_at_any_observed_object_size():
    scratch = Scratch(10 << 20)
    for _ in range(3):
        scratch.sizes.add(3 << 20)
    held = [scratch.take() for _ in range(5)]
    assert [buffer and buffer.size for buffer in held] == [4 << 20, 4 << 20, None, None, None]
    scratch.give(held[0])
    assert scratch.take() is held[0], "buffers are used again"
    scratch.sizes.add(1 << 30)
    scratch.sizes.add(1 << 30)
    assert scratch.take() is None


def test_a_buffer_whose_memory_was_handed_out_is_not_used_again():
    scratch = Scratch(10 << 20)
    scratch.sizes.add(3 << 20)
    first, second = scratch.take(), scratch.take()
    assert scratch.take() is None, "in use: two of four"
    assert len(first.cut(3 << 20)) == 3 << 20
    scratch.give(first)
    third = scratch.take()
    assert third is not None, "it counts no more"
    assert third is not first
    assert len(second.cut(1 << 20)) == 1 << 20, "a quarter: a copy"
    scratch.give(second)
    assert scratch.take() is second


def test_many_objects_of_one_bound_tell_how_large_the_next_one_is():
    scratch, most = Scratch(100 << 20), (1 << 20) + 1
    for _ in range(63):
        scratch.learn(600_000, most)
    assert scratch.take(most).size == 2 << 20, "few so far"
    scratch.learn(5, most)
    assert scratch.take(most).size == 1 << 20, "room for the largest: it is taken over without a copy"
    assert scratch.take(4 << 20).size == 4 << 20, "another bound"
    scratch.learn(most, most)
    assert scratch.take(most).size == 2 << 20, "one was larger"
    for _ in range(64):
        scratch.learn(0, 5000)
    assert scratch.take(5000).size == 4096


def test_all_reads_ahead_have_buffers_of_their_bound():
    policy, chunk = fetcher("http://127.0.0.1:9", read=ReadOptions(ahead_bytes=256 << 20))._policy, 8 << 20
    held = [policy.scratch.take(chunk) for _ in range(33)]
    assert [buffer is None for buffer in held] == [False] * 32 + [True]


def test_free_buffers_take_little_however_much_was_in_flight():
    scratch, size = Scratch(256 << 20), 8 << 20
    held = [scratch.take(size) for _ in range(32)]
    for buffer in held:
        scratch.give(buffer)
    taken = [scratch.take(size) for _ in held]
    assert sum(buffer in held for buffer in taken) == 4, "32 MiB"
