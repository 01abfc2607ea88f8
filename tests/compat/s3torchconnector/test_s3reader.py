from __future__ import annotations

import io
import pickle

import pytest
import torch

from penstock.compat.s3torchconnector import (
    S3Checkpoint,
    S3ClientConfig,
    S3Exception,
    S3MapDataset,
    S3Reader,
    S3ReaderConstructor,
    S3Writer,
)
from penstock.compat.s3torchconnector.s3reader import (
    DCPOptimizedS3Reader,
    DCPS3ReaderConstructorProtocol,
    ObjectReader,
    RangedS3Reader,
    S3ReaderConstructorProtocol,
    SampleReader,
    SequentialS3Reader,
    reader_kind,
)
from penstock.data.reading.sample import Sample
from penstock.errors import NotFound, Unusable
from penstock.source import open_source
from penstock.values import Span

DATA = b"first line\nsecond\n" + bytes(range(200))
KINDS = {
    "sequential": S3ReaderConstructor.sequential(),
    "blocks": S3ReaderConstructor.range_based(buffer_size=16),
    "unbuffered": S3ReaderConstructor.range_based(buffer_size=0),
    "default ranges": S3ReaderConstructor.range_based(),
}


@pytest.fixture(params=["sample", *KINDS])
def reader(request, s3):
    s3.client.put_object(Bucket=s3.name, Key="dir/a b+c", Body=DATA)
    if request.param == "sample":
        return SampleReader(Sample(s3.url, Span("dir/a b+c"), DATA))
    return KINDS[request.param].open(*open_source(s3.url + "dir/a b+c"))


def test_reader_reports_its_bucket_key_and_read_only_capabilities(reader, s3):
    assert (reader.bucket, reader.key) == (s3.name, "dir/a b+c")
    assert isinstance(reader, S3Reader)
    assert isinstance(reader, io.BufferedIOBase)
    assert (reader.readable(), reader.seekable(), reader.writable()) == (True, True, False)
    for change in (lambda: reader.write(b"x"), reader.truncate):
        with pytest.raises(io.UnsupportedOperation):
            change()


def test_a_reader_reads_as_a_file_does(reader):
    assert reader.tell() == 0
    assert (reader.read(5), reader.tell()) == (DATA[:5], 5)
    assert reader.readline() == DATA[5:11]
    assert reader.seek(-3, io.SEEK_END) == len(DATA) - 3
    buffer = bytearray(10)
    assert reader.readinto(buffer) == 3
    assert buffer[:3] == DATA[-3:]
    assert reader.read() == reader.read(1) == b""
    assert reader.seek(0) == 0
    assert reader.read() == DATA
    assert (reader.seek(2), reader.read(None)) == (2, DATA[2:])
    reader.seek(0)
    assert reader.read1(4) == DATA[:4]
    reader.seek(0)
    assert next(iter(reader)) == b"first line\n"


def test_past_the_end_is_the_end(reader):
    assert reader.seek(10**9) == reader.tell() == len(DATA)
    assert reader.seek(5, io.SEEK_END) == len(DATA)
    assert reader.seek(5, io.SEEK_CUR) == len(DATA)
    assert reader.read(3) == b""
    with pytest.raises(ValueError, match="-1"):
        reader.seek(-1)


def test_a_closed_reader_is_closed(reader):
    with reader as same:
        assert same is reader
        reader.read(1)
    assert reader.closed
    with pytest.raises(ValueError, match="closed"):
        reader.read(1)


def test_a_reader_pickles_and_begins_anew(reader):
    copy = pickle.loads(pickle.dumps(reader))
    assert isinstance(copy, type(reader))
    assert (copy.bucket, copy.key, copy.read()) == (reader.bucket, reader.key, DATA)


def test_readers_feed_torch(s3):
    file = io.BytesIO()
    torch.save({"x": torch.arange(100_000)}, file)
    s3.client.put_object(Bucket=s3.name, Key="c.pt", Body=file.getvalue())
    for kind in KINDS.values():
        assert torch.load(kind.open(*open_source(s3.url + "c.pt")))["x"].sum() == 4999950000


def test_missing_object_raises_on_prefetch_after_a_lazy_open(s3):
    reader = ObjectReader(*open_source(s3.url + "none"))
    assert reader.tell() == 0
    with pytest.raises(NotFound):
        reader.prefetch()


def test_range_based_readers_ask_for_little(s3, requested):
    s3.client.put_object(Bucket=s3.name, Key="large", Body=bytes(1 << 20))
    exact = KINDS["unbuffered"].open(*open_source(s3.url + "large"))
    exact.seek(1000)
    exact.read(24)
    assert requested() == 24
    blocks = S3ReaderConstructor.range_based(buffer_size=4096).open(*open_source(s3.url + "large"))
    blocks.read(10)
    blocks.read(20)
    assert requested() == 4096


@pytest.fixture
def requested():
    """Return how many bytes were read since it was last asked."""
    from penstock.events import RangeRead, subscribe

    sizes: list[int] = []
    leave = subscribe(lambda event: sizes.append(event.size_bytes) if isinstance(event, RangeRead) else None)

    def asked() -> int:
        total = sum(sizes)
        sizes.clear()
        return total

    yield asked
    leave()


def test_kinds_have_names_and_pickle():
    names = ["sequential", "range_based", "dcp_optimized"]
    kinds = [getattr(S3ReaderConstructor, name)() for name in names]
    assert [S3ReaderConstructor.get_reader_type_string(each) for each in kinds] == names
    assert S3ReaderConstructor.get_reader_type_string(None) == "sequential"
    assert S3ReaderConstructor.get_reader_type_string(print) == "unknown"
    assert [pickle.loads(pickle.dumps(each)) for each in kinds] == kinds
    assert reader_kind(None) == S3ReaderConstructor.default() == kinds[0]


READERS = {"sequential": SequentialS3Reader, "range_based": RangedS3Reader, "dcp_optimized": DCPOptimizedS3Reader}


@pytest.mark.parametrize("name", READERS)
def test_readers_are_of_the_originals_classes(s3, name):
    s3.client.put_object(Bucket=s3.name, Key="k", Body=DATA)
    constructor = getattr(S3ReaderConstructor, name)()
    with constructor.open(*open_source(s3.url + "k")) as reader:
        assert [kind for kind in READERS.values() if isinstance(reader, kind)] == [READERS[name]]
        assert reader.read(size=5) == DATA[:5]
        assert reader.readinto(buf=bytearray(3)) == 3
    assert isinstance(constructor, S3ReaderConstructorProtocol)
    assert isinstance(constructor, DCPS3ReaderConstructorProtocol) == (name == "dcp_optimized")
    for make in (READERS[name], constructor):
        with pytest.raises(NotImplementedError, match="cannot be created directly"):
            make("bucket", "k", get_object_info=lambda: None, get_stream=lambda: None)


def test_a_dataset_yields_sequential_readers(s3):
    s3.client.put_object(Bucket=s3.name, Key="k", Body=DATA)
    [reader] = S3MapDataset.from_prefix(s3.url, region="us-east-1")
    assert isinstance(reader, SequentialS3Reader)
    assert (reader.read(size=5), reader.readinto(buf=bytearray(3)), reader.tell()) == (DATA[:5], 3, 8)


def test_invalid_reader_kind_and_negative_sizes_are_refused():
    with pytest.raises(Unusable, match="one of S3ReaderConstructor's"):
        reader_kind(lambda **_: None)
    for kind in (Unusable, ValueError):
        with pytest.raises(kind, match="buffer_size"):
            S3ReaderConstructor.range_based(-1)
        with pytest.raises(kind, match="max_gap_size"):
            S3ReaderConstructor.dcp_optimized(-1)


STATE = {"weight": torch.arange(10_000.0).reshape(100, 100), "epoch": 3}


@pytest.fixture
def checkpoint(s3):  # noqa: ARG001  its environment
    return S3Checkpoint(region="us-east-1")


def test_a_state_is_saved_and_loaded(checkpoint, s3):
    url = s3.url + "epoch 0/c+1.pt"
    with checkpoint.writer(url) as writer:
        assert isinstance(writer, S3Writer)
        assert isinstance(writer, io.BufferedIOBase)
        torch.save(STATE, writer)
        assert writer.tell() > 40_000
    with checkpoint.reader(url) as reader:
        assert isinstance(reader, S3Reader)
        assert (reader.bucket, reader.key) == (s3.name, "epoch 0/c+1.pt")
        loaded = torch.load(reader)
    assert torch.equal(loaded["weight"], STATE["weight"])
    assert loaded["epoch"] == 3


def test_a_block_that_fails_publishes_nothing(checkpoint, s3):
    s3.client.put_object(Bucket=s3.name, Key="c.pt", Body=b"old")
    with pytest.raises(ZeroDivisionError), checkpoint.writer(s3.url + "c.pt") as writer:
        writer.write(b"half")
        raise ZeroDivisionError
    assert checkpoint.reader(s3.url + "c.pt").read() == b"old"


def test_region_endpoint_and_configuration_are_the_stores(s3, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    config = S3ClientConfig(force_path_style=True)
    checkpoint = S3Checkpoint("us-east-1", s3.server.endpoint, config)
    assert (checkpoint.region, checkpoint.endpoint) == ("us-east-1", s3.server.endpoint)
    with checkpoint.writer(s3.url + "x") as writer:
        writer.write(memoryview(b"bytes"))
    assert checkpoint.reader(s3.url + "x").read() == b"bytes"


def test_errors_have_both_names(checkpoint, s3):
    with pytest.raises(S3Exception) as caught:
        torch.load(checkpoint.reader(s3.url + "none"))
    assert isinstance(caught.value, NotFound)
    for use in (checkpoint.reader, checkpoint.writer):
        with pytest.raises(ValueError, match="Only s3://"):
            use("/tmp/c.pt")  # noqa: S108  nothing is written
        with pytest.raises(ValueError, match="bucket"):
            use("s3://bucket")
