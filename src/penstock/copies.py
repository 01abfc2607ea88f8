"""Copies of one object between any two places, and checks that a copy is not its source under another name.

A bucket can have many names (endpoints, profiles, ``fsspec+…``, a mount), so different URLs do not prove two objects
distinct. Before a source is deleted, the metadata under both names is compared: the write mark and the modification
time.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

from penstock.engine.contracts.driver import Copy, Delete, Put
from penstock.errors import Changed, Damaged, InvalidURL, Unusable
from penstock.values import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.source import Source
    from penstock.values import ObjectMeta

_PIECE_BYTES = 8 << 20
# The coarsest modification time in use (FAT). Two views of one object differ by at most this much.
_GRAIN_S = 2.0
_TICK_S = 2e-6  # resolution of a float for current times
# After this pause a second write has a different modification time in every view.
PAUSE_S = _GRAIN_S + 0.1


class Copied(NamedTuple):
    """A copy: its source, with the metadata from before the copy, and its destination."""

    source: Source
    meta: ObjectMeta
    target: Source
    to: str


def copy_object(source: Source, key: str, target: Source, to: str) -> Copied:
    """Copy one object: server-side within a bucket if possible, else through this machine in bounded memory.

    A copy through this machine costs one HEAD of the source at the end, if the destination keeps marks. ``InvalidURL``
    if source and destination are one object: by their addresses, or because the source shows the copy's mark.
    ``Changed`` if a local source was replaced during the copy.
    """
    if source.address(key) == target.address(to) or _one_file(source, key, target, to):
        raise InvalidURL("this would copy the object onto itself", url=target.url(to))
    if source.root == target.root and source.supports(Copy):
        meta = source.head(key)
        source.copy(key, to, meta)
        return Copied(source, meta, target, to)
    target.require(Put, to)
    meta = source.head(key, sums=True)
    with (
        source.open_read(key, meta) as reader,
        target.open_write(to, metadata=meta.metadata, content_type=meta.content_type) as writer,
    ):
        shutil.copyfileobj(reader, writer, _PIECE_BYTES)
    file = _find_local_path(source, key)
    if not file and (_is_filesystem(target) or not source.supports(Delete)):
        # The target keeps no marks, or this name of the source cannot be deleted.
        return Copied(source, meta, target, to)
    [now] = source.stat_existing([key])
    if now is not None and now.metadata.get(MARK) == writer.mark:
        raise InvalidURL(f"this is {source.url(key)} under another name", url=target.url(to))
    if now is not None and file:
        check_same_version(source, meta, now)
    return Copied(source, meta, target, to)


def move_object(source: Source, key: str, target: Source, to: str) -> None:
    """Copy one object, check that the copy is a different object, and delete the source.

    Nothing is deleted if both names may refer to one object (``Unusable``), or if the source was written meanwhile
    (``Changed``).
    """
    source.require(Delete, key)
    delete_sources([copy_object(source, key, target, to)])


def delete_sources(copies: Iterable[Copied]) -> None:
    """Delete the sources of copies, after ``check_copies`` has proven that each copy is a different object."""
    copies = list(copies)
    check_copies(copies)
    for source, found in _group_by_source(copies, lambda each: each.source):
        source.delete([each.meta.key for each in found])


def check_copies(copies: Iterable[Copied]) -> None:
    """Check that each copy is a different object from its source; undecided ones are copied again after ``PAUSE_S``.

    Costs two HEADs per copy, in parallel; none for one copy within one bucket, in which each key is a separate object,
    and whose source has had no time to change. Raises the errors of ``move_object``; nothing may be deleted then.
    """
    copies = list(copies)
    unproven = copies if len(copies) > 1 else [each for each in copies if not one_bucket(each.source, each.target)]
    if unproven := _unproven(unproven):
        sleep(PAUSE_S)
        if unproven := _unproven([copy_object(each.source, each.meta.key, each.target, each.to) for each in unproven]):
            each = unproven[0]
            raise one_object(each.source, each.meta.key, each.target, each.to)


def _unproven(copies: list[Copied]) -> list[Copied]:
    now: dict[int, ObjectMeta] = {}
    its: dict[int, ObjectMeta] = {}
    for source, found in _group_by_source(copies, lambda each: each.source):
        now.update(zip(map(id, found), source.stat_many([each.meta.key for each in found]), strict=True))
    for target, found in _group_by_source(copies, lambda each: each.target):
        its.update(zip(map(id, found), target.stat_many([each.to for each in found]), strict=True))
    return [
        each
        for each in copies
        if not check_distinct(each.source, (each.meta, now[id(each)]), each.target, its[id(each)])
    ]


def _group_by_source(
    copies: Iterable[Copied], side: Callable[[Copied], Source]
) -> Iterable[tuple[Source, list[Copied]]]:
    groups: dict[str, tuple[Source, list[Copied]]] = {}
    for each in copies:
        groups.setdefault(side(each).root, (side(each), []))[1].append(each)
    return groups.values()


def check_distinct(
    source: Source, mine: tuple[ObjectMeta, ObjectMeta], target: Source, its: ObjectMeta, *, written: bool = True
) -> bool:
    """Return whether a copy is complete and certainly a different object from its source.

    ``mine`` is the source's metadata before and after the copy. False if that is unknown; a copy that is written
    ``PAUSE_S`` later can be distinguished. ``Damaged`` if the sizes differ, ``Changed`` if the source was written
    since, ``Unusable`` if the source has the mark of the copy, which was ``written`` just now.
    """
    before, now = mine
    if its.size != before.size:
        message = f"{before.size} bytes were copied, but the copy has {its.size}; the source was not deleted"
        raise Damaged(message, url=target.url(its.key))
    if written and not one_bucket(source, target) and its.metadata.get(MARK, 0) == now.metadata.get(MARK, 1):
        raise one_object(source, now.key, target, its.key)
    check_same_version(source, before, now)
    # The ETag of a file contains its inode, which a write replaces.
    return (written and _find_local_path(source, "") != "") or are_distinct(source, now, target, its)


def are_distinct(source: Source, mine: ObjectMeta, target: Source, its: ObjectMeta) -> bool:
    """Return whether the metadata of two names proves two objects; False if they may be one. No request."""
    if _find_local_path(source, mine.key) and _find_local_path(target, its.key):
        return not _one_file(source, mine.key, target, its.key)
    if one_bucket(source, target):
        return source.address(mine.key) != target.address(its.key)
    scheme = source.address("")[0]
    alike = scheme == target.address("")[0]
    differ = mine.size != its.size or (alike and mine.metadata.get(MARK) != its.metadata.get(MARK))
    if differ or (alike and scheme == "memory"):
        return True
    grain_s = _TICK_S if alike and _is_filesystem(source) else _GRAIN_S
    return _apart_s(mine, its) >= grain_s


def check_same_version(source: Source, before: ObjectMeta, now: ObjectMeta) -> None:
    """Raise ``Changed`` if an object is not the copied version: its size, ETag or modification time differs."""
    if _apart_s(before, now) >= _GRAIN_S or (now.size, now.etag) != (before.size, before.etag):
        message = (
            "the source was written to while it was copied, or is the copy itself under another name: copy it again"
        )
        raise Changed(message, url=source.url(now.key))


def one_object(source: Source, key: str, target: Source, to: str) -> Unusable:
    message = f"{target.url(to)} may be this object under another name: not deleted"
    return Unusable(f"{message}; if they are different objects, delete it with penstock rm", url=source.url(key))


def _apart_s(one: ObjectMeta, other: ObjectMeta) -> float:
    """Return the seconds between two modification times; 0 if one is unknown."""
    return 0.0 if one.modified is None or other.modified is None else abs(one.modified - other.modified)


def _find_local_path(source: Source, key: str) -> str:
    scheme, *_, path = source.address(key)
    return f"/{path}" if scheme == "file" else ""


def _is_filesystem(source: Source) -> bool:
    """Return whether two keys of a store may refer to one object, through links."""
    scheme = str(source.address("")[0])
    return scheme in ("file", "obspec") or scheme.startswith("fsspec+")


def one_bucket(source: Source, target: Source) -> bool:
    """Return whether both are one bucket, in which each key is a separate object."""
    return source.address("")[:3] == target.address("")[:3] and not _is_filesystem(source)


def _one_file(source: Source, key: str, target: Source, to: str) -> bool:
    """Return whether two paths on this machine are the same directory entry; hard links are separate entries."""
    path, other = _find_local_path(source, key), _find_local_path(target, to)
    if not (path and other and Path(path).exists() and Path(other).exists() and Path(path).samefile(other)):
        return False
    if Path(path).stat().st_nlink < 2:  # noqa: PLR2004  no second entry
        return True
    mine, its = Path(path).resolve(), Path(other).resolve()
    if not mine.parent.samefile(its.parent):
        return False
    # A directory that treats two spellings as one name lists only one of them.
    return mine.name == its.name or not {mine.name, its.name} <= {each.name for each in mine.parent.iterdir()}
