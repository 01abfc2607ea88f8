"""What fills a buffer is there whole, and digested, however it comes."""

from hashlib import sha256

import pytest

from penstock.engine.write import parts as partbuffer
from penstock.engine.write.parts import PartBuffer
from tests.engine.write.uploads import any_bytes

PIECE = partbuffer._PIECE_BYTES
SIZES = [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 5]


@pytest.mark.parametrize("at_once", [1000, PIECE - 1, PIECE, PIECE + 1, 10 * PIECE])
@pytest.mark.parametrize("size", SIZES)
def test_digest_of_a_part_covers_all_bytes_taken(size, at_once):
    data = any_bytes(size)
    taking = PartBuffer(bytearray(4 * PIECE), sha256)
    for start in range(0, size, at_once):
        piece = memoryview(data)[start : start + at_once]
        assert taking.take(piece) == len(piece)
    assert (taking.size, taking.full) == (size, False)
    body = taking.payload()
    assert (body.data, body.digest) == (data, sha256(data).hexdigest())


@pytest.mark.parametrize("room", [1, PIECE, 2 * PIECE + 3])
def test_full_part_buffer_takes_no_more_bytes(room):
    data = any_bytes(room + 10)
    taking = PartBuffer(bytearray(room), sha256)
    assert (taking.take(memoryview(data)), taking.take(memoryview(data)), taking.full) == (room, 0, True)
    assert taking.payload().digest == sha256(data[:room]).hexdigest()


def test_part_buffer_grows_by_doubling_up_to_its_bound():
    taking = PartBuffer(bytearray(PIECE), sha256)
    data = memoryview(any_bytes(3 * PIECE))
    sizes, taken = [], 0
    while taken < len(data):
        taken += taking.take(data[taken:])
        sizes.append(len(taking.buffer))
        if taken < len(data):
            taking.grow(3 * PIECE)
    assert sizes == [PIECE, 2 * PIECE, 3 * PIECE]
    assert taking.payload().digest == sha256(data).hexdigest()


def test_part_buffer_cannot_grow_after_its_payload_is_exported():
    taking = PartBuffer(bytearray(2), sha256)
    body = taking.payload()
    with pytest.raises(BufferError):
        taking.grow(4)
    assert len(body.data) == 0


def test_without_a_comparison_no_digest_is_made():
    taking = PartBuffer(bytearray(2 * PIECE), None)
    data = any_bytes(2 * PIECE)
    assert taking.take(memoryview(data)) == 2 * PIECE
    body = taking.payload()
    assert (body.data, body.digest) == (data, "")


def test_large_pieces_are_digested_as_they_come():
    seen = []

    class Seen:
        def __init__(self):
            self.real = sha256()

        def update(self, data):
            seen.append(len(data))
            self.real.update(data)

        def hexdigest(self):
            return self.real.hexdigest()

    taking = PartBuffer(bytearray(3 * PIECE), Seen)
    for size in (10, 10, 3 * PIECE - 20):
        taking.take(memoryview(bytes(size)))
    assert seen == [PIECE] * 3, "no Python call per small write, no whole part at once"
    assert taking.payload().digest == sha256(bytes(3 * PIECE)).hexdigest()
