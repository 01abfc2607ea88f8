"""Buffers for objects of unknown size are bounded together, and used again."""

from penstock.fetch.scratch import Scratch


def test_buffers_in_flight_are_bounded_whatever_was_learned():
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
