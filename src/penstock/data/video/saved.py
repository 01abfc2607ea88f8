"""Saved indexes of videos: files of the tables of frames, by which datasets open without a request for each video.

``save_index`` walks the videos and writes the file. ``open_indexed`` compares it with the videos that are listed now:
those that it lacks, or that were replaced since, are walked.
"""

from __future__ import annotations

from contextlib import suppress
from logging import getLogger
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.data.catalog.discovery.shards import Shard, Shards, find_shards
from penstock.data.ranks import share_named
from penstock.data.vector_file import FileKind, has_file, read_vectors, write_vectors
from penstock.data.video.frames import COLUMNS, Table, VideoFormat, Videos, join_videos, open_videos
from penstock.errors import Changed, Damaged, Unusable, public_url
from penstock.progress import bar
from penstock.schema import COUNT
from penstock.stores.urls import parse

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from penstock.data.video.frames import Ints
    from penstock.options import StoreOptions

_LOG = getLogger("penstock")
_AGAIN = "index the videos again, by ps.index(…, format='mp4')"
_FORM = {"track": (COUNT, None), "base": str, "names": [str], "sizes": [COUNT], "etags": [str]}
_KIND = FileKind(b"vid", 1, _FORM, _AGAIN)
_WIDE = {"<u4", "<i8"}
# Of the numbers, the setups, the borders, and the vectors of a ``Table``.
_TYPES = [{"<i8"}, {"<i8"}, {"|u1"}, *[{"<i8"}] * COLUMNS, {"<u4"}, _WIDE, _WIDE, {"<i4"}, _WIDE, _WIDE, {"<i8"}]
_BLOCK_FRAMES = 1 << 20  # of tables that are checked together
_MOST_TICKS, _MOST_SCALE = 1 << 58, 1 << 32


def save_index(
    url: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    track: int | None,
    store: StoreOptions | str | None,
    *,
    progress: bool | None,
) -> Videos:
    """Write the index of videos; those that an earlier index at ``dest`` has are not read again."""
    exists = has_file(_KIND, dest, store)
    shards = find_shards(url, VideoFormat(track), {}, store)
    held: tuple[Videos, list[int]] | None = None
    if exists:
        # A damaged index, or one of another version or track, is written anew.
        with suppress(Damaged, Unusable):
            held = _read_index(dest, shards, store)
    with bar("indexing videos", len(shards.found), sum(each.size for each in shards.found), shown=progress) as count:
        if held is None:
            videos = open_videos(shards)
        else:
            known = [shard.size for shard, place in zip(shards.found, held[1], strict=True) if place >= 0]
            count(len(known), sum(known))
            videos = _join(shards, *held, _read_missing(shards, held[1]))
    if "" in videos.etags:
        key = videos.keys[videos.etags.index("")]
        raise Unusable("the video has no ETag, by which an index knows versions", url=videos.source.url(key))
    names = [key[len(videos.base) :] for key in videos.keys]
    about = {"track": track, "base": videos.base, "names": names, "sizes": videos.sizes, "etags": videos.etags}
    write_vectors(_KIND, dest, about, [each.values for each in videos.vectors], store)
    return videos


def open_indexed(
    urls: Any,  # noqa: ANN401  as find_shards takes them
    form: VideoFormat,
    index: str | os.PathLike[str],
    store: StoreOptions | str | None,
) -> Videos:
    """Return the tables of videos: those of an index without a request, others are read, with a line in the log.

    Of a process group, one rank lists the videos, and reads those others. Each rank reads the index, which may be too
    large for the group's store; processes of a node share a large one.
    """
    held: list[tuple[Videos, list[int]]] = []

    def find_missing() -> tuple[Shards, Videos | None]:
        shards = find_shards(urls, form, {}, store)
        held.append(_read_index(index, shards, store))
        _report_missing(shards, *held[0], index)
        return shards, _read_missing(shards, held[0][1])

    shards, missing = share_named([urls, index], store, "indexed videos of", form, find_missing)
    saved, places = held[0] if held else _read_index(index, shards, store)
    return _join(shards, saved, places, missing)


def _report_missing(shards: Shards, saved: Videos, places: list[int], index: str | os.PathLike[str]) -> None:
    """Log how many videos an index lacks; raise ``Changed`` if it lacks all."""
    if missing := places.count(-1):
        shard, where = shards.found[places.index(-1)], public_url(parse(index).url)
        cause = "has no ETag" if not shard.etag else "was replaced" if shard.key in saved.keys else "is new"
        if missing == len(places):
            raise Changed(f"the index is of other videos: {shard.key} {cause}; {_AGAIN}", url=where)
        _LOG.warning(
            "%s of %s videos are read now, since the index %s does not have them: %s %s; %s, which reads these alone",
            *(f"{missing:,}", f"{len(places):,}", where, shard.key, cause, _AGAIN),
        )


def _read_missing(shards: Shards, places: list[int]) -> Videos | None:
    """Return the videos without a place, which are read; ``shards`` get the versions that were read."""
    numbers = [number for number, place in enumerate(places) if place < 0]
    if not numbers:
        return None
    found = open_videos(shards._replace(found=[shards.found[number] for number in numbers]))
    for number, *shard in zip(numbers, found.keys, found.sizes, found.etags, strict=True):
        shards.found[number] = Shard(*shard)
    return found


def _join(shards: Shards, saved: Videos, places: list[int], missing: Videos | None) -> Videos:
    count, more = len(saved), 0 if missing is None else len(missing)
    if not more and places == [*range(count)]:
        return saved
    if places.count(-1) != more:
        raise Changed(f"the index was replaced while it was read: {_AGAIN}")
    numbers = np.array(places)
    numbers[numbers < 0] = np.arange(count, count + more)
    return join_videos(shards, [saved] if missing is None else [saved, missing], numbers)


def _read_index(
    index: str | os.PathLike[str], shards: Shards, store: StoreOptions | str | None
) -> tuple[Videos, list[int]]:
    """Return the indexed videos, and the place among them of each of ``shards``; -1: this version is not there."""
    found, vectors = read_vectors(_KIND, index, store)
    files = [*zip(found["names"], found["sizes"], found["etags"], strict=False)]
    wanted, url = cast("VideoFormat", shards.format).track, public_url(parse(index).url)
    if found["track"] != wanted:
        raise Unusable(f"the index is of track={found['track']}, not of track={wanted}: {_AGAIN}", url=url)
    if not files or {len(found[name]) for name in ("names", "sizes", "etags")} != {len(files)}:
        raise Damaged(f"the index has different numbers of names, sizes and ETags, or none: {_AGAIN}", url=url)
    if not _tables_agree([each.values for each in vectors], np.array(found["sizes"], np.int64)):
        raise Damaged(f"the tables of the index contradict one another: {_AGAIN}", url=url)
    saved = [Shard(found["base"] + name, *rest) for name, *rest in files]
    places = {each: number for number, each in enumerate(saved) if each.etag}
    videos = Videos.of_vectors(shards._replace(found=saved), vectors)
    return videos, [places.get(each, -1) for each in shards.found]


def _tables_agree(vectors: list[NDArray[Any]], file_bytes: Ints) -> bool:
    """Return whether vectors, as they are in ``Videos``, are tables of files of so many bytes.

    All that the arithmetic of a ``Table`` relies on is compared, so that no frame leads out of a vector or of a file.
    """
    count, width = len(file_bytes), len(Table._fields) - COLUMNS - 1
    if [each.dtype.str in types for each, types in zip(vectors, _TYPES, strict=False)] != [True] * len(_TYPES):
        return False
    rows, setups, boxes, *rest = vectors
    borders, columns = rest[:COLUMNS], rest[COLUMNS:]
    if len(rows) != count * width or any(len(each) != count + 1 for each in borders):
        return False
    for border, values in ((setups, boxes), *zip(borders, columns, strict=True)):
        if border[:1].tolist() != [0] or border[-1] != len(values) or (np.diff(border) < 0).any():
            return False
    if (rows[::width] < 0).any() or (rows[::width] >= len(setups) - 1).any():
        return False
    first = 0
    while first < count:
        # Some tables at once, for the memory that the comparisons take.
        stop = max(int(np.searchsorted(borders[0], borders[0][first] + _BLOCK_FRAMES, side="right")) - 1, first + 1)
        parts = [values[each[first] : each[stop]] for each, values in zip(borders, columns, strict=True)]
        local = [each[first : stop + 1] - each[first] for each in borders]
        if not _block_agrees(rows.reshape(count, width)[first:stop], local, parts, file_bytes[first:stop]):
            return False
        first = stop
    return True


def _block_agrees(rows: Ints, borders: list[Ints], columns: list[NDArray[Any]], file_bytes: Ints) -> bool:
    sizes, keys, key_ranks, _, times, marks, places = (each.astype(np.int64) for each in columns)
    counts, key_counts, _, moved, _, mark_counts, _ = lengths = [np.diff(each) for each in borders]
    _, scale, tick, step, begin, frames, reach, last = rows.T
    bounds = (
        *((scale, 1, _MOST_SCALE), (tick, -_MOST_TICKS, _MOST_TICKS), (step, 0, _MOST_SCALE), (begin, 0, counts)),
        *((frames, 1, counts - begin + 1), (reach, 0, counts), (last, 0, _MOST_SCALE), (key_counts, 1, counts + 1)),
        *((mark_counts, 1, counts + 1), (times, 0, _MOST_TICKS)),
        *((each, 0, np.repeat(counts, lengths[at])) for at, each in ((1, keys), (2, key_ranks), (5, marks))),
        (places, 0, np.repeat(file_bytes, lengths[6]) + 1),
    )
    if any(((each < least) | (each >= end)).any() for each, least, end in bounds):
        return False
    both, varies = moved > 0, step == 0  # two orders; a variable rate
    expected = (counts, key_counts, key_counts * both, counts * both, counts * varies, mark_counts, mark_counts)
    ascending = ((keys, 1), (key_ranks, 2), (marks, 5))
    if (
        any((one != other).any() for one, other in zip(lengths, expected, strict=True))
        or any((_steps(each, borders[at]) <= 0).any() for each, at in ascending)
        or (_steps(times, borders[4]) < 0).any()
        or times[borders[4][:-1][varies]].any()
        or marks[borders[5][:-1]].any()
    ):
        return False
    runs = np.add.reduceat(sizes, np.repeat(borders[0][:-1], mark_counts) + marks)
    lasts = borders[6][1:] - 1
    if ((places + runs)[lasts] > file_bytes).any() or (_steps(places, borders[6]) < np.delete(runs, lasts)).any():
        return False
    return _orders_agree(rows, borders, keys, key_ranks, columns[3].astype(np.int64))


def _orders_agree(rows: Ints, borders: list[Ints], keys: Ints, key_ranks: Ints, shifts: Ints) -> bool:
    """Return whether ``shifts`` permute samples, and all presented frames have a key frame before them."""
    _, _, _, _, begin, frames, reach, _ = rows.T
    counts, starts = np.diff(borders[3]), borders[3][:-1]
    both = counts > 0
    of = np.repeat(np.arange(len(rows)), counts)
    ranks = np.arange(len(shifts)) - starts[of]
    samples = ranks + shifts
    if ((samples < 0) | (samples >= counts[of]) | (np.abs(shifts) > reach[of])).any():
        return False
    seen = np.zeros(len(shifts), bool)
    seen[starts[of] + samples] = True
    key_counts = np.diff(borders[1])
    at_keys = samples[np.repeat(starts, np.diff(borders[2])) + key_ranks]
    first_keys = keys[borders[1][:-1]]
    first_ranks = first_keys.copy()
    first_ranks[both] = key_ranks[borders[2][:-1][both]]
    shown = (ranks >= begin[of]) & (ranks < (begin + frames)[of])
    return bool(
        seen.all()
        and np.array_equal(at_keys, keys[np.repeat(both, key_counts)])
        and (begin >= first_ranks).all()
        and (samples >= first_keys[of])[shown].all()
    )


def _steps(values: Ints, border: Ints) -> Ints:
    """Return the differences between neighbours in the same table."""
    inner = border[(border > 0) & (border < len(values))]
    return np.delete(np.diff(values), inner - 1)
