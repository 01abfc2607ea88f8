"""Headers of token files and Megatron's indexes: read as written, and refused by name where they cannot be true."""

import io
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.shards.tokens import MegatronIndex, TokenFile, token_dtype
from penstock.errors import Damaged, PenstockError, Unsupported, Unusable
from tests.amounts import examples
from tests.data.shards.archives import walked
from tests.data.tokens.files import CODES, index, llmc, megatron
from tests.refusals import refused


def npy(array, version=(1, 0)):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version=version)
    return file.getvalue()


def place(form, data):
    found, _ = walked(form, data)
    return found.offsets.tolist(), found.sizes.tolist(), found.schema


@pytest.mark.parametrize(
    ("form", "data", "expected"),
    [
        (TokenFile("<u2"), b"\1\0\2\0", ([0], [4], "<u2")),
        (TokenFile("<u4", "raw"), b"\1\0\2\0" * 3, ([0], [12], "<u4")),
        (TokenFile("<u2"), b"", ([0], [0], "<u2")),
        (TokenFile(), llmc(range(5)), ([1024], [10], "<u2")),
        (TokenFile(), llmc(range(5), "u4"), ([1024], [20], "<u4")),
        (TokenFile("", "llmc"), llmc([]), ([1024], [0], "<u2")),
        (TokenFile("<u2"), llmc(range(700)), ([1024], [1400], "<u2")),
        (TokenFile("<u2", "raw"), llmc([]), ([0], [1024], "<u2")),
        (TokenFile(), npy(np.arange(9, dtype="u2")), ([128], [18], "<u2")),
        (TokenFile("", "npy"), npy(np.arange(9, dtype="i8"), (2, 0)), ([128], [72], "<i8")),
    ],
)
def test_place_and_type_of_the_tokens(form, data, expected):
    assert place(form, data) == expected


def test_raw_file_of_a_given_type_takes_no_request():
    assert walked(TokenFile("<u2", "raw"), b"\0" * 1000)[1] == []
    assert [tuple(each) for each in walked(TokenFile("<u2"), b"\0" * 5000)[1]] == [(0, 1024)]


@pytest.mark.parametrize(
    ("form", "data", "error", "says"),
    [
        (TokenFile(), b"\0" * 4096, Unusable, "pass dtype='uint16'"),
        (TokenFile("<u2"), b"\0" * 4097, Damaged, "4097 bytes are not a whole number of uint16"),
        (TokenFile("<u4"), b"\0" * 4098, Damaged, "whole number of uint32"),
        (TokenFile("<u4"), llmc(range(5)), Unusable, "holds uint16 tokens, not uint32"),
        (TokenFile(), llmc(range(5), count=6), Damaged, "1034 bytes, but declares 6 tokens"),
        (TokenFile(), llmc(range(5), count=-1), Damaged, "-1 tokens"),
        (TokenFile("", "llmc"), llmc(range(5), version=9), Unsupported, "version 9"),
        (TokenFile("", "llmc"), b"\0" * 2000, Damaged, "no header of llm.c"),
        (TokenFile("", "llmc"), llmc([])[:1000], Damaged, "no header of llm.c"),
        (TokenFile("", "npy"), b"\0" * 2000, Damaged, "not a .npy file"),
        (TokenFile(), npy(np.zeros((3, 4), "u2")), Unsupported, r"uint16 of shape \(3, 4\)"),
        (TokenFile(), npy(np.zeros(3, ">u2")), Unsupported, "little-endian"),
        (TokenFile(), npy(np.zeros(3)), Unsupported, "float64"),
        (TokenFile(), npy(np.zeros(30, "u2"))[:-2], Damaged, "its header declares 30 tokens"),
        (TokenFile(), b"\x93NUMPY\1\0\xff\xff{", Damaged, "cannot read the header"),
        (TokenFile(), b"\x93NUMPY\7\0" + b"\0" * 200, Damaged, "cannot read the header"),
    ],
)
def test_file_that_is_not_what_it_claims_is_refused(form, data, error, says):
    refused(error, says, walked, form, data)


@pytest.mark.parametrize("given", ["float32", "u8", ">u2", "O", "nonsense", None, bool, "c8", "S2"])
def test_types_that_are_not_integers_are_refused(given):
    refused(Unusable, "dtype must be one of uint8", token_dtype, given)


@pytest.mark.parametrize("given", ["uint16", np.uint32, "i8", np.dtype("<i4"), int])
def test_types_of_tokens_have_one_name(given):
    assert token_dtype(given) == np.dtype(given)


DOCUMENTS = [[[1, 2, 3], [4]], [], [[]], [[5, 6, 7, 8]], [[], [9, 9], []]]


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "i8", "u2"])
@pytest.mark.parametrize("modes", [False, True])
def test_units_of_an_index_are_where_the_builder_wrote_them(dtype, modes):
    data, idx = megatron(DOCUMENTS, dtype, modes=modes)
    item, sequences = np.dtype(dtype).itemsize, [each for document in DOCUMENTS for each in document]
    found, asks = walked(MegatronIndex("sequences"), idx)
    assert len(asks) == 1
    assert np.dtype(found.schema) == np.dtype(dtype)
    assert (found.sizes // item).tolist() == [len(each) for each in sequences]
    cuts = [data[start : start + size] for start, size in zip(found.offsets, found.sizes, strict=True)]
    assert cuts == [np.array(each, dtype).tobytes() for each in sequences]
    found, _ = walked(MegatronIndex("documents"), idx)
    assert (found.sizes // item).tolist() == [4, 0, 0, 4, 2]
    assert place(MegatronIndex("tokens"), idx) == ([0], [len(data)], found.schema)


def test_long_index_is_read_in_pieces_for_windows_of_files(monkeypatch):
    monkeypatch.setattr("penstock.data.shards.tokens._PIECE", 30_000)
    data, idx = megatron([[[at]] for at in range(40_000)])
    found, asks = walked(MegatronIndex(), idx)
    assert [ask.stop - ask.start for ask in asks] == [34, 120_000, 240_000, 40_000, 80_000]
    assert found.sizes.tolist() == [len(data)]
    lost = index([1] * 39_999, [*range(0, 70_000, 2), *range(70_002, 80_000, 2)], [0, 39_999])
    refused(Damaged, "sequence 35000 begins at byte 70002", walked, MegatronIndex(), lost)
    _, asks = walked(MegatronIndex("documents"), idx)
    assert [ask.stop - ask.start for ask in asks] == [34, len(idx) - 34]


@pytest.mark.parametrize(
    ("borders", "documents"),
    [([0, 1, 3], [1, 2]), ([0, 0, 3, 3], [0, 3, 0])],
)
def test_documents_are_those_of_the_list(borders, documents):
    idx = index([1, 1, 1], [0, 2, 4], borders)
    assert (walked(MegatronIndex("documents"), idx)[0].sizes // 2).tolist() == documents


@pytest.mark.parametrize("borders", [[0, 1], [1, 3], [0], [], [3], [2]])
def test_list_of_documents_that_is_not_of_all_sequences_is_refused(borders):
    with pytest.raises(Damaged, match="the list of documents leads from sequence"):
        walked(MegatronIndex("documents"), index([1, 1, 1], [0, 2, 4], borders))
    assert walked(MegatronIndex("sequences"), index([1, 1, 1], [0, 2, 4], borders))[0].sizes.tolist() == [2, 2, 2]


@pytest.mark.parametrize("units", ["tokens", "sequences", "documents"])
def test_index_without_sequences_has_no_units(units):
    _, idx = megatron([])
    assert walked(MegatronIndex(units), idx)[0].sizes.sum() == 0


HOSTILE = {
    "short": (b"MMIDIDX\0\0", Damaged, "at least 34 bytes"),
    "no-magic": (b"\0" * 100, Damaged, "not an index of Megatron"),
    "old": (b"TNTIDX\0\0" + b"\0" * 100, Unsupported, "TNTIDX"),
    "version": (index([1], [0], [0, 1], version=2), Unsupported, "version 2"),
    "float": (index([1], [0], [0, 1], 7), Unsupported, "float32"),
    "double": (index([1], [0], [0, 1], 6), Unsupported, "float64"),
    "code": (index([1], [0], [0, 1], 9), Unsupported, r"type 9 \(unknown\)"),
    "counts": (index([1], [0], [0, 1], sequences=2**61), Damaged, "sequences and 2 documents need"),
    "more": (index([1], [0], [0, 1]) + b"12", Damaged, "has 64 bytes"),
    "less": (index([1], [0], [0, 1])[:-1], Damaged, "has 61 bytes"),
    "negative": (index([3, -1], [0, 6], [0, 2]), Damaged, "sequence|-1 tokens"),
    "pointer": (index([3, 1], [0, 8], [0, 2]), Damaged, "sequence 1 begins at byte 8 of the .bin, not at 6"),
    "overlap": (index([3, 1], [0, 4], [0, 2]), Damaged, "at byte 4"),
    "order": (index([3, 1], [0, 6], [0, 2, 1]), Damaged, "not in order"),
    "outside": (index([3, 1], [0, 6], [0, 3]), Damaged, "outside the 2 sequences"),
    "below": (index([3, 1], [0, 6], [-1, 2]), Damaged, "outside the 2 sequences"),
}


@pytest.mark.parametrize(("data", "error", "says"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_index_is_refused(data, error, says):
    refused(error, says, walked, MegatronIndex("documents"), data)


@pytest.mark.parametrize("pointer", [-2, 2**62 + 2, 3])
def test_hostile_last_sequence_is_refused_for_windows_of_files(pointer):
    refused(Damaged, "begins at byte", walked, MegatronIndex(), index([3, 1], [0, pointer], [0, 2]))


@pytest.mark.parametrize(
    ("lengths", "pointers"),
    [([2, 2], [0, 8]), ([2, 2, 2], [4, 0, 8]), ([2, 2, 2, 2], [0, 4, 4, 8])],
    ids=["filtered", "reordered", "repeated"],
)
@pytest.mark.parametrize("units", ["tokens", "sequences", "documents"])
def test_index_that_chooses_or_reorders_sequences_is_refused(lengths, pointers, units):
    with pytest.raises(Damaged, match="an index that chooses or reorders sequences is not read"):
        walked(MegatronIndex(units), index(lengths, pointers, [0, len(lengths)]))


@pytest.mark.parametrize("magic", [b"LITPKDS", b"MMIDIDX\0\0", b"TNTIDX\0\0", b"\x1f\x8b\x08", b"PK\3\4", b"PAR1"])
def test_file_of_another_format_is_not_taken_for_tokens(magic):
    data = magic + bytes(64 - len(magic))
    refused(Unsupported, "pass format='raw' if these are tokens", walked, TokenFile("<u2"), data)
    assert walked(TokenFile("<u2", "raw"), data)[0].sizes.tolist() == [64]


@given(st.binary(max_size=120), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 255))
@settings(max_examples=examples(200))
def test_any_bytes_are_units_within_the_file_or_an_error(rest, sequences, documents, code):
    data = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, sequences, documents) + rest
    for units in ("tokens", "sequences", "documents"):
        try:
            found, _ = walked(MegatronIndex(units), data)
        except PenstockError:
            continue
        assert len(found.offsets) <= len(data)
        assert (found.sizes >= 0).all()
    assert set(CODES.values()) == set(range(1, 9))


@pytest.mark.parametrize(
    "text", ["(" * 900, "'shape': (1,", "'shape': (1;2)", "'shape': (9999999999999999999,)", "\t\n x"]
)
def test_npy_header_of_any_text_is_refused(text):
    data = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode()
    refused(Damaged, "cannot read the header", walked, TokenFile(), data)
