"""Byte arrays cut from the pages of a Parquet file are those that pyarrow decodes; others are left to it."""

import io
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from penstock.data.parquet import pages_of, row_groups
from penstock.data.shards.pages import byte_views
from tests.amounts import examples

LIMIT = 8 << 10  # bytes of a page, or of a dictionary


def written(values, *, nullable=True, **options):
    schema = pa.schema([pa.field("x", pa.binary(), nullable)])
    file = io.BytesIO()
    options = {"data_page_size": LIMIT, "dictionary_pagesize_limit": LIMIT, "write_batch_size": 4} | options
    parquet.write_table(pa.table({"x": pa.array(values, pa.binary())}, schema), file, **options)
    return file.getvalue()


def views(data, *, nullable=True):
    """Return the values of the first column in all row groups; None where one is left to pyarrow."""
    length = int.from_bytes(data[-8:-4], "little")
    found = []
    for group in row_groups(data[-8 - length : -8]):
        (chunk,) = group.chunks
        column = memoryview(data)[chunk.start : chunk.stop]
        pages = [*pages_of(column, 0, len(column))]
        cut = byte_views(column, pages, chunk.codec, int(nullable), chunk.values)
        if cut is None:
            return None
        assert all((each.format, each.readonly) == ("B", True) for each in cut)
        found += [bytes(each) for each in cut]
    return found


OPTIONS = {
    "compression": st.sampled_from(["none", "snappy", "zstd"]),
    "data_page_version": st.sampled_from(["1.0", "2.0"]),
    "use_dictionary": st.booleans(),
    "write_page_checksum": st.booleans(),
    "use_content_defined_chunking": st.booleans(),
    "row_group_size": st.sampled_from([7, 1000]),
}


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.binary(max_size=40) | st.integers(0, 1 << 13).map(lambda n: random.Random(n).randbytes(n)), min_size=1),
    st.booleans(),
    st.fixed_dictionaries(OPTIONS),
)
def test_values_are_those_that_were_written(values, nullable, options):
    assert views(written(values, nullable=nullable, **options), nullable=nullable) == values


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([b"a", None, b"b"], {}),
        ([None], {"use_dictionary": False}),
        ([b"a" * 2000] * 9, {"compression": "gzip"}),
        ([b"abc", b"abd"] * 9, {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}),
    ],
)
def test_nulls_other_codecs_and_encodings_are_left_to_pyarrow(version, values, options):
    assert views(written(values, data_page_version=version, **options)) is None


def test_values_of_plain_pages_share_the_memory_of_the_file():
    values = [random.Random(seed).randbytes(5000) for seed in range(3)]
    data = bytearray(written(values, compression="none", use_dictionary=False, write_statistics=False))
    length = int.from_bytes(data[-8:-4], "little")
    (group,) = row_groups(bytes(data[-8 - length : -8]))
    (chunk,) = group.chunks
    column = memoryview(data)[chunk.start : chunk.stop]
    first, *_ = byte_views(column, [*pages_of(column, 0, len(column))], chunk.codec, 1, 3)
    data[data.index(values[0])] ^= 1
    assert bytes(first) != values[0], "a view sees the change"


def test_page_whose_checksum_does_not_match_is_left_to_pyarrow():
    value = b"x" * 3000
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    data = bytearray(written([value], **options))
    assert views(bytes(data)) == [value]
    data[data.index(value)] ^= 1
    assert views(bytes(data)) is None


def test_damage_is_left_to_pyarrow_or_gives_what_it_reads(seed):
    draw = random.Random(seed)
    cut = 0
    for _ in range(examples(300)):
        options = {"compression": draw.choice(["none", "snappy", "zstd"]), "use_dictionary": draw.random() < 0.5}
        values = [draw.randbytes(draw.randrange(200)) for _ in range(draw.randrange(1, 30))]
        data = bytearray(written(values, data_page_version=draw.choice(["1.0", "2.0"]), **options))
        stop = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(4, stop)] = draw.randrange(256)
        try:
            found = views(bytes(data))
        except ValueError:
            continue  # of a page's header, which is refused before
        if found is None:
            continue
        assert len(found) == len(values)
        try:
            theirs = parquet.read_table(io.BytesIO(data), use_threads=False)["x"].to_pylist()
        except (OSError, pa.ArrowException):
            continue
        assert found == theirs
        cut += 1
    assert cut


def test_snappy_page_that_states_more_bytes_than_it_has_is_left_to_pyarrow():
    """pyarrow's codec would return memory as it was found."""
    packed = pa.compress(b"\5\0\0\0abcde", codec="snappy", asbytes=True)
    header = b"\x15\0\x15\x28\x15" + bytes([2 * len(packed)]) + b"\x2c\x15\4\x15\0\x15\6\x15\6\0\0"
    column = memoryview(header + packed)
    (page,) = pages_of(column, 0, len(column))
    assert (page.unpacked, page.values) == (20, 2)
    assert byte_views(column, [page], 1, 0, 2) is None
    header = {**page.header, 2: 9, 5: {**page.header[5], 1: 1}}
    assert byte_views(column, [page._replace(unpacked=9, values=1, header=header)], 1, 0, 1) == [b"abcde"]
