"""A CRC under way adds up: in any pieces, the digest of the whole, with all its digits."""

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from penstock.stores.http.verify import Crc


class Crc32(Crc):
    digits = 8
    library = staticmethod(lambda: crc32)


@given(st.lists(st.binary()))
def test_pieces_give_the_digest_of_the_whole(pieces):
    crc = Crc32()
    for piece in pieces:
        crc.update(piece)
    assert crc.hexdigest() == crc32(b"".join(pieces)).to_bytes(4, "big").hex()


def test_leading_zeros_are_digits():
    assert Crc32().hexdigest() == "00000000"
