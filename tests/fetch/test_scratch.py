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
