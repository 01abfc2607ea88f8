"""Saved indexes of videos: files of the tables of frames, by which datasets open without a request for each video.

``save_index`` walks the videos and writes the file. ``open_indexed`` compares it with the videos that are listed now:
those that it lacks, or that were replaced since, are walked. The tables of audio tracks are a second section, which is
read for ``audio=True`` only.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from logging import getLogger
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.data.catalog.discovery.shards import Shard, Shards, find_shards
from penstock.data.ranks import share_named
from penstock.data.vector_file import FileKind, has_file, read_vectors, write_vectors
from penstock.data.video.audio_boxes import MOST_TICKS, PCM_KINDS
from penstock.data.video.boxes import read_setup
from penstock.data.video.frames import COLUMNS, NO_AUDIO, Table, VideoFormat, Videos, join_videos, open_videos
from penstock.errors import Changed, Damaged, PenstockError, Unusable, public_url
from penstock.progress import bar
from penstock.schema import COUNT
from penstock.stores.urls import parse

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from penstock.data.video.frames import Ints
    from penstock.data.video.moov import Moov
    from penstock.options import StoreOptions

_LOG = getLogger("penstock")
_AGAIN = "index the files again, by ps.index(…, format='mp4'), for sound 'audio'"
_FORM = {"format": str, "track": (COUNT, None), "base": str, "names": [str], "sizes": [COUNT], "etags": [str]}
_KIND = FileKind(b"vid", 1, _FORM, _AGAIN)
_WIDE = {"<u4", "<i8"}
# Of the numbers, the setups, the borders, and the vectors of a ``Table``.
_TYPES = [{"<i8"}, {"<i8"}, {"|u1"}, *[{"<i8"}] * COLUMNS, {"<u4"}, _WIDE, _WIDE, {"<i4"}, _WIDE, _WIDE, {"<i8"}]
_AUDIO_TYPES = [*_TYPES[:-COLUMNS], *[_WIDE] * COLUMNS]
_BLOCK_FRAMES = 1 << 20  # of tables that are checked together
_MOST_TICKS, _MOST_SCALE = 1 << 58, 1 << 32
_UNREADABLE = NO_AUDIO._replace(last=1)


@dataclass(frozen=True, slots=True)
class _BothFormat(VideoFormat):
    """Videos, with an audio track that cannot be read as ``_UNREADABLE``: a dataset of frames alone opens them."""

    audio: bool = True

    def _read_sound(self, moov: Moov, size: int, found: Table) -> Table:
        try:
            return VideoFormat._read_sound(self, moov, size, found)  # noqa: SLF001  classes with slots have no super()
        except (PenstockError, ValueError, IndexError, KeyError, OverflowError, struct.error):
            return _UNREADABLE


def save_index(
    url: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    form: VideoFormat,
    store: StoreOptions | str | None,
    *,
    progress: bool | None,
) -> Videos:
    """Write the index of videos or sound files; those that an earlier index at ``dest`` has are not read again."""
    exists = has_file(_KIND, dest, store)
    shards = find_shards(url, form if form.name == "audio" else _BothFormat(form.track), {}, store)
    held: tuple[Videos, list[int]] | None = None
    if exists:
        # A damaged index, or one of another version or track, is written anew.
        with suppress(Damaged, Unusable):
            held = _read_index(dest, shards, store)
    with bar("indexing files", len(shards.found), sum(each.size for each in shards.found), shown=progress) as count:
        if held is None:
            videos = open_videos(shards)
        else:
            known = [shard.size for shard, place in zip(shards.found, held[1], strict=True) if place >= 0]
            count(len(known), sum(known))
            videos = _join(shards, *held, _read_missing(shards, held[1]))
    if "" in videos.etags:
        key = videos.keys[videos.etags.index("")]
        raise Unusable("the file has no ETag, by which an index knows versions", url=videos.source.url(key))
    names = [key[len(videos.base) :] for key in videos.keys]
    about: dict[str, Any] = {"format": form.name, "track": form.track, "base": videos.base}
    about |= {"names": names, "sizes": videos.sizes, "etags": videos.etags}
    sections = [[each.values for each in part.vectors] for part in (videos, videos.audio) if part is not None]
    write_vectors(_KIND, dest, about, sections, store)
    return videos


def open_listed(shards: Shards, index: str | os.PathLike[str] | None, store: StoreOptions | str | None) -> Videos:
    """Return the tables of videos that were listed, with an index as ``open_indexed`` does; in this process alone."""
    if index is None:
        return open_videos(shards)
    saved, places = _read_index(index, shards, store)
    _report_missing(shards, saved, places, index)
    return _join(shards, saved, places, _read_missing(shards, places))


def open_indexed(
    urls: Any,  # noqa: ANN401  as find_shards takes them
    form: VideoFormat,
    index: str | os.PathLike[str] | None,
    store: StoreOptions | str | None,
) -> Videos:
    """Return the tables of files: those of an index without a request, others are read, with a line in the log.

    Of a process group, one rank lists the files, and reads those others. Each rank reads the index, which may be too
    large for the group's store; processes of a node share a large one.
    """
    if index is None:
        return share_named(
            *(urls, store, f"{form.name} files of", form), lambda: open_videos(find_shards(urls, form, {}, store))
        )
    held: list[tuple[Videos, list[int]]] = []

    def find_missing() -> tuple[Shards, Videos | None]:
        shards = find_shards(urls, form, {}, store)
        held.append(_read_index(index, shards, store))
        _report_missing(shards, *held[0], index)
        return shards, _read_missing(shards, held[0][1])

    shards, missing = share_named([urls, index], store, f"indexed {form.name} files of", form, find_missing)
    saved, places = held[0] if held else _read_index(index, shards, store)
    return _join(shards, saved, places, missing)


def _report_missing(shards: Shards, saved: Videos, places: list[int], index: str | os.PathLike[str]) -> None:
    """Log how many videos an index lacks; raise ``Changed`` if it lacks all."""
    if missing := places.count(-1):
        shard, where = shards.found[places.index(-1)], public_url(parse(index).url)
        cause = "has no ETag" if not shard.etag else "was replaced" if shard.key in saved.keys else "is new"
        if shard in zip(saved.keys, saved.sizes, saved.etags, strict=True):
            # A read of this file says why.
            cause = "has audio that cannot be read"
        elif missing == len(places):
            raise Changed(f"the index is of other files: {shard.key} {cause}; {_AGAIN}", url=where)
        _LOG.warning(
            "%s of %s files are read now, since the index %s does not have them: %s %s; %s, which reads these alone",
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
    parts = [saved] if missing is None else [saved, missing]
    found = join_videos(shards, parts, numbers)
    if saved.audio is not None:
        found.audio = join_videos(shards, [cast("Videos", each.audio) for each in parts], numbers)
    return found


def _read_index(
    index: str | os.PathLike[str], shards: Shards, store: StoreOptions | str | None
) -> tuple[Videos, list[int]]:
    """Return the indexed videos, and the place among them of each of ``shards``; -1: this version is not there."""
    form = cast("VideoFormat", shards.format)
    found, sections = read_vectors(_KIND, index, store, 1 + form.audio)
    url = public_url(parse(index).url)
    for name, mine, wanted in (("format", found["format"], form.name), ("track", found["track"], form.track)):
        if mine != wanted:
            raise Unusable(f"the index is of {name}={mine!r}, not of {name}={wanted!r}: {_AGAIN}", url=url)
    files = [*zip(found["names"], found["sizes"], found["etags"], strict=False)]
    if not files or {len(found[name]) for name in ("names", "sizes", "etags")} != {len(files)}:
        raise Damaged(f"the index has different numbers of names, sizes and ETags, or none: {_AGAIN}", url=url)
    file_bytes = np.array(found["sizes"], np.int64)
    alone = form.name == "audio"
    for vectors, types in zip(sections, (_AUDIO_TYPES,) if alone else (_TYPES, _AUDIO_TYPES), strict=False):
        if not _tables_agree([each.values for each in vectors], types, file_bytes):
            raise Damaged(f"the tables of the index contradict one another: {_AGAIN}", url=url)
    listed = shards._replace(found=[Shard(found["base"] + name, *rest) for name, *rest in files])
    places = {each: number for number, each in enumerate(listed.found) if each.etag}
    videos = Videos.of_vectors(listed, sections[0])
    if alone and not videos.column("scale").all():
        raise Damaged(f"the index has a file without sound: {_AGAIN}", url=url)
    if form.audio:
        videos.audio = Videos.of_vectors(listed, sections[1])
        if not isinstance(form, _BothFormat):
            unreadable = videos.audio.column("last").astype(bool) & (videos.audio.column("scale") == 0)
            first, counts = videos.column("first"), np.diff(videos.vectors[3].values)
            spans = _spans_of(
                videos.column("step"), counts, videos.vectors[7].values, videos.vectors[7 + COLUMNS].values
            )
            unreadable |= np.abs(first) + spans > MOST_TICKS
            places = {each: number for each, number in places.items() if not unreadable[number]}
    return videos, [places.get(each, -1) for each in shards.found]


def _spans_of(steps: Ints, counts: Ints, borders: Ints, times: NDArray[Any]) -> Ints:
    """Return the ticks from the first to the last sample of each table."""
    found, varies = steps * np.maximum(counts - 1, 0), np.diff(borders) > 0
    found[varies] = times[borders[1:][varies] - 1]
    return found


def _tables_agree(vectors: list[NDArray[Any]], types: list[set[str]], file_bytes: Ints) -> bool:
    """Return whether vectors, as they are in ``Videos``, are tables of files of so many bytes.

    All that the arithmetic of a ``Table`` relies on is compared, so that no frame leads out of a vector or of a file.
    """
    count, width = len(file_bytes), len(Table._fields) - COLUMNS - 1
    if not _shapes_agree(vectors, types, count, width):
        return False
    rows, setups, boxes, *rest = vectors
    borders, columns = rest[:COLUMNS], rest[COLUMNS:]
    agree = _frames_agree if types is _TYPES else partial(_sound_agrees, _frame_bytes_of(setups, boxes))
    first = 0
    while first < count:
        # Some tables at once, for the memory that the comparisons take.
        stop = max(int(np.searchsorted(borders[0], borders[0][first] + _BLOCK_FRAMES, side="right")) - 1, first + 1)
        part = _Block(
            rows.reshape(count, width)[first:stop],
            [each[first : stop + 1] - each[first] for each in borders],
            [values[each[first] : each[stop]].astype(np.int64) for each, values in zip(borders, columns, strict=True)],
        )
        if not (_samples_agree(part, file_bytes[first:stop]) and agree(part)):
            return False
        first = stop
    return True


def _shapes_agree(vectors: list[NDArray[Any]], types: list[set[str]], count: int, width: int) -> bool:
    """Return whether vectors have the types and lengths of tables, each with a setup of its kind."""
    if [each.dtype.str in some for each, some in zip(vectors, types, strict=False)] != [True] * len(types):
        return False
    rows, setups, boxes, *rest = vectors
    pieces = ((setups, boxes), *zip(rest[:COLUMNS], rest[COLUMNS:], strict=True))
    if (
        len(rows) != count * width
        or any(len(each) != count + 1 for each, _ in pieces[1:])
        or any(each[:1].tolist() != [0] or each[-1] != len(values) for each, values in pieces)
        or any((np.diff(each) < 0).any() for each, _ in pieces)
        or (np.diff(setups) < 8).any()  # noqa: PLR2004  the smallest box
        or (rows[::width] < 0).any()
        or (rows[::width] >= len(setups) - 1).any()
    ):
        return False
    kinds = boxes[setups[:-1, None] + np.arange(4, 8)]
    return types is not _TYPES or not (kinds == [*b"soun"]).all(axis=1).any()


class _Block(NamedTuple):
    """Some tables: their numbers, and for each vector its borders and its values, as int64."""

    rows: Ints
    borders: list[Ints]
    columns: list[Ints]

    @property
    def counts(self) -> list[Ints]:
        return [np.diff(each) for each in self.borders]

    def are_within(self, *bounds: tuple[Ints, Any, Any]) -> bool:
        return not any(((each < least) | (each >= end)).any() for each, least, end in bounds)

    def ascend(self, at: int, least: int = 1) -> bool:
        """Return whether a vector ascends within each table, by ``least`` or more."""
        return bool((_steps(self.columns[at], self.borders[at]) >= least).all())


def _samples_agree(block: _Block, file_bytes: Ints) -> bool:
    """Return whether samples lie in their files, one behind the other, and have ascending times."""
    sizes, *_, times, marks, places = block.columns
    counts, *_, time_counts, mark_counts, place_counts = block.counts
    _, scale, tick, step, _, _, _, last = block.rows.T
    there = counts > 0
    if not (
        block.are_within(
            *((sizes, 0, _MOST_SCALE), (scale, 1 * there, 1 + there * _MOST_SCALE), (tick, -_MOST_TICKS, _MOST_TICKS)),
            *((step, 0, _MOST_SCALE), (last, 0, _MOST_SCALE), (times, 0, _MOST_TICKS)),
            *((mark_counts, 1 * there, counts + 1), (marks, 0, np.repeat(counts, mark_counts))),
        )
        and np.array_equal(time_counts, counts * (step == 0))
        and np.array_equal(place_counts, mark_counts)
        and block.are_within((places, 0, np.repeat(file_bytes, place_counts) + 1))
        and block.ascend(4, 0)
        and block.ascend(5)
        and not times[block.borders[4][:-1][time_counts > 0]].any()
        and not marks[block.borders[5][:-1][there]].any()
    ):
        return False
    runs = np.add.reduceat(sizes, np.repeat(block.borders[0][:-1], mark_counts) + marks) if len(marks) else places
    lasts = block.borders[6][1:][there] - 1
    ends = (places + runs)[lasts] <= file_bytes[there]
    return bool(ends.all() and (_steps(places, block.borders[6]) >= np.delete(runs, lasts)).all())


def _sound_agrees(frame_bytes: Ints, block: _Block) -> bool:
    """Return whether tables are of audio tracks, which have no key frames, or of no track; PCM frames are whole."""
    number, _, tick, step, begin, frames, reach, last = block.rows.T
    heard, size = block.counts[0] > 0, frame_bytes[number]
    end = tick + _spans_of(step, block.counts[0], block.borders[4], block.columns[4]) + last * heard
    return bool(
        frame_bytes.all()
        and np.array_equal(heard, size > 0)
        and not any(map(len, block.columns[1:4]))
        and block.are_within((begin, 0, 1 + heard * _MOST_TICKS), (frames, 0, 1 + heard * _MOST_TICKS), (reach, 0, 1))
        and ((frames == 0) | ((begin >= tick) & (begin + frames <= end))).all()
        and not (block.columns[0] % np.repeat(size, block.counts[0])).any()
    )


def _frame_bytes_of(setups: Ints, boxes: NDArray[np.uint8]) -> Ints:
    """Return the bytes of a PCM frame of each setup; 1 for other codecs, -1 for no track, and 0 for a video track."""
    found = []
    for first, stop in pairwise(setups.tolist()):
        codec, *_, channels = read_setup(boxes[first:stop].tobytes())
        if not codec:
            found.append(-1)
        elif codec in PCM_KINDS:
            found.append(channels * int(codec[2]))
        else:
            found.append(int(channels > 0 and codec in ("aac", "opus", "alac", "flac")))
    return np.array(found)


def _frames_agree(block: _Block) -> bool:
    """Return whether keys, and the order of presentation, lead to samples of their tables."""
    _, keys, key_ranks, shifts, *_ = block.columns
    counts, key_counts, rank_counts, shift_counts, *_ = block.counts
    *_, begin, frames, reach, _ = block.rows.T
    both = shift_counts > 0  # tables whose two orders differ
    return (
        block.are_within(
            *((key_counts, 1, counts + 1), (keys, 0, np.repeat(counts, key_counts)), (begin, 0, counts)),
            *((frames, 1, counts - begin + 1), (reach, 0, counts)),
        )
        and np.array_equal(shift_counts, counts * both)
        and np.array_equal(rank_counts, key_counts * both)
        and block.are_within((key_ranks, 0, np.repeat(counts, rank_counts)))
        and block.ascend(1)
        and block.ascend(2)
        and _orders_agree(block.rows, block.borders, keys, key_ranks, shifts)
    )


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
