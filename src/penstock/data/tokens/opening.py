"""Files of tokens by their URLs: found, paired with their indexes of documents, and read only where needed.

Their headers and indexes are read with the formats of ``data/shards/tokens``; of a process group, by one rank for all.
"""

from __future__ import annotations

import os
import pickle
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.data.catalog.discovery.shards import Shard, Shards, find_shards, walked
from penstock.data.ranks import is_own, share_result
from penstock.data.shards.registry import is_shard
from penstock.data.shards.tokens import KINDS, DatatroveIndex, MegatronIndex, TokenFile, token_dtype
from penstock.data.tokens.windows import TokenFiles
from penstock.errors import Damaged, NotFound, Unusable
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.data.shards.format import Extents, ShardFormat
    from penstock.data.shards.tokens import Units
    from penstock.options import StoreOptions
    from penstock.source import Source

    Urls = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_MOST_SENT = 20_000_000  # documents
_BIN, _IDX = ".bin", ".idx"
_DS, _INDEX = ".ds", ".index"  # datatrove's: a.ds and a.ds.index
_PACKED = (".gz", ".zst", ".xz", ".bz2", ".npz")
_BESIDE = (".ds.index", ".ds.metadata", ".ds.loss")
_LOSS = ".loss"  # a.loss of a.bin, a.ds.loss of a.ds: one byte a token
_ITEMS = {2: "<u2", 4: "<u4"}  # types of datatrove's tokens, by their bytes


class Manner(NamedTuple):
    """Checked arguments of ``TokenDataset.from_shards``: how files are read."""

    format: str  # one of ``KINDS``; empty: by the files themselves
    dtype: str  # type of the tokens as ``numpy.dtype.str``; empty: as the files say
    units: Units  # which units samples are cut from
    planned: bool = False  # whether a saved plan has the type of the tokens, and the units
    loss: bool = False  # whether each file has a loss mask

    @classmethod
    def checked(cls, format: object, dtype: object, units: Units) -> Manner:  # noqa: A002  the field's word
        if format is not None and format not in KINDS:
            raise Unusable(f"format must be one of {', '.join(map(repr, KINDS))}, got {format!r}")
        if units != "tokens" and format not in (None, "megatron"):
            raise Unusable(
                f"{format!r} files have no index of {units}: Megatron's .bin with .idx and datatrove's .ds with "
                ".ds.index have, and are recognised by their names without format="
            )
        return cls("" if format is None else str(format), "" if dtype is None else token_dtype(dtype).str, units)


def open_files(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], manner: Manner, store: StoreOptions | str | None
) -> TokenFiles:
    """Return the files that ``urls`` name, in order, with their units.

    Costs the requests of ``find_shards``, those of the headers and indexes, and a HEAD of the index of each file that
    is named by itself. Of a process group, one rank makes them: see ``Catalog.scan``.
    """
    if not hasattr(urls, "__iter__") and not isinstance(urls, os.PathLike):
        raise Unusable(f"urls must be a URL or a list of URLs, got {urls!r}")
    given = urls if isinstance(urls, (str, os.PathLike, set, frozenset)) else [*urls]
    listed = [given] if isinstance(given, (str, os.PathLike)) else [*given]
    if is_own(listed):
        return _find_files(given, manner, store)
    call = f"tokens of {listed!r} {store!r}"
    return share_result(
        call,
        manner,
        lambda: _find_files(given, manner, store),
        _pack_files,
        partial(_unpack_files, os.fspath(listed[0]), store),
    )


def _pack_files(files: TokenFiles) -> bytes:
    if sum(len(offsets) for offsets, _ in files.units) > _MOST_SENT:
        raise Unusable("tokens with more than 20 million documents are too many to be sent to other ranks")
    # Options may hold secrets.
    return pickle.dumps(files[1:])


def _unpack_files(url: str, store: StoreOptions | str | None, data: bytes) -> TokenFiles:
    # From a rank of this job, as in torch's own collectives.
    return TokenFiles(open_source(url, store)[0], *pickle.loads(data))  # noqa: S301


def _find_files(
    given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], manner: Manner, store: StoreOptions | str | None
) -> TokenFiles:
    plain = TokenFile(manner.dtype, "" if manner.format == "megatron" else manner.format)
    shards = find_shards(given, plain, {}, store)
    if beside := [each.key for each in shards.found if each.key.endswith(_BESIDE)]:
        message = "a file of datatrove without tokens: name the .ds"
        raise Unusable(message, url=shards.source.url(beside[0]))
    if not manner.format:
        _check_names(shards)
    files, pairs = _pair_indexes(shards, manner, prefix=_is_prefix(given, plain))
    keys, etags = [each.key for each in files], [each.etag for each in files]
    twins = [(*files[number], *index) for number, index in sorted(pairs.items())]
    losses = _find_losses(shards.source, keys) if manner.loss else []
    if manner.planned:
        return TokenFiles(shards.source, shards.base, keys, etags, np.dtype(np.uint8), (), twins, losses)
    found: list[Extents] = [None] * len(files)  # type: ignore[list-item]  # filled below
    rest = [number for number in range(len(files)) if number not in pairs]
    for number, extents in walked(shards._replace(found=files, format=plain), rest):
        found[number] = extents
    indexes = [pairs.get(number, file) for number, file in enumerate(files)]
    documents = [number for number, index in pairs.items() if index.key.endswith(_INDEX)]
    for number, extents in walked(shards._replace(found=indexes, format=DatatroveIndex()), documents):
        found[number] = _in_bytes(extents, files[number], shards.source, manner.dtype)
    rest = [number for number in pairs if number not in documents]
    for number, extents in walked(shards._replace(found=indexes, format=MegatronIndex(manner.units)), rest):
        _check_size(extents, files[number], shards.source)
        found[number] = extents
    dtype = _common(files, found, shards.source, manner.dtype)
    units = [(each.offsets, each.sizes) for each in found]
    return TokenFiles(shards.source, shards.base, keys, etags, np.dtype(dtype), units, twins, losses)


def _find_losses(source: Source, keys: Sequence[str]) -> list[tuple[str, int, str]]:
    names = [key.removesuffix(_BIN) + _LOSS for key in keys]
    found = [(meta.key, meta.size, meta.etag) for meta in source.stat_existing(names) if meta is not None]
    if missing := {*names} - {key for key, *_ in found}:
        raise NotFound("loss=True needs this file, with one byte a token", url=source.url(min(missing)))
    return found


def _check_names(shards: Shards) -> None:
    for each in shards.found:
        packed = each.key.endswith(_PACKED)
        if packed or (is_shard(each.key, None) and not each.key.endswith(TokenFile.suffixes)):
            instead = "unpack it" if packed else "ps.MapDataset.from_shards reads it"
            message = f"the name belongs to another format: {instead}, or pass format='raw' if it holds bare tokens"
            raise Unusable(message, url=shards.source.url(each.key))


def _is_prefix(urls: object, form: ShardFormat) -> bool:
    """Return whether a listing has shown all files with a prefix, so that an unlisted index is missing."""
    if not isinstance(urls, (str, os.PathLike)):
        return False
    text = os.fspath(urls)
    return not any(each in text for each in "*?[{") and not text.lower().endswith(form.suffixes)


def _pair_indexes(shards: Shards, manner: Manner, *, prefix: bool) -> tuple[list[Shard], dict[int, Shard]]:
    """Return the files of tokens, and by their number the indexes of those that have one."""
    source = shards.source
    known = {each.key: each for each in shards.found}
    stems = {each.key.removesuffix(_IDX) for each in shards.found if each.key.endswith(_IDX)}
    if manner.format in ("raw", "llmc", "npy"):
        files = [each for each in shards.found if not each.key.endswith(_IDX)]
        if not files:
            raise NotFound("found only indexes, no file of tokens: name the .bin", url=source.url(shards.base))
        return files, {}
    # Each pair stands where the first of its two files is named.
    keys = [*dict.fromkeys(key.removesuffix(_IDX) + _BIN if key.endswith(_IDX) else key for key in known)]
    wanted = [key for key in keys if key not in known]
    if not prefix:
        wanted += [f"{key.removesuffix(_BIN)}{_IDX}" for key in keys if key.endswith(_BIN)]
        wanted = [key for key in wanted if key not in known]
        metas = source.stat_existing(wanted)
        known |= {meta.key: Shard(meta.key, meta.size, meta.etag) for meta in metas if meta is not None}
    if manner.units == "documents" and not manner.format:
        metas = source.stat_existing([key + _INDEX for key in keys if key.endswith(_DS)])
        known |= {meta.key: Shard(meta.key, meta.size, meta.etag) for meta in metas if meta is not None}
    files, pairs = [], {}
    for key in keys:
        stem = key.removesuffix(_BIN)
        index = known.get(stem + _IDX) if key.endswith(_BIN) else known.get(key + _INDEX)
        if key not in known:
            raise NotFound("the index exists, but its .bin does not", url=source.url(key))
        if index is not None:
            pairs[len(files)] = index
        elif key.endswith(_DS) and manner.units != "tokens" and not manner.format:
            raise NotFound(
                "this file has no index of datatrove (.ds.index): windows without documents need none"
                if manner.units == "documents"
                else "datatrove's files have documents, not sequences: pass documents=True, or length=",
                url=source.url(key),
            )
        elif manner.format == "megatron" or manner.units != "tokens" or stem in stems:
            raise NotFound(f"this file has no Megatron index (.idx){_explain_index_need(manner)}", url=source.url(key))
        files.append(known[key])
    return files, pairs


def _explain_index_need(manner: Manner) -> str:
    """Return the arguments that need a Megatron index, and advice without one."""
    if manner.units == "documents":
        return ": documents=True needs it; leave that out for windows that cross documents"
    if manner.units == "sequences":
        return ": length=None needs it; pass length= for windows"
    return ": format='megatron' needs it; leave that out" if manner.format else ""


def _in_bytes(extents: Extents, file: Shard, source: Source, dtype: str) -> Extents:
    """Return the documents of an index of datatrove in bytes, with the type of the tokens, derived from the sizes."""
    total = int(extents.offsets[-1] + extents.sizes[-1]) if len(extents.offsets) else 0
    item = np.dtype(dtype).itemsize if dtype else file.size // max(total, 1)
    if total * item != file.size or not (dtype or item in _ITEMS or not total):
        raise Damaged(
            f"the file has {file.size} bytes, and its index (.ds.index) accounts for {total} tokens"
            f"{f' of type {np.dtype(dtype)}' if dtype else ', which have 2 or 4 bytes'}: it is truncated, or the index "
            "belongs to another file",
            url=source.url(file.key),
        )
    if not dtype and not total:
        message = "the file is empty, so the type of its tokens is unknown: pass dtype="
        raise Unusable(message, url=source.url(file.key))
    return extents._replace(offsets=extents.offsets * item, sizes=extents.sizes * item, schema=dtype or _ITEMS[item])


def _check_size(extents: Extents, file: Shard, source: Source) -> None:
    total = int(extents.offsets[-1] + extents.sizes[-1]) if len(extents.offsets) else 0
    if total != file.size:
        raise Damaged(
            f"the file has {file.size} bytes, and its index (.idx) accounts for {total}: it is truncated, or the index "
            "belongs to another file",
            url=source.url(file.key),
        )


def _common(files: Sequence[Shard], found: Sequence[Extents], source: Source, given: str) -> str:
    dtype = given or found[0].schema
    for file, each in zip(files, found, strict=True):
        if each.schema != dtype:
            others = f"not {np.dtype(dtype)}: leave dtype= out"
            if not given:
                others = f"others {np.dtype(dtype)}: make two datasets, and join them with ps.concat"
            raise Unusable(f"the file holds {np.dtype(each.schema)} tokens, {others}", url=source.url(file.key))
    return dtype
