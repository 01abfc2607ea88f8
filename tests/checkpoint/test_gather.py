"""Many pieces of objects into memory: right, verified, lazily, and nobody writes there afterwards."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.gather import Object, Want, gather, runs
from penstock.checkpoint.integrity import BLOCK_BYTES, BlockChecksums, ChecksummedWriter
from penstock.errors import Changed, ChecksumMismatch, Denied, NotFound
from penstock.events import RangeRead, subscribe
from penstock.options import RetryOptions, StoreOptions
from penstock.source import open_source
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.values import Span

MIB = 1 << 20


def _store(url, body, store=None, **options):
    """Write ``body`` and return its source and what it is held to."""
    source, key = open_source(url, store)
    with ChecksummedWriter(source.open_write(key)) as writer:
        writer.write(body)
    return source, Object(key, source.head(key).etag, len(body), source.url(key), writer.checksums(), **options)


def _want(of, start, stop, tag=None):
    return Want(of, start, stop, np.zeros(stop - start, np.uint8), tag)


def test_gathered_ranges_arrive_in_requested_order_from_every_store(bucket, seed):
    rng = random.Random(seed)
    body = rng.randbytes(20 * MIB + 12_345)
    source, of = _store(f"{bucket.url}data", body, bucket.store)
    _, other = _store(f"{bucket.url}other", body[:100], bucket.store)
    bounds = sorted(rng.randrange(len(body) + 1) for _ in range(30))
    wants = [_want(of, *each) for each in pairwise([0, *bounds, bounds[-1], len(body)])]
    wants += [_want(other, 0, 100), _want(of, 5, 10 * MIB)]
    got = list(gather(source, iter(wants)))
    assert [id(each) for each in got] == [id(each) for each in wants]
    assert all(bytes(each.memory) == body[each.start : each.stop] for each in got)
    assert list(gather(source, [])) == []


@pytest.mark.parametrize("wanted", [(0, 3 * MIB), (100, 200), (2 * MIB - 1, 2 * MIB)], ids=["all", "few", "one"])
def test_a_flipped_byte_in_a_block_that_is_touched_is_found_and_named(tmp_path, wanted):
    body = bytearray(3 * MIB)
    source, of = _store(tmp_path / "data", body)
    body[wanted[1] - 1] ^= 1
    (tmp_path / "data").write_bytes(body)
    of = Object(of.key, "", of.size, of.url, of.checksums)
    with pytest.raises(ChecksumMismatch, match=f"bytes \\d+ to .*{tmp_path}/data"):
        list(gather(source, [_want(of, *wanted)]))
    (want,) = gather(source, [_want(Object(of.key, "", of.size, of.url, None), *wanted)])
    assert bytes(want.memory) == body[wanted[0] : wanted[1]], "nothing to hold it to"


def test_blocks_may_begin_anywhere(tmp_path, seed):
    body = random.Random(seed).randbytes(5 * MIB)
    source, of = _store(tmp_path / "data", body)
    (tmp_path / "shifted").write_bytes(b"header" + body)
    shifted = Object(f"{of.key[:-4]}shifted", "", of.size + 6, of.url, of.checksums, origin=6)
    got = list(gather(source, [_want(shifted, 6 + at, 6 + at + 1000) for at in range(0, 4 * MIB, MIB // 2)]))
    assert all(bytes(each.memory) == body[each.start - 6 : each.stop - 6] for each in got)


def test_changed_object_version_and_missing_object_raise_errors(tmp_path):
    source, of = _store(tmp_path / "data", bytes(100))
    missing = Object(of.key + "-not", "", 100, "file:///not", None)
    with pytest.raises(NotFound):
        list(gather(source, [_want(missing, 0, 10)]))
    (tmp_path / "data").write_bytes(bytes(101))
    with pytest.raises(Changed):
        list(gather(source, [_want(of, 0, 10)]))


def test_wants_are_drawn_no_further_than_the_window_and_each_byte_is_read_once(tmp_path):
    sizes = [MIB] * 700
    with (tmp_path / "data").open("wb") as file:
        file.truncate(sum(sizes))
    source, key = open_source(tmp_path / "data")
    of, drawn, read = Object(key, "", sum(sizes), "file:///data", None), 0, []

    def wants():
        nonlocal drawn
        for number, size in enumerate(sizes):
            drawn += size
            yield Want(of, number * MIB, (number + 1) * MIB, np.empty(size, np.uint8))

    yielded = 0
    leave = subscribe(lambda event: read.append(event.size_bytes) if isinstance(event, RangeRead) else None)
    for want in gather(source, wants()):
        yielded += want.stop - want.start
        assert drawn - yielded <= 210 * MIB
    leave()
    assert sum(read) == yielded == sum(sizes)
    assert len(read) < len(sizes) // 6, "near ones share"


@pytest.mark.parametrize("way", ["error", "closed"])
def test_after_any_way_out_nothing_writes_into_the_memory(monkeypatch, way):
    with FaultServer.start(Settings()) as server:
        server.make("bucket")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        options = StoreOptions(retry=RetryOptions(attempts=1))
        source, of = _store("s3://bucket/data", b"\1" * (32 * MIB), options)
        source.read(Span(of.key, 1, 2))  # the store has shown that it heeds ranges: no further request asks
        wants = [_want(of, at, at + 4 * MIB) for at in range(0, 32 * MIB, 4 * MIB)]
        if way == "error":
            server.fail(FAULTS["denied"], when=Match(nth=3))
        else:  # the first is another object: which of one object's requests arrives first is chance
            _, other = _store("s3://bucket/first", b"\1" * MIB, options)
            wants.insert(0, _want(other, 0, MIB))
            server.fail(replace(FAULTS["slow"], bytes_per_s=4000), when=Match(key=of.key, times=None))
        filled = gather(source, wants)
        if way == "closed":
            next(filled)
            filled.close()
        else:
            with pytest.raises(Denied, match="403"):
                list(filled)
        server.heal()
        before = [bytes(want.memory) for want in wants]
        assert any(bytes(each) != b"\1" * len(each) for each in before), "some were under way"
        source.read(Span(of.key, 0, of.size))  # whatever was under way would have come meanwhile
        assert [bytes(want.memory) for want in wants] == before


# Which requests bring many pieces: each byte has its place, blocks stay whole, and near pieces share a request.


def _object(size, *, checksums=True, origin=0):
    blocks = -(-(size - origin) // BLOCK_BYTES)
    return Object(
        "key",
        "tag",
        size,
        "s3://b/key",
        BlockChecksums(size - origin, bytes(8 * blocks)) if checksums else None,
        origin,
    )


def _wants(of, bounds):
    return [Want(of, start, stop, None, number) for number, (start, stop) in enumerate(bounds)]


@st.composite
def _cases(draw):
    origin = draw(st.sampled_from([0, 0, 1, 77, MIB + 5]))
    size = origin + draw(st.integers(0, 40 * MIB))
    of = _object(size, checksums=draw(st.booleans()), origin=origin)
    near = st.integers(origin, size) | st.sampled_from(range(origin, size + 1, BLOCK_BYTES))
    bounds = draw(st.lists(st.tuples(near, near).map(sorted), max_size=12))
    if draw(st.booleans()):
        bounds.sort()
    return of, bounds


@given(_cases())
def test_every_byte_of_every_want_comes_once_in_whole_blocks_and_in_its_turn(case):
    of, bounds = case
    wants = _wants(of, bounds)
    done, bytes_of = [], {want.tag: 0 for want in wants}
    for run in runs(wants):
        assert 0 <= run.stop - run.start <= 11 * MIB
        assert of.origin <= run.start <= run.stop <= of.size
        if of.checksums is not None and run.start < run.stop:
            assert (run.start - of.origin) % BLOCK_BYTES == 0
            assert run.stop == of.size or (run.stop - of.origin) % BLOCK_BYTES == 0
        for piece in run.pieces:
            assert run.start <= piece.start <= piece.stop <= run.stop
            assert piece.start == piece.want.start + bytes_of[piece.want.tag], "pieces follow one another"
            bytes_of[piece.want.tag] += piece.stop - piece.start
            assert not run.straight or (len(run.pieces) == 1 and piece[1:] == (run.start, run.stop))
        for want in run.done:
            assert bytes_of[want.tag] == want.stop - want.start, "whole when it is said to be"
            done.append(want.tag)
    assert done == [want.tag for want in wants]


def test_a_state_read_whole_costs_its_bytes_once():
    sizes = [4096] * 40 + [16 * MIB + 300, 3 * MIB, 4096, 0, 64 * MIB]
    bounds, at = [], 0
    for size in sizes:
        bounds.append((at, at + size))
        at += size
    for checksums in (True, False):
        planned = list(runs(_wants(_object(at, checksums=checksums), bounds)))
        read = sum(run.stop - run.start for run in planned)
        assert at <= read <= at + (2 * MIB if checksums else 0)
        assert len(planned) <= at // (8 * MIB) + 8


def test_distant_small_ranges_use_separate_requests_and_near_ranges_share():
    apart = _wants(_object(100 * MIB, checksums=False), [(at * MIB, at * MIB + 10) for at in range(0, 100, 10)])
    assert [(run.start, run.stop) for run in runs(apart)] == [want[1:3] for want in apart]
    near = _wants(_object(100 * MIB, checksums=False), [(at * 1000, at * 1000 + 10) for at in range(100)])
    assert [(run.start, run.stop) for run in runs(near)] == [(0, 99_010)]


def test_wants_are_drawn_one_by_one():
    drawn = []

    def wants():
        for want in _wants(_object(100 * MIB), [(at * 10 * MIB, (at + 1) * 10 * MIB) for at in range(10)]):
            drawn.append(want.tag)
            yield want

    planned = runs(wants())
    next(planned)
    assert drawn == [0]
