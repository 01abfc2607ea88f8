"""Storages of a file come in order, or out of it, each compared with its CRC-32."""

from __future__ import annotations

import pytest
import torch

from penstock.checkpoint.torchfile.archive import archive
from penstock.checkpoint.torchfile.load import StoragePrefetch, storages
from penstock.errors import ChecksumMismatch
from tests.checkpoint.torchfile.files import saved, stored

MIB = 1 << 20


def test_by_way_of_stages_the_same_bytes_arrive():
    """What a GPU gets its storages by, on the way to the CPU."""
    state = [torch.arange(5 * MIB), torch.ones(3), torch.empty(0), torch.arange(2 * MIB)]
    source, of = stored(saved(state))
    opened = archive(source, of)
    got = list(storages(source, of, opened.uses, lambda _: torch.device("cpu")))
    assert [each.numpy().tobytes() for each in got] == [each.numpy().tobytes() for each in state]


def test_a_damaged_storage_is_named_and_those_before_it_are_given_out():
    state = [torch.arange(100), torch.arange(100, 300), torch.arange(300, 400)]
    body = bytearray(saved(state))
    body[body.index(state[1].numpy().tobytes())] ^= 1
    source, of = stored(bytes(body))
    found = storages(source, of, archive(source, of).uses)
    assert next(found).numpy().tobytes() == state[0].numpy().tobytes()
    with pytest.raises(ChecksumMismatch, match="record 'data/1'"):
        next(found)


def test_a_storage_out_of_turn_is_read_at_once_and_costs_no_other_its_turn():
    state = [torch.full((100,), number) for number in range(3)]
    source, of = stored(saved(state))
    opened = archive(source, of)
    records = [use.record for use in opened.uses]
    prefetch = StoragePrefetch(source, opened, opened.uses)
    for number in (2, 0, 1, 2, 0):
        assert prefetch.take(records[number]).numpy().tobytes() == state[number].numpy().tobytes()
    prefetch.close()


def test_read_inside_a_storage_is_served_only_after_its_beginning():
    source, of = stored(saved([torch.arange(100)]))
    opened = archive(source, of)
    (record,) = (use.record for use in opened.uses)
    prefetch, view = StoragePrefetch(source, opened, opened.uses), memoryview(bytearray(16))
    assert prefetch.serve(record.start + 8, view) == 0
    assert prefetch.serve(record.start, view) == 16
    assert prefetch.serve(record.start + 8, view) == 16
    assert view.cast("q").tolist() == [1, 2]
    assert prefetch.serve(record.stop - 8, view) == 8, "the storage ends there"
    assert prefetch.serve(record.stop, view) == 0
    prefetch.close()
