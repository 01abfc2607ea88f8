"""``moov`` and fragments are found by few reads, and no more is read than they need."""

import struct

import pytest

from penstock.errors import Damaged, Unsupported
from tests.data.video.moov import box, file, walked
from tests.data.video.test_fragments import KEY, fragment, head


def test_moov_box_that_claims_gigabytes_is_not_read():
    head = box("ftyp", b"isom") + struct.pack(">I4s", 1 << 31, b"moov")
    with pytest.raises(Unsupported, match="moov and moof have 2147483648 bytes, and at most 67108864"):
        walked(head + bytes(64 << 10), 3 << 30)


class Sparse:
    """Bytes of a file of many gigabytes, zeros but for its beginning and its end."""

    def __init__(self, head: bytes, size: int, tail: bytes) -> None:
        self.head, self.size, self.tail = head, size, tail

    def __getitem__(self, place: slice) -> bytes:
        data = bytearray(place.stop - place.start)
        for start, part in ((0, self.head), (self.size - len(self.tail), self.tail)):
            first, last = max(place.start, start), min(place.stop, start + len(part))
            if first < last:
                data[first - place.start : last - place.start] = part[first - start : last - start]
        return bytes(data)


@pytest.mark.parametrize("long", [True, False])
def test_offsets_beyond_four_gibibytes_are_read_from_the_end_in_two_requests(long):
    base = 6 << 30
    small = file(sizes=(100, 200, 300), wide=True, at=base)
    at = small.index(b"moov") - 4
    head = box("ftyp", b"isom\0\0\2\0isom") + (
        struct.pack(">I4sQ", 1, b"mdat", base + 600 + 16) if long else struct.pack(">I4s", 0, b"mdat")
    )
    size = len(head) + base + 600 + len(small) - at
    sparse = Sparse(head, size, small[at:])
    if not long:
        with pytest.raises(Damaged, match="no moov box"):
            walked(sparse, size)
        return
    track, asked = walked(sparse, size)
    assert track.offsets.tolist() == [base + 28, base + 128, base + 328]
    assert asked == [(0, 1 << 20), (size - len(small) + at, size)]


def test_first_read_grows_with_the_file_and_holds_moov_in_front():
    track, asked = walked(file(sizes=[4000] * 6000, keys=[*range(1, 6001, 12)], front=True))
    assert asked[0] == (0, 64 << 10)
    assert len(asked) == 1
    assert len(track.sizes) == 6000


def test_far_fragments_take_a_read_each_and_near_ones_are_read_together():
    far = head() + b"".join(fragment([1 << 20], **KEY) for _ in range(6))
    track, asked = walked(far)
    assert len(track.sizes) == 6
    # The last read finds the end of the file.
    assert [stop - start for start, stop in asked] == [64 << 10, *[16 << 10] * 5]
    near = head() + b"".join(fragment([10_000], **KEY) for _ in range(400))
    track, asked = walked(near)
    assert len(track.sizes) == 400
    assert len(asked) <= 2 + 1 + len(near) // (1 << 20)
    assert sum(stop - start for start, stop in asked) <= len(near)
