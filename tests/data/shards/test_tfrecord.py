"""TFRecord files: payloads by ranges, both checksums compared; TensorFlow's own file is read as TensorFlow reads it."""

import itertools
import zlib
from hashlib import sha256
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.shards.tfrecord import TFRecordFormat
from penstock.errors import ChecksumMismatch, Damaged, Unsupported
from tests.amounts import examples
from tests.data.shards.archives import masked, record, samples, tfrecord, walked
from tests.refusals import refused

GOLDEN = Path(__file__).parent / "golden" / "examples.tfrecord-00000-of-00001"


@given(st.lists(st.binary(max_size=300), max_size=12))
@settings(max_examples=examples(50))
def test_samples_are_the_payloads(payloads):
    data = tfrecord(payloads)
    assert samples(TFRecordFormat(), data) == payloads
    found, _ = walked(TFRecordFormat(), data)
    assert found.sizes.sum() == len(data)


def test_file_of_tensorflow_is_read_as_tensorflow_reads_it():
    found = samples(TFRecordFormat(), GOLDEN.read_bytes())
    assert [(len(each), sha256(each).hexdigest()[:16]) for each in found] == [
        (33, "4b25e09ee3ef6eab"),
        (34, "bff7a3a17cee244f"),
        (38, "08b68afc4dca8f6a"),
        (1038, "b4ccef0c28d92642"),
        (0, "e3b0c44298fc1c14"),
    ]


def test_payload_is_a_view_of_the_block():
    data = record(b"payload")
    assert TFRecordFormat().sample(memoryview(data)).obj is data


def test_large_payloads_are_not_read_to_find_the_next_header():
    data = tfrecord([bytes([number]) * (600 << 10) for number in range(20)], checked=False)
    found, asks = walked(TFRecordFormat(), data)
    assert len(found.offsets) == 20
    assert sum(ask.stop - ask.start for ask in asks) < len(data) // 50


def test_small_payloads_are_read_in_few_requests_and_no_byte_twice():
    data = tfrecord([b"t" * 3000], checked=False) * 5000
    found, asks = walked(TFRecordFormat(), data)
    assert len(found.offsets) == 5000
    assert len(asks) < 12
    assert all(one.stop == other.start for one, other in itertools.pairwise(asks))


@pytest.mark.parametrize(
    "sizes", [(0, 300 << 10, 5, 7, 300 << 10, 1), (300 << 10, 300 << 10), (65508, 65508, 1 << 20, 3)]
)
def test_small_and_large_payloads_may_alternate(sizes):
    data = tfrecord([bytes(size) for size in sizes], checked=False)
    found, _ = walked(TFRecordFormat(), data)
    assert [size - 16 for size in found.sizes.tolist()] == [*sizes]
    assert found.offsets.tolist() == [0, *itertools.accumulate(size + 16 for size in sizes[:-1])]


def test_a_file_may_be_empty():
    assert samples(TFRecordFormat(), b"") == []


@pytest.mark.parametrize("cut", [1, 4, 10, 17, 18, 26, 29])
def test_truncated_files_are_refused(cut):
    refused(Damaged, "ends within", walked, TFRecordFormat(), tfrecord([b"one", b"two", b"last payload x"])[:-cut])


def test_length_is_believed_only_with_its_checksum():
    data = bytearray(tfrecord([b"one", b"two"]))
    data[20] ^= 1
    refused(Damaged, "no TFRecord header is at byte 19", walked, TFRecordFormat(), bytes(data))


def test_length_beyond_the_file_is_refused():
    header = pack("<Q", (1 << 64) - 1)
    with pytest.raises(Damaged, match="ends within the record"):
        walked(TFRecordFormat(), header + pack("<I", masked(header)) + bytes(100))


def test_each_flipped_bit_of_a_record_is_noticed():
    data = record(b"payload")
    for bit in range(8 * len(data)):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            samples(TFRecordFormat(), bytes(wrong))


def test_payload_is_compared_when_it_is_read():
    with pytest.raises(ChecksumMismatch, match="does not match its 3 bytes"):
        TFRecordFormat().sample(memoryview(record(b"one", checked=False)))


@pytest.mark.parametrize("data", [b"", b"x" * 11, record(b"one")[:-1], record(b"one") * 2])
def test_bytes_of_no_record_or_two_are_refused(data):
    refused(Damaged, "not those of one TFRecord", TFRecordFormat().sample, memoryview(data))


def test_compressed_files_are_refused_with_advice():
    for kind, wbits, advice in (("gzip", 31, 'format="tfrecord.gz"'), ("zlib", 15, "without")):
        squeezed = zlib.compressobj(wbits=wbits)
        data = squeezed.compress(record(b"payload")) + squeezed.flush()
        refused(Unsupported, f"compressed with {kind}.*{advice}", walked, TFRecordFormat(), data)


def test_shards_with_numbers_behind_their_ends_are_found(tmp_path):
    for number in range(3):
        (tmp_path / f"train.tfrecord-{number:05}-of-00003").write_bytes(tfrecord([b"%d" % number, b"x"]))
    (tmp_path / "readme-00000-of-00001").write_bytes(b"none")
    dataset = ps.MapDataset.from_shards(tmp_path)
    assert [sample.read() for sample in dataset] == [b"0", b"x", b"1", b"x", b"2", b"x"]
    assert len(ps.Catalog.from_shards(tmp_path / "train.tfrecord-00001-of-00003")) == 2


def test_damaged_sample_names_its_place(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(tfrecord([b"one"]) + tfrecord([b"two"], checked=False))
    dataset = ps.MapDataset.from_shards(tmp_path)
    with pytest.raises(ChecksumMismatch, match=r"a\.tfrecord#bytes=19-37"):
        dataset[1]
