"""What is done of a copy is known again; other people's objects are not touched."""

from __future__ import annotations

import uuid

import pytest

from penstock.errors import AlreadyExists, Damaged, StateMismatch
from penstock.interop.zarr.rechunk import Journal, ranges
from penstock.source import open_source
from penstock.values import Span


@pytest.fixture
def place():
    return open_source(f"memory://journal/{uuid.uuid4().hex}/")


def test_ranges_of_numbers():
    assert [*ranges([5, 1, 2, 3, 9, 8])] == [(1, 4), (5, 6), (8, 10)]
    assert [*ranges([])] == []
    assert [*ranges([0])] == [(0, 1)]


def test_journal_merges_finished_regions_of_several_runs(place):
    first, second = Journal(*place), Journal(*place)
    assert first.plan() is None
    first.begin("digest", "versions", {"a": (1, 2)})
    first.add({0, 1, 2})
    first.add({0, 1, 2, 5})
    second.add({7})
    again = Journal(*place)
    plan = again.plan()
    again.check(plan, "digest", "versions")
    assert plan["boxes"] == {"a": [1, 2]}
    assert again.done(10) == {0, 1, 2, 5, 7}
    with pytest.raises(StateMismatch, match="--overwrite"):
        again.check(plan, "other", "versions")
    with pytest.raises(AlreadyExists, match="unfinished copy is there: --resume"):
        again.check_empty()
    with pytest.raises(AlreadyExists):
        again.begin("digest", "versions", {})
    again.end()
    again.check_empty()
    assert next(iter(place[0].pages(place[1]))).entries == ()


def test_clearing_takes_the_metadata_first(place, monkeypatch):
    source, base = place
    for key in ("c/0", "a/zarr.json", "zarr.json", "a/c/1", ".zattrs"):
        source.put(base + key, b"x")
    deleted = []
    monkeypatch.setattr(type(source), "delete", lambda _, keys: deleted.append(sorted(keys)))
    Journal(*place).clear()
    assert deleted[0] == [base + key for key in (".zattrs", "a/zarr.json", "zarr.json")]
    assert {base + "c/0", base + "a/c/1"} <= {*deleted[1]}


def test_documents_are_compared_and_a_damaged_journal_is_named(place):
    source, base = place
    journal = Journal(*place)
    journal.write({"a/zarr.json": b"1", "zarr.json": b"2"})
    assert journal.holds({"zarr.json": b"2", "a/zarr.json": b"1"})
    assert not journal.holds({"zarr.json": b"3"})
    assert not journal.holds({"none": b"3"})
    assert source.read(Span(f"{base}zarr.json")) == b"2"
    for damage in (b"{", b"[]", b"{}"):
        source.put(f"{base}.zarr-copy/plan.json", damage)
        with pytest.raises(Damaged, match="--overwrite"):
            journal.plan()
