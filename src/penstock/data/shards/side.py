"""Side indexes of tar files, from energon and DALI, used instead of a walk. Pure.

energon writes ``x.tar.idx``: the first byte of each sample's headers and, at the end, that behind the last sample,
each as a uint64. DALI's ``wds2idx`` writes ``x.idx``: a line for each sample, with end, offset, size and name of its
members.

An index may be older than its shard, so headers at both ends and in the middle are compared with it; ``sample``
compares all others when they are read. A JSON file of wids has counts alone, which are compared with those of a walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.shards.format import Ask, Extents
from penstock.data.shards.keys import Grouping
from penstock.data.shards.tar import TarFormat, TarMember, check_tail, read_member
from penstock.errors import Damaged, PenstockError, Unusable
from penstock.schema import COUNT, read_json

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.data.shards.format import ShardFormat, Walk

SIDES = ("energon", "wds2idx")
_BLOCK = 512
_TAIL_BYTES = 1 << 20  # behind the last sample that are not read, as tar fills up a record
_VERSION = b"v1.2 "
_WIDS = {"shardlist": [{"url": str, "nsamples": COUNT, "filesize?": (COUNT, None)}]}


class Listed(NamedTuple):
    """Shard in an index of wids: its number of samples, and its size in bytes, or None if the index has no size."""

    samples: int
    size: int | None


def check_side(side: str, form: ShardFormat, *, labels: bool) -> None:
    """Refuse a side index that does not suffice for a format and its arguments."""
    if side not in SIDES:
        raise Unusable(f"index must be {', '.join(map(repr, SIDES))}, the URL of wids' JSON or None, got {side!r}")
    if not isinstance(form, TarFormat):
        raise Unusable(f"index={side!r} works with tar files, not with {form.name} shards")
    if side == "energon":
        names = {"key": form.key != "first-dot", "skip": bool(form.skip), "labels": labels}
        names["missing"] = form.missing == "drop" and bool(form.wanted)
        if found := [name for name, given in names.items() if given]:
            raise Unusable(f"energon's index has no names of members, which {found[0]}= needs: pass index=None")


def check_counted(form: ShardFormat) -> None:
    """Refuse arguments that change the number of samples that wids has counted."""
    if not isinstance(form, TarFormat) or form.skip or form.key != "first-dot" or form.missing == "drop":
        raise Unusable("wids counts all samples of tar files: leave out skip=, key=, missing=, or pass index=None")


def wids_shards(data: bytes) -> dict[str, Listed]:
    """Return the entry of each shard in a JSON file of wids, by the last part of its URL."""
    shards = read_json(data, _WIDS, "the wids index")["shardlist"]
    found = {each["url"].rpartition("/")[2]: Listed(each["nsamples"], each.get("filesize")) for each in shards}
    if len(found) < len(shards):
        raise Damaged("the wids index names two shards that differ only in their folders, so counts are ambiguous")
    return found


def side_key(side: str, key: str) -> str:
    folder, slash, name = key.rpartition("/")
    stem = name[: name.find(".", 1)] if side == "wds2idx" and "." in name[1:] else name
    return f"{folder}{slash}{stem}.idx"


def side_walk(side: str, form: TarFormat, data: bytes, size: int) -> Walk:
    """Find the samples of a tar file of ``size`` bytes with the side index ``data``: see ``ShardFormat.walk``."""
    walk = _energon if side == "energon" else _wds2idx
    try:
        return (yield from walk(form, data, size))
    except PenstockError as error:
        error.message = f"the side index ({side}) does not fit the shard: {error.message}; pass index=None to walk it"
        raise


def _energon(form: TarFormat, data: bytes, size: int) -> Walk:
    if not data or len(data) % 8:
        raise Damaged(f"it has {len(data)} bytes, not 8 for each sample and 8 more")
    places = np.frombuffer(data, "<u8")
    if (places > size).any() or (places % _BLOCK).any() or (np.diff(places.astype(np.int64)) <= 0).any():
        raise Damaged(f"its offsets do not ascend in blocks of {_BLOCK} bytes within the {size} bytes of the shard")
    starts = places.astype(np.int64)
    count = len(starts) - 1
    key, before = "", -2
    for number in _choose_probes(count):
        head = yield from _head(int(starts[number]), int(starts[number + 1]))
        found = form.split(head.name, int(starts[number]))
        if found is not None and number == before + 1 and found[0] == key:
            raise Damaged(f"samples {before} and {number} both have the key {key!r}")
        key, before = found[0] if found is not None else "", number
    yield from _end(int(starts[-1]), size)
    return Extents(starts[:-1], np.diff(starts))


def _choose_probes(count: int) -> list[int]:
    """Return the numbers of adjacent samples at both ends and in the middle."""
    return sorted({at for first in (0, count // 2, count - 2) for at in (first, first + 1) if 0 <= at < count})


def _wds2idx(form: TarFormat, data: bytes, size: int) -> Walk:
    members = _parse_wds_index(data)
    grouping, start = Grouping(form), 0
    starts = []
    for name, offset, length in members:
        stop = offset + length
        if offset < start + _BLOCK or offset % _BLOCK or not offset <= stop <= size:
            raise Damaged(f"the member {name!r} cannot be at byte {offset} of {size}")
        grouping.add(name, start, stop)
        starts.append(start)
        start = stop + -stop % _BLOCK
    for number in _choose_probes(len(members)):
        name, offset, length = members[number]
        at = starts[number]
        head = yield from _head(at, offset)
        # A folder, or another member that the index leaves out, may lie before it.
        while head.next < offset:
            at = head.next
            head = yield from _head(at, offset)
        if (head.name, head.data, head.stop) != (name, offset, offset + length):
            raise Damaged(f"at byte {offset} is {head.name!r}, not {name!r} of {length} bytes")
    yield from _end(start, size)
    return grouping.extents()


def _parse_wds_index(data: bytes) -> list[tuple[str, int, int]]:
    """Return name, offset and size of the members that an index of wds2idx lists."""
    try:
        first, *lines = data.decode().splitlines()
        count = int(first.removeprefix(_VERSION.decode()))
        rows = [line.split(" ") for line in lines]
        if not data.startswith(_VERSION) or len(rows) != count or any(len(row) % 4 for row in rows):
            raise ValueError(first[:40])
        return [
            (name, int(offset), int(length))
            for row in rows
            for offset, length, name in zip(row[1::4], row[2::4], row[3::4], strict=True)
        ]
    except ValueError as error:
        raise Damaged(f"it is not one of version 1.2, or names in it have spaces ({error})") from None


def _head(start: int, limit: int) -> Generator[Ask, memoryview, TarMember]:
    """Return the member whose headers begin at byte ``start``, below ``limit``."""
    data, stop = b"", min(start + _BLOCK, limit)
    while True:
        data += bytes((yield Ask(start + len(data), stop)))
        found = read_member(memoryview(data), 0, start, limit)
        if found is None:
            raise Damaged(f"the archive ends at byte {start}")
        if not isinstance(found, int):
            return found
        stop = found


def _end(start: int, size: int) -> Generator[Ask, memoryview, None]:
    """Check that nothing but zeros follows the last sample, in its first block and in the padding of tar."""
    near = min(size, start + _TAIL_BYTES)
    if start < size and bytes((yield Ask(start, min(size, start + _BLOCK)))).strip(b"\0"):
        raise Damaged(f"a further member follows its last sample, at byte {start}")
    if near < size:
        yield from check_tail(start, memoryview(b""), (near, size))
