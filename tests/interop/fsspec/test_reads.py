"""Slices of many files: as Python has them, in few requests, and errors where they belong."""

from __future__ import annotations

import random

import pytest

from penstock.errors import InvalidURL, NotFound, UnknownScheme, Unusable
from penstock.interop.fsspec.schemes import kind_of
from penstock.testing.faults import FaultServer, Settings

DATA = bytes(random.Random(1).randrange(256) for _ in range(100_000))


@pytest.fixture(scope="module")
def server():
    with FaultServer.within(Settings()) as made:
        made.make("bucket")
        made.put("bucket", "k", DATA)
        made.put("bucket", "empty", b"")
        yield made


@pytest.fixture
def fs(server):
    return kind_of("s3")(server.store)


def _asked(server, act):
    before = len(server.seen())
    result = act()
    return result, [each.method for each in server.seen()[before:]]


@pytest.mark.parametrize("start", [None, 0, 7, -9, 99_990, 200_000, -200_000])
@pytest.mark.parametrize("end", [None, 20, -3, 100_000, 200_000, 0])
def test_slices_are_those_of_python(fs, start, end):
    assert fs.cat_file("bucket/k", start, end) == DATA[start:end]
    assert fs.cat_ranges(["bucket/k"] * 2, [start, 5], [end, 9]) == [DATA[start:end], DATA[5:9]]
    assert fs.cat_ranges(["bucket/empty"], start, end) == [b""]


def test_near_ranges_are_one_request_and_all_ranges_one_batch(fs, server):
    starts = [*range(0, 100_000, 1000)]
    ends = [each + 100 for each in starts]
    wanted = [DATA[start:end] for start, end in zip(starts, ends, strict=True)]
    for max_gap, requests in ((None, 1), (900, 1), (899, 100), (0, 100)):
        found, asked = _asked(server, lambda gap=max_gap: fs.cat_ranges(["bucket/k"] * 100, starts, ends, max_gap=gap))
        assert found == wanted
        assert asked == ["GET"] * requests
    assert _asked(server, lambda: fs.cat_file("bucket/k", 5, 10))[1] == ["GET"]
    assert _asked(server, lambda: fs.cat_file("bucket/k", -5))[1] == ["GET"]
    assert _asked(server, lambda: fs.cat_file("bucket/k"))[1] == ["GET"]
    assert _asked(server, lambda: fs.cat_file("bucket/k", 5, 5))[1] == []


def test_errors_stand_where_the_bytes_would_or_are_raised(fs):
    paths = ["bucket/k", "bucket/none", "bucket/none", "bucket/k"]
    found = fs.cat_ranges(paths, [0, 0, -2, 99_999], [2, 2, None, 200_000])
    assert [each if isinstance(each, bytes) else type(each) for each in found] == [
        *(DATA[:2], NotFound, NotFound, DATA[-1:])
    ]
    with pytest.raises(NotFound, match="none"):
        fs.cat_ranges(paths, 0, 2, on_error="raise")
    assert fs.cat(["bucket/k", "bucket/none"], on_error="omit") == {"bucket/k": DATA}
    assert type(fs.cat(["bucket/k", "bucket/none"], on_error="return")["bucket/none"]) is NotFound
    with pytest.raises(NotFound):
        fs.cat(["bucket/k", "bucket/none"])


def test_path_without_object_returns_an_error_in_place_and_sends_no_request(fs, server):
    def asked_for(paths, **options):
        return _asked(server, lambda: fs.cat_ranges(paths, 0, 2, **options))

    (*refused, found), asked = asked_for(["bucket", "gopher://x/k", "", "bucket/k"])
    assert [type(each) for each in refused] == [InvalidURL, UnknownScheme, InvalidURL]
    assert (found, asked) == (DATA[:2], ["GET"])
    with pytest.raises(InvalidURL):
        asked_for(["bucket/k", "bucket"], on_error="raise")
    assert fs.cat(["bucket/k", "bucket"], on_error="omit") == {"bucket/k": DATA}


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("bucket/k", 0, 1), {}, TypeError),
        ((["bucket/k"], [0, 1], 2), {}, ValueError),
        ((["bucket/k"], 0, [1, 2]), {}, ValueError),
        ((["bucket/k"], 0, 1), {"max_gap": -1}, Unusable),
        ((["bucket/k"], 0, 1), {"max_gap": 0.5}, Unusable),
        ((["bucket/k"], 0, 1), {"on_error": "omit"}, Unusable),
    ],
)
def test_wrong_arguments_are_refused(fs, arguments, options, error):
    with pytest.raises(error):
        fs.cat_ranges(*arguments, **options)
