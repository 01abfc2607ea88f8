"""A sample is bytes with a name, and behaves like a file wherever one is expected."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from penstock import Sample
from penstock.data.reading.sample import FieldSample
from penstock.values import Span


def sample(data: bytes, label: object = None) -> Sample:
    return Sample("s3://bucket/", Span("train/ü 1", 0, len(data), "tag", whole=True), data, label)


def test_sample_exposes_its_attributes_and_repr():
    one = sample(b"hello\nworld", label=7)
    assert (one.key, one.url, one.size, one.label, one.etag) == ("train/ü 1", "s3://bucket/train/ü 1", 11, 7, "tag")
    assert repr(one) == "<Sample s3://bucket/train/ü 1 (11 bytes)>"


def test_data_is_the_bytes_themselves_and_read_only():
    data = b"x" * 1000
    view = sample(data).data
    assert view.obj is data
    assert view.readonly


def test_sample_supports_the_binary_file_interface():
    with sample(b"hello\nworld") as file:
        assert (file.read(2), file.tell(), file.readline(), list(file)) == (b"he", 2, b"llo\n", [b"world"])
        assert (file.seek(0), file.readlines(), file.seek(np.int8(0)), file.read1(2)) == (
            0,
            [b"hello\n", b"world"],
            0,
            b"he",
        )
        assert file.seek(-3, io.SEEK_END) == 8
        buffer = bytearray(5)
        assert (file.readinto(buffer), buffer) == (3, b"rld\0\0")
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
    assert file.closed
    for call in (file.read, file.readable, file.seekable, file.readlines, file.__enter__, lambda: file.seek(0)):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert bytes(file.data) == b"hello\nworld"


def test_libraries_take_it_for_a_file():
    image, array, tensors, archive = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    Image.new("L", (3, 2), 200).save(image, "PNG")
    np.save(array, np.arange(5))
    torch.save({"a": torch.ones(3)}, tensors)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inside", "text")
    assert Image.open(sample(image.getvalue())).size == (3, 2)
    assert np.load(sample(array.getvalue())).tolist() == [0, 1, 2, 3, 4]
    assert torch.load(sample(tensors.getvalue()), weights_only=True)["a"].tolist() == [1, 1, 1]
    assert zipfile.ZipFile(sample(archive.getvalue())).read("inside") == b"text"
    assert io.TextIOWrapper(sample(b"gr\xc3\xbc\xc3\x9fe"), "utf-8").read() == "grüße"


def test_pickled_sample_is_complete_and_rewound_to_the_start():
    one = sample(b"abc", label={"a": [1]})
    one.read()
    other = pickle.loads(pickle.dumps(one))
    assert (other.key, other.url, other.label, other.etag, other.read()) == (
        one.key,
        one.url,
        {"a": [1]},
        "tag",
        b"abc",
    )


def test_an_empty_object_is_a_sample_too():
    assert (sample(b"").size, sample(b"").read(), bytes(sample(b"").data)) == (0, b"", b"")


def test_fields_of_a_sample_are_a_dict_of_their_values():
    sample = FieldSample("s3://b/", Span("rows.parquet", 0, 3), ("7", {"x": memoryview(b"abc"), "label": 3}))
    fields = dict(sample)
    assert {**sample} == fields
    assert list(fields) == ["x", "label"]
    assert fields["x"].read() == b"abc"
    assert fields["label"] == 3
    assert "label" in sample
    assert "y" not in sample
