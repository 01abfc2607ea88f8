"""A pickle is a stranger's: what it would make is told, none of it is made, and its length bounds what that takes."""

from __future__ import annotations

import io
import os
import pickle
import tracemalloc
import zipfile
from collections import Counter, OrderedDict
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import torch

from penstock.checkpoint.torchfile.scanner import Call, Name, Pairs, PickleScan

SHARED = [1, 2]
VALUES = {
    "atoms": [None, True, False, 0, 255, 65_535, -1, 1 << 31, 1 << 70, -(1 << 3000), 0.5, "ü\ud800", "x" * 300],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "shared": [SHARED, SHARED, (SHARED,)],
    "nests": {"a": [{}, {1: {"b": []}}, "text"], "c": ()},
    "deep": None,
}
for _ in range(400):
    VALUES["deep"] = [VALUES["deep"]]


def plain(thing):
    """Make Python's own of what was told."""
    if isinstance(thing, Pairs):
        return {plain(key): plain(value) for key, value in thing}
    return type(thing)(map(plain, thing)) if isinstance(thing, list | tuple) else thing


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", VALUES)
def test_scan_returns_plain_values_unchanged(name, protocol):
    assert plain(PickleScan(pickle.dumps(VALUES[name], protocol)).result) == VALUES[name]


def test_scan_returns_bytes_values_unchanged():
    assert PickleScan(pickle.dumps([b"x" * 300, b"", bytearray(b"y")], 5)).result == [b"x" * 300, b"", b"y"]


class Evil:
    def __reduce__(self):
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize("protocol", [2, 4])
def test_scan_describes_objects_without_creating_them(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = PickleScan(
        pickle.dumps([Evil(), OrderedDict(a=1), {3}, Counter("aab"), datetime(2026, 1, 1, tzinfo=UTC)], protocol)
    )
    assert not list(tmp_path.iterdir())
    assert {"posix mkdir", "collections OrderedDict", "collections Counter", "datetime datetime"} <= found.names
    evil, ordered, *_ = found.result
    assert (evil.by, evil.args) == (Name("posix", "mkdir"), ("made-by-a-pickle",))
    assert (type(ordered), list(ordered.content)) == (Call, [("a", 1)])


def test_scan_lists_the_storages_of_a_file_in_order():
    file = io.BytesIO()
    torch.save({"b": torch.ones(2), "a": [torch.zeros(3, dtype=torch.int8)]}, file)
    found = PickleScan(zipfile.ZipFile(file).read("archive/data.pkl"))
    assert [(kind, key, count) for kind, _, key, _, count in found.asked] == [("storage", "0", 2), ("storage", "1", 3)]


MADE = b"\x80\x02c__builtin__\nbytes\nJ\0\0\0\x10\x85R."
BOMBS = {
    "a memo's index": b"\x80\x02Nr\xff\xff\xff\x0f.",
    "a byte array": b"\x80\x05\x96\0\0\0\0\x01\0\0\0.",
    "bytes": b"\x80\x04\x8e\0\0\0\0\x01\0\0\0.",
    "text": b"\x80\x04\x8d\0\0\0\0\x01\0\0\0.",
    "a number": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "a frame": b"\x80\x04\x95\0\0\0\0\x01\0\0\0N.",
    "a call": MADE,
    "laughs": b"\x80\x02]q\0"
    + b"".join(b"](" + b"h" + bytes([n]) + b"h" + bytes([n]) + b"eq" + bytes([n + 1]) for n in range(200))
    + b".",
    "a key": b"\x80\x02})q\0"
    + b"".join(b"h" + bytes([n]) + b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(200))
    + b"Ns.",
    "marks": b"\x80\x02" + b"(" * 10_000,
    "lists": b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_few_bytes_take_a_little_memory(name):
    tracemalloc.start()
    with suppress(pickle.UnpicklingError):
        PickleScan(BOMBS[name])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000 + 200 * len(BOMBS[name])


@pytest.mark.parametrize(
    "data",
    [b"", b".", b"\x80", b"\x80\x02P1\n.", b"N", b"Na.", b"0.", b"h\0.", b"\x85.", b"K\x01b.", b"(Nu.", b"c\n"],
    ids=repr,
)
def test_invalid_pickle_raises_unpickling_error(data):
    with pytest.raises(pickle.UnpicklingError):
        PickleScan(data)


def test_every_cut_and_every_flip_ends():
    whole = pickle.dumps([VALUES, Counter("ab"), {1, 2}])
    for at in range(len(whole)):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]):
            try:
                PickleScan(data)
            except pickle.UnpicklingError:
                continue
