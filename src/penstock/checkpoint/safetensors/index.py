"""Files of a save, and the file of each tensor, by a URL, an index or the files' headers.

A URL names one file, or a folder in Hugging Face's layout, whose index says which file holds which tensor. Resolution
of a URL reads and verifies headers, and no tensor data.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.checkpoint.integrity import BLANK, document, stored_digest, with_digest
from penstock.checkpoint.safetensors.header import SafetensorsFile, parse, stop_of
from penstock.errors import CheckpointError, NotFound
from penstock.values import ObjectMeta, Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from penstock.source import Source

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_MARK = "penstock.index"
_SHARDS = "penstock.shards"


def split_names(sizes: Mapping[str, int], most_bytes: int) -> list[list[str]]:
    """Split names into at least one file, of at most ``most_bytes`` unless a single tensor is larger, in order."""
    files: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if files[-1] and filled + size > most_bytes:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += size
    return files


def file_names(count: int, save: str = "") -> list[str]:
    """Return ``count`` file names; with ``save``, an id, they are unique to that save."""
    stem = f"model-{save}" if save else "model"
    return [f"{stem}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


@dataclass(frozen=True, slots=True)
class Index:
    """Index of a sharded save: which file holds which tensor."""

    files: dict[str, str]  # name in the index's own folder, by tensor
    digests: dict[str, str]  # stored in each file's header, by file; empty if Penstock did not write the index
    size: int = 0  # bytes of all tensors; 0 in a decoded index

    def encode(self) -> bytes:
        metadata = {"total_size": self.size, _SHARDS: self.digests, _MARK: BLANK}
        described = {"metadata": metadata, "weight_map": self.files}
        return with_digest(json.dumps(described, indent=2, ensure_ascii=False).encode() + b"\n", _MARK)[0]

    @classmethod
    def decode(cls, raw: bytes, url: str) -> Index:
        """Return the index that JSON holds; another program may have written it."""
        try:
            ours = stored_digest(raw, _MARK, b'"penstock.shards": {')
            read = document(raw)
            files = _texts(read["weight_map"])
            digests = _texts(read["metadata"][_SHARDS]) if ours else {}
            if odd := [name for name in files.values() if not _is_file_name(name)]:
                raise ValueError(f"{odd[0]!r:.80} is not the name of a file in its folder")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"this index of safetensors files is damaged: {error}", url=url) from None
        return cls(files, digests)


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError("expected a mapping of str to str")
    return value


def _is_file_name(name: str) -> bool:
    return name.endswith(".safetensors") and not set(name) & {"/", "\\", "\0"}


# Holds most headers, including the digests of a few GB of tensors; takes a few milliseconds.
_FIRST_BYTES = 128 << 10
_INDEX_BYTES = 100_000_000  # largest index that is read: the limit of a header


def resolve(source: Source, key: str, names: Collection[str] | None = None) -> dict[str, SafetensorsFile]:
    """Return the file of each tensor below ``key``: a file, an index, or a folder (its index, else its only file).

    Costs two requests per file, sent for all files at once, and one more for a long header; two more for an index, and
    two more for a folder. Of an index only files with tensors of ``names`` are opened.
    """
    if key.endswith(".safetensors"):
        (file,) = _open_files(source, [key])
        return dict.fromkeys(file.header.entries, file)
    if key.endswith(".json"):
        return _open_indexed_files(source, key, stored_index(source, key), names)
    folder = as_folder(key)
    index, whole = source.stat_existing([folder + INDEX, folder + WHOLE])
    if index is not None:
        return _open_indexed_files(source, index.key, stored_index(source, index.key, index), names)
    if whole is None:
        raise NotFound(f"found neither {INDEX} nor {WHOLE}", url=source.url(folder))
    return resolve(source, folder + WHOLE)


def stored_index(source: Source, key: str, meta: ObjectMeta | None = None) -> Index:
    """Return an index: one request, and a HEAD if ``meta`` is None. Raise ``NotFound`` or ``CheckpointError``."""
    with source.open_read(key, meta) as reader:
        if reader.size > _INDEX_BYTES:
            raise CheckpointError(
                f"not an index of safetensors files: it has {reader.size:,} bytes", url=source.url(key)
            )
        return Index.decode(reader.read(), source.url(key))


def absent(name: str, known: Collection[str], url: str) -> NotFound:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return NotFound(f"no tensor {name!r} among the {len(known)}{hint}", url=url)


def _open_indexed_files(
    source: Source, key: str, index: Index, names: Collection[str] | None
) -> dict[str, SafetensorsFile]:
    url = source.url(key)
    wanted = dict.fromkeys(index.files if names is None else names)
    if missing := [name for name in wanted if name not in index.files]:
        raise absent(missing[0], index.files, url)
    folder = key[: key.rfind("/") + 1]
    shards = sorted({index.files[name] for name in wanted})
    files = dict(zip(shards, _open_files(source, [folder + shard for shard in shards]), strict=True))
    for shard, file in files.items():
        if index.digests and index.digests.get(shard) != file.header.digest:
            raise CheckpointError(f"this file and its index, {url}, are from different saves", url=file.url)
    for name in wanted:
        file = files[index.files[name]]
        if name not in file.header.entries:
            raise CheckpointError(
                f"tensor {name!r} is missing from this file, although the index lists it: {url}", url=file.url
            )
    # Names that the caller gave may be read from an index that says less, or something else, of other tensors.
    held = [(name, shard) for shard, file in files.items() for name in file.header.entries] if names is None else []
    for name, shard in held:
        if index.files.get(name) != shard:
            raise CheckpointError(
                f"this file holds tensor {name!r}, which its index, {url}, does not list for it: load the file by its "
                "own URL, or name the tensors to load (names=)",
                url=files[shard].url,
            )
    return {name: files[index.files[name]] for name in wanted}


def _open_files(source: Source, keys: Sequence[str]) -> list[SafetensorsFile]:
    """Open files: read and check their headers, and bind each to its current version."""
    metas = source.stat_many(keys)
    urls = [source.url(key) for key in keys]
    for meta, url in zip(metas, urls, strict=True):
        stop_of(b"", meta.size, url)  # raises if a file is too short
    found = source.read_versions(Span(meta.key, 0, min(meta.size, _FIRST_BYTES), meta.etag) for meta in metas)
    firsts = [data for data, _ in found]
    # Some servers name the version in answers to GET alone.
    metas = [replace(meta, etag=version) for meta, (_, version) in zip(metas, found, strict=True)]
    stops = [stop_of(first, meta.size, url) for first, meta, url in zip(firsts, metas, urls, strict=True)]
    known = list(zip(metas, urls, firsts, stops, strict=True))
    longer = [Span(meta.key, len(first), stop, meta.etag) for meta, _, first, stop in known if stop > len(first)]
    rests = dict(zip((span.key for span in longer), source.read_many(longer), strict=True))
    files = []
    for meta, url, first, stop in known:
        header = parse((first + rests.get(meta.key, b""))[:stop], meta.size, url)
        files.append(SafetensorsFile(meta.key, meta.etag, meta.size, url, header.checksums, stop, header=header))
    return files
