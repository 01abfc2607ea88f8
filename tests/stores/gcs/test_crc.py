"""CRC-32C as Google writes it, whichever of its lines the transport kept."""

from base64 import b64encode
from hashlib import md5

import pytest

from penstock.stores.gcs.driver import Crc32c, body_headers, stored_sum
from penstock.values import Checksum

CHECK = b"123456789"  # of which the CRC catalogue says e3069283
GOOD = "4waSgw=="
MD5 = b64encode(md5(CHECK, usedforsecurity=False).digest()).decode()


def test_a_digest_under_way_is_that_of_the_whole():
    digest = Crc32c()
    for piece in (b"1234", bytearray(b"56"), memoryview(b"789")):
        digest.update(piece)
    assert digest.hexdigest() == "e3069283"
    assert body_headers(digest.hexdigest()) == {"x-goog-hash": f"crc32c={GOOD}"}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (f"crc32c={GOOD}", True),
        (f"crc32c={GOOD},md5={MD5}", True),
        (f"md5={MD5}, crc32c={GOOD}", True),
        (f"md5={MD5}", True),
        (f"crc32c=AAAAAA==,md5={MD5}", False),
        ("md5=AAAA", False),
        ("", True),
        ("sha256=AAAA", True),
    ],
)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_checksum_is_compared(stored, expected, kind):
    assert Checksum("x-goog-hash", stored, stored_sum).holds(kind(CHECK)) is expected
