"""Vectors are described where they lie, one after another; whole files that lie are refused in ``test_saved``."""

from penstock.catalog.storage.builder import TableBuilder
from penstock.catalog.storage.vectors import described, padded, vectors_of


def test_vectors_lie_where_they_are_said_to():
    growing = TableBuilder()
    for number in range(40):
        growing.add(b"k" * number, number, "e", number)
    vectors, values = vectors_of(growing.freeze())
    assert described([each._asdict() for each in vectors], 0) == vectors
    whole = b"".join(map(bytes, padded(vectors, values)))
    assert len(whole) == vectors[-1].stop
    for each, numbers in zip(vectors, values, strict=True):
        assert each.offset % 64 == 0
        assert whole[each.offset : each.stop] == numbers.values.tobytes()
