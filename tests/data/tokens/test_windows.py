"""The arithmetic of windows against lists of all windows."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.order.orders import CatalogOrder, FullShuffle
from penstock.data.tokens.runs import fitted_order, runs_of
from penstock.data.tokens.windows import Shape, TokenFiles, Windows
from penstock.source import open_source
from penstock.values import Span
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


def lies_in(own, run):
    """Return whether a sample is a part of the bytes of its run, which are in one file."""
    if not own.spans:
        return True
    [inner], [outer] = own.spans, run.spans
    assert run.start == outer.start
    return inner.key == outer.key and outer.start <= inner.start <= inner.stop <= outer.stop


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
        piece = found.piece(sample, sample)
        assert found.url_of(sample) == f"{found.root}t/{file}.bin"
        assert (starts[sample], stops[sample]) == (start * item, stop * item)
        assert piece.start == start * item
        whole = Span(f"t/{file}.bin", start * item, stop * item, f'"t/{file}.bin"')
        assert piece.spans == ([whole] if start < stop else [])


@given(UNITS, st.integers(0, 12), st.integers(1, 20), st.data())
@settings(max_examples=examples(150))
def test_parts_have_the_samples_of_the_whole(units, length, stride, data):
    whole = windows(units, length, stride)
    first = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(first, len(whole)))
    part = whole.part(first, stop)
    assert len(part) == stop - first
    assert [part.piece(at, at) for at in range(len(part))] == [whole.piece(at, at) for at in range(first, stop)]
    starts, stops = whole.places(np.arange(first, stop))
    assert [each.tolist() for each in part.places(np.arange(len(part)))] == [starts.tolist(), stops.tolist()]
    again = part.part(0, len(part) // 2)
    assert [again.piece(at, at) for at in range(len(again))] == [part.piece(at, at) for at in range(len(again))]
    assert (part.digest == whole.digest) == (len(part) == len(whole))
    assert (again.digest == part.digest) == (len(again) == len(part))
    for order in (CatalogOrder(), ps.order.Lanes(block_bytes=100, window_blocks=2)):
        runs = runs_of(part, fitted_order(order, part))
        for sample, number in enumerate(runs.of(np.arange(len(part))).tolist()):
            own, run = part.piece(sample, sample), runs.piece(number)
            assert lies_in(own, run)


# Of a state that was saved before files could be one stream.
SAVED = {
    ("tokens", 10): ["8291a11392d268ff2e0e13720a7e9faf", "4a44302a952c59ea73a11bafe14ac9f2"],
    ("documents", 10): ["8e7980a1b710f8c298b86bc2a8cf54b0", "df226f1ebe63a1e8c559ccb4e7e00fb9"],
    ("documents", 0): ["d578673e2020c5c454a75d5ccb66a372", "7a0b457fe031ce3fe824ff7b9e527b9b"],
}


@pytest.mark.parametrize(("kind", "length"), SAVED)
def test_digest_of_saved_states_stays(kind, length):
    units = ((40, 50), (50,)) if kind == "documents" else ((90,), (50,))
    found = windows(units, length, length and 9, kind)
    assert [found.digest, found.part(1, 2).digest] == SAVED[kind, length]


def stream(sizes, length, stride):
    """Return the windows of files as one stream, each behind a header, and the key and place of each byte of that."""
    heads = range(16, 16 + 8 * len(sizes), 8)
    places = [(np.array([head]), np.array([2 * size])) for head, size in zip(heads, sizes, strict=True)]
    keys = [f"{number}.bin" for number in range(len(sizes))]
    files = TokenFiles(SOURCE, "", keys, keys, np.dtype("<u2"), places)
    each = [
        (key, at) for key, head, size in zip(keys, heads, sizes, strict=True) for at in range(head, head + 2 * size)
    ]
    return Windows(files, Shape(length, stride, "stream")), each


def flat(piece):
    assert all(span.start < span.stop and span.etag == span.key for span in piece.spans)
    return [(span.key, at) for span in piece.spans for at in range(span.start, span.stop)]


SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=8)


@given(SIZES, st.integers(1, 50), st.integers(1, 60), st.data())
@settings(max_examples=examples(100))
def test_windows_of_a_stream_go_on_in_the_next_files(sizes, length, stride, data):
    found, each = stream(sizes, length, stride)
    starts = [*range(0, sum(sizes) - length + 1, stride)]
    expected = [each[2 * start : 2 * (start + length)] for start in starts]
    assert [flat(found.piece(at, at)) for at in range(len(found))] == expected
    assert [found.url_of(at) for at in range(len(found))] == [found.root + window[0][0] for window in expected]
    assert found.tokens == sum(sizes)
    assert found.left_out == found.tokens - len({token for window in expected for token in window}) // 2
    first = data.draw(st.integers(0, len(found)))
    part = found.part(first, data.draw(st.integers(first, len(found))))
    assert [flat(part.piece(at, at)) for at in range(len(part))] == expected[first : first + len(part)]
    assert (part.digest == found.digest) == (len(part) == len(found))
    order = data.draw(
        st.sampled_from([CatalogOrder(), FullShuffle(), ps.order.Lanes(3), ps.order.BlockShuffle(block_bytes=90)])
    )
    runs = runs_of(part, fitted_order(order, part))
    places = part.places(np.arange(len(part)))[0].tolist()
    for sample, number in enumerate(runs.of(np.arange(len(part))).tolist()):
        run = runs.piece(number)
        begin = places[sample] - run.start
        assert flat(run)[begin : begin + 2 * length] == expected[first + sample]
    read = [at for span in runs for at in range(span.start, span.stop)]
    if stride == length:
        assert len(read) == 2 * length * len(part)


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
        digest(kind="stream"),
        digest(units=((40, 50), (50,)), kind="documents"),
        digest(units=((50, 40), (50,)), kind="documents"),
    ]
    assert len({digest(), *others}) == 1 + len(others)


def test_memory_does_not_grow_with_the_number_of_tokens():
    many, few = (windows([[size]] * 8, 2049, 2048, "tokens", "<u4") for size in (10**12 // 8, 10**5))
    assert len(many) == 8 * ((10**12 // 8 - 2049) // 2048 + 1)
    assert len(pickle.dumps(many)) < len(pickle.dumps(few)) + 100
    [last] = many.piece(len(many) - 1, len(many) - 1).spans
    assert last.key == "t/7.bin"
    assert last.stop <= 4 * 10**12 // 8
    assert many.places(np.array([len(many) - 1]))[0] == last.start


def test_copies_for_workers_have_the_same_samples():
    found = windows([[5, 9, 0, 30], [], [7]], 3, 2)
    copy = pickle.loads(pickle.dumps(found))
    assert copy.digest == found.digest
    assert [copy.piece(at, at) for at in range(len(copy))] == [found.piece(at, at) for at in range(len(found))]


@pytest.mark.parametrize("units", [[[]], [[0, 0]], [[3], [2]]])
def test_files_too_short_for_a_window_have_none(units):
    found = windows(units, 4, 4)
    assert len(found) == 0
    assert found.left_out == found.tokens == sum(map(sum, units))
