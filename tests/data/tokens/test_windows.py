"""The arithmetic of windows against lists of all windows."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.order.orders import CatalogOrder
from penstock.data.tokens.runs import fitted_order, runs_of
from penstock.data.tokens.windows import Shape, TokenFiles, Windows
from penstock.source import open_source
from tests.amounts import examples

SOURCE, _ = open_source("memory://bucket/")


def windows(units, length, stride, kind="documents", dtype="<u2"):
    """Return the windows of files whose units have these numbers of tokens, a list for each file."""
    item, places = np.dtype(dtype).itemsize, []
    for each in units:
        sizes = np.array(each, dtype=np.int64) * item
        places.append((np.cumsum(sizes) - sizes, sizes))
    keys = [f"t/{number}.bin" for number in range(len(units))]
    return Windows(
        TokenFiles(SOURCE, "t/", keys, [f'"{each}"' for each in keys], np.dtype(dtype), places),
        Shape(length, stride, kind),
    )


def every(units, length, stride):
    """Return file, first token and end of each sample, and the tokens that are in one."""
    found, covered = [], set()
    for file, each in enumerate(units):
        begin = 0
        for size in each:
            starts = range(begin, begin + size - length + 1, stride) if length else [begin]
            found += [(file, start, start + (length or size)) for start in starts]
            covered |= {(file, at) for start in starts for at in range(start, start + (length or size))}
            begin += size
    return found, covered


UNITS = st.lists(st.lists(st.integers(0, 40), max_size=8), min_size=1, max_size=6)


@given(UNITS, st.integers(0, 12), st.integers(1, 20), st.sampled_from(["|u1", "<u2", "<u4", "<i8"]))
@settings(max_examples=examples(300))
def test_samples_are_those_of_the_list_of_all_windows(units, length, stride, dtype):
    found, item = windows(units, length, stride, dtype=dtype), np.dtype(dtype).itemsize
    expected, covered = every(units, length, stride)
    assert len(found) == len(expected)
    assert found.tokens == sum(map(sum, units))
    assert found.left_out == found.tokens - len(covered)
    starts, stops = found.places(np.arange(len(found)))
    for sample, (file, start, stop) in enumerate(expected):
        span = found.span(sample, sample)
        assert (span.start, span.stop) == (start * item, stop * item) == (starts[sample], stops[sample])
        assert (span.key, span.etag) == (f"t/{file}.bin", f'"t/{file}.bin"')


@given(UNITS, st.integers(0, 12), st.integers(1, 20), st.data())
@settings(max_examples=examples(150))
def test_parts_have_the_samples_of_the_whole(units, length, stride, data):
    whole = windows(units, length, stride)
    first = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(first, len(whole)))
    part = whole.part(first, stop)
    assert len(part) == stop - first
    assert [part.span(at, at) for at in range(len(part))] == [whole.span(at, at) for at in range(first, stop)]
    starts, stops = whole.places(np.arange(first, stop))
    assert [each.tolist() for each in part.places(np.arange(len(part)))] == [starts.tolist(), stops.tolist()]
    again = part.part(0, len(part) // 2)
    assert [again.span(at, at) for at in range(len(again))] == [part.span(at, at) for at in range(len(again))]
    assert (part.digest == whole.digest) == (len(part) == len(whole))
    assert (again.digest == part.digest) == (len(again) == len(part))
    for order in (CatalogOrder(), ps.Lanes(block_bytes=100, window_blocks=2)):
        runs = runs_of(part, fitted_order(order, part))
        for sample, number in enumerate(runs.of(np.arange(len(part))).tolist()):
            own, run = part.span(sample, sample), runs.span(number)
            assert run.key == own.key
            assert run.start <= own.start <= own.stop <= run.stop


def test_digest_names_all_that_determines_the_samples():
    def digest(units=((90,), (50,)), length=10, stride=10, kind="tokens", dtype="<u2"):
        return windows(units, length, stride, kind, dtype).digest

    assert digest() == digest()
    others = [
        digest(units=((91,), (50,))),
        digest(units=((50,), (90,))),
        digest(units=((90,),)),
        digest(length=11),
        digest(stride=9),
        digest(dtype="<i2"),
        digest(kind="documents"),
        digest(units=((40, 50), (50,)), kind="documents"),
        digest(units=((50, 40), (50,)), kind="documents"),
    ]
    assert len({digest(), *others}) == 1 + len(others)


def test_memory_does_not_grow_with_the_number_of_tokens():
    many, few = (windows([[size]] * 8, 2049, 2048, "tokens", "<u4") for size in (10**12 // 8, 10**5))
    assert len(many) == 8 * ((10**12 // 8 - 2049) // 2048 + 1)
    assert len(pickle.dumps(many)) < len(pickle.dumps(few)) + 100
    last = many.span(len(many) - 1, len(many) - 1)
    assert last.key == "t/7.bin"
    assert last.stop <= 4 * 10**12 // 8
    assert many.places(np.array([len(many) - 1]))[0] == last.start


def test_copies_for_workers_have_the_same_samples():
    found = windows([[5, 9, 0, 30], [], [7]], 3, 2)
    copy = pickle.loads(pickle.dumps(found))
    assert copy.digest == found.digest
    assert [copy.span(at, at) for at in range(len(copy))] == [found.span(at, at) for at in range(len(found))]


@pytest.mark.parametrize("units", [[[]], [[0, 0]], [[3], [2]]])
def test_files_too_short_for_a_window_have_none(units):
    found = windows(units, 4, 4)
    assert len(found) == 0
    assert found.left_out == found.tokens == sum(map(sum, units))
