"""Which requests bring many pieces: each byte has its place, blocks stay whole, and near pieces share a request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.gather import Object, Want, runs
from penstock.checkpoint.integrity import BLOCK_BYTES, BlockChecksums

MIB = 1 << 20


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
