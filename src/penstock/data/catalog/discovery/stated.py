"""Shards in an index.json of MDS: the file to read of each, compared with the existing objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.data.shards.litdata import described_chunks
from penstock.data.shards.mds import stated_shards
from penstock.errors import Damaged, NotFound, PenstockError, Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.data.shards.litdata import NamedChunk
    from penstock.data.shards.mds import ColumnFormat, Stated
    from penstock.source import Source

T = TypeVar("T")

INDEX = "index.json"
_MOST_BYTES = 256 << 20  # of an index.json: that of a million shards


def read_stated(source: Source, key: str, *, empty: bool = False) -> list[Stated] | None:
    """Return the entries of the index.json ``key``; None if it does not exist: a HEAD, and a GET."""
    found = _read_index(source, key, stated_shards)
    if found == [] and not empty:
        raise NotFound(f"{INDEX} lists no shard", url=source.url(key))
    return found


def read_described(source: Source, key: str, form: ColumnFormat) -> tuple[list[NamedChunk], ColumnFormat]:
    """Return the chunks of LitData that the index.json ``key`` names, and their format: a HEAD, and a GET."""
    found = _read_index(source, key, lambda data: described_chunks(data, form))
    if found is None:
        raise NotFound(f'format="litdata" needs the {INDEX} of the chunks, which does not exist', url=source.url(key))
    if not found[0]:
        raise NotFound(f"{INDEX} lists no chunk", url=source.url(key))
    return found


def _read_index(source: Source, key: str, parse: Callable[[bytes], T]) -> T | None:
    """Return an index.json as ``parse`` reads it; None if it does not exist."""
    (meta,) = source.stat_existing([key])
    if meta is None:
        return None
    if meta.size > _MOST_BYTES:
        raise Damaged(f"{INDEX} has {meta.size} bytes: too many", url=source.url(key))
    try:
        return parse(source.read(Span(key, 0, meta.size, meta.etag, whole=True)))
    except PenstockError as error:
        error.url = error.url or source.url(key)
        raise


def named_files(folder: str, stated: Sequence[Stated], *, packed: bool) -> list[str]:
    """Return the keys of the shards below ``folder``: of the compressed files, or of the others."""
    return [folder + (each.packed if packed and each.packed else each.raw).name for each in stated]


def stated_files(source: Source, folder: str, stated: Sequence[Stated], sizes: Mapping[str, int]) -> dict[str, Stated]:
    """Return the shards to read, by their keys, in the order of the index; ``sizes`` are those of the objects."""
    keys = named_files(folder, stated, packed=True)
    if not all(key in sizes for key in keys):
        # A folder that Mosaic has read from has the files that it has decompressed.
        raw = named_files(folder, stated, packed=False)
        keys = raw if all(key in sizes for key in raw) else keys
    for key, each in zip(keys, stated, strict=True):
        if key not in sizes:
            raise NotFound(f"{INDEX} lists this shard, which does not exist", url=source.url(key))
        file = each.raw if key == folder + each.raw.name else each.packed
        if file is not None and sizes[key] != file.size:
            raise Damaged(
                f"{INDEX} states {file.size} bytes, and the shard has {sizes[key]}: one of them is older; write the "
                "index again, or pass the URLs of the shards",
                url=source.url(key),
            )
    kinds = {each.packed is not None for each in stated}
    if len(kinds) > 1 and keys == named_files(folder, stated, packed=True):
        raise Unusable(
            f"only some shards of {INDEX} are compressed: make a dataset of each kind, by the URLs of its shards, and "
            "join them with ps.concat",
            url=source.url(folder + INDEX),
        )
    return dict(zip(keys, stated, strict=True))


def check_strays(source: Source, folder: str, stated: Sequence[Stated], keys: Sequence[str]) -> None:
    """Refuse shards of a folder whose index.json does not list them."""
    known = {*named_files(folder, stated, packed=True), *named_files(folder, stated, packed=False)}
    folders = {key.rpartition("/")[0] for key in known}
    stray = next((key for key in keys if key not in known and key.rpartition("/")[0] in folders), None)
    if stray is not None:
        raise Damaged(
            f"{source.url(folder + INDEX)} does not name this shard: write the index again "
            f"(streaming.base.util.merge_index), or pass the URL of {INDEX} to read only what it names",
            url=source.url(stray),
        )
