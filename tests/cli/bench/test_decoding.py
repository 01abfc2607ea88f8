"""The user's transform is found by name, also in the working directory, and its errors are its own."""

from __future__ import annotations

import sys

import pytest

from penstock.cli.bench.run import decoding, named
from penstock.errors import Unusable
from penstock.values import Span

OBJECTS = [(Span(f"{number}"), bytes([number]) * 100) for number in range(5)]


def double(sample):
    return sample.read() * 2


def fails(sample):
    raise StopIteration if sample.key == "3" else ValueError(sample.key)


class Nested:
    decode = staticmethod(double)


def test_a_transform_is_found_by_its_name():
    assert named(f"{__name__}:double") is double
    assert named(f"{__name__}:Nested.decode") is double


def test_a_module_of_the_working_directory_is_found(tmp_path, monkeypatch):
    (tmp_path / "training_of_mine.py").write_text("def decode(sample): return sample.size\n")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    assert named("training_of_mine:decode").__name__ == "decode"
    assert sys.path == path
    del sys.modules["training_of_mine"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("decode", "written module:name"),
        (":decode", "written module:name"),
        ("train:", "written module:name"),
        ("no_such_module:decode", "ModuleNotFoundError"),
        ("os:no_such_name", "AttributeError"),
        ("os:name", "must be a function"),
    ],
)
def test_invalid_transform_name_is_refused_with_the_reason(name, message):
    with pytest.raises(Unusable, match=message):
        named(name)


def test_samples_are_decoded_again_and_again_in_one_thread_and_in_three():
    one, three = decoding(double, "s3://b/", OBJECTS, 0.02, 3.0)
    assert (one.name, one.threads, three.threads) == ("decode", 1, 3)
    for each in (one, three):
        assert each.objects >= each.threads
        assert each.size_bytes == each.objects * 100


def test_decoding_with_one_processor_skips_the_threaded_step():
    assert len([*decoding(double, "s3://b/", OBJECTS, 0.01, 1.5)]) == 1


def test_an_error_of_the_transform_is_the_result():
    (found,) = decoding(fails, "s3://b/", OBJECTS, 0.02, 3.0)
    assert (found.outcome, found.detail) == ("failed", "ValueError: 0")
    (found,) = decoding(fails, "s3://b/", OBJECTS[3:], 0.02, 3.0)
    assert (found.outcome, type(found.error)) == ("failed", StopIteration)


def test_nothing_is_decoded_where_nothing_was_read():
    (found,) = decoding(double, "s3://b/", [], 0.02, 3.0)
    assert found.outcome == "skipped"
