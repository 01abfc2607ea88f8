"""Safetensors by URL: save with digests, load directly into tensor memory, or read single tensors and slices.

A URL names one file, or a folder in Hugging Face's layout, whose index says which file holds which tensor. Resolution
of a URL (``resolve``) reads and verifies headers, and no tensor data.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from uuid import uuid4

from penstock.checkpoint.integrity import BLANK, Checksummer, document, stored_digest, with_digest
from penstock.checkpoint.safetensors.header import (
    SafetensorsFile,
    TensorEntry,
    TensorSpan,
    as_texts,
    described,
    encode,
    iterate_tensors,
    layout,
    load_tensors,
    parse,
    shape_of,
    stop_of,
)
from penstock.checkpoint.staging import iterate_bytes, torch_module
from penstock.engine.contracts.driver import Put
from penstock.errors import AlreadyExists, CheckpointError, InvalidURL, NotFound, Unusable, kind_of
from penstock.progress import bar, current
from penstock.source import Source, open_source
from penstock.values import ObjectMeta, Span, as_folder, switch, whole

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from types import TracebackType

    import torch
    from torch import Tensor

    from penstock.options import StoreOptions

_SHARD_BYTES = 5_000_000_000  # default of Hugging Face's libraries
_PLAIN = (int, slice, type(...), type(None))


def save_safetensors(  # noqa: PLR0913  see design/0049
    tensors: Mapping[str, Tensor],
    url: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> None:
    """Save tensors as one file (``url`` ends in ``.safetensors``) or in Hugging Face's layout (a folder).

    A folder holds ``model.safetensors``. Beyond ``max_shard_bytes`` of tensors it holds several files and
    ``model.safetensors.index.json``, which is written last. Every safetensors reader can read them; Penstock's detects
    every damaged byte.

    The save is atomic. An existing save stays until then, and is replaced only with ``overwrite``. Tensors are read
    twice and never copied; the memory used is that of writing with ``ps.open``. Costs the requests of ``ps.open``, and
    HEADs for files that may exist.

    Args:
        tensors: Tensors by name.
        url: The file; or the folder, whose URL ends in ``/`` unless ``max_shard_bytes`` is given.
        metadata: Texts by name, for each file's header; ``format`` is ``pt`` by default.
        max_shard_bytes: Most bytes of tensors in one file of a folder; default: 5 GB.
        overwrite: Replace an existing save.
        progress: Show a line on standard error; default: if that is a terminal and rich is installed.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        AlreadyExists: A save exists there, and ``overwrite`` is False.
        Unusable: The format cannot hold a tensor, two tensors share memory, or one was changed during the save.

    Example:
        >>> ps.save_safetensors({"weight": torch.zeros(2)}, "s3://bucket/model.safetensors")
        >>> ps.load_safetensors("s3://bucket/model.safetensors")
        {'weight': tensor([0., 0.])}
    """
    switch(overwrite, "overwrite")
    try:
        named = dict(tensors)
    except (TypeError, ValueError):
        wrong = f"tensors must be a mapping of names to tensors, got {kind_of(tensors)}"
        raise Unusable(f"{wrong}; write save_safetensors(tensors, url)") from None
    source, key = open_source(url, store)
    if max_shard_bytes is not None:
        max_shard_bytes = whole(max_shard_bytes, "max_shard_bytes", 1)
    writing = _Save(source, named, {"format": "pt"} | dict(metadata or {}), overwrite)
    # Tensors or metadata that cannot be written are refused before any request.
    encode(layout(described(writing.tensors)), writing.metadata, b"")
    one = key.endswith(".safetensors")
    if one and max_shard_bytes is not None:
        raise InvalidURL("several files need a folder: pass a URL that ends in '/'", url=source.url(key))
    if key and not one and not key.endswith("/") and max_shard_bytes is None:
        raise InvalidURL("a safetensors file ends in '.safetensors', and a folder in '/'", url=source.url(key))
    place = key if one else as_folder(key)
    size_bytes = sum(each.nbytes for each in writing.tensors.values())
    with bar(f"saving {source.url(place)}", 1, size_bytes, shown=progress):
        if one:
            writing.file(place)
        else:
            writing.folder(place, _SHARD_BYTES if max_shard_bytes is None else max_shard_bytes)


def load_safetensors(
    url: str | os.PathLike[str],
    *,
    device: str | int | torch.device = "cpu",
    names: Iterable[str] | None = None,
    progress: bool | None = None,
    store: StoreOptions | str | None = None,
) -> dict[str, Tensor]:
    """Load all tensors, or some, from a file, an index or a folder, in parallel ranges.

    The bytes are read directly into the tensors' memory. For a GPU they pass through page-locked buffers, at most 192
    MiB plus one buffer. Only the files and bytes that are needed are read. Files that Penstock saved are verified.
    Costs two requests per file, two more for an index, two more for a folder, then one per 8 MiB.

    Args:
        url: A ``.safetensors`` file, an index, or a folder that holds either.
        device: Device of the tensors; default: the CPU.
        names: Names of the tensors to load; default: all.
        progress: As for ``save_safetensors``.
        store: As for ``save_safetensors``.

    Returns:
        Tensors by name, with the shapes and dtypes of the file.

    Raises:
        NotFound: A file, or a tensor of ``names``, does not exist.
        ChecksumMismatch: Bytes differ from their digest; the message names the file and the tensors.
        CheckpointError: A header or the index is damaged or wrong, or a file belongs to another save than the index.
        Changed: A file was replaced during the load.

    Example:
        >>> ps.save_safetensors({"a": torch.zeros(2), "b": torch.ones(1)}, "s3://bucket/ab.safetensors")
        >>> ps.load_safetensors("s3://bucket/ab.safetensors", names=["b"])
        {'b': tensor([1.])}
    """
    if isinstance(names, str):
        raise Unusable(f"names must be a list of names, got the str {names!r}")
    wanted = _list_names(names)
    source, key = open_source(url, store)
    found = Safetensors(source, resolve(source, key, wanted), source.url(key), device)
    with bar(f"loading {source.url(key)}", 1, found.size_bytes(wanted), shown=progress):
        return found.get_tensors(wanted)


def iter_safetensors(
    url: str | os.PathLike[str],
    *,
    names: str | Iterable[str] | None = None,
    device: str | int | torch.device = "cpu",
    store: StoreOptions | str | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors one after another in the order of the files' bytes, while the next ones are read.

    For models that do not fit into memory twice: beyond the tensors that the caller keeps, at most 192 MiB and the
    largest tensor are in memory. Each byte is read once. Files that Penstock saved are verified. Costs the requests of
    ``load_safetensors``; with a pattern, the headers of all files are read.

    Args:
        url: As for ``load_safetensors``.
        names: Names of the tensors, or one pattern, whose ``*`` matches any text (``"layers.0.*"``); default: all.
        device: As for ``load_safetensors``.
        store: As for ``save_safetensors``.

    Returns:
        An iterator over names and tensors. Headers are read now, and tensors during the iteration.

    Raises:
        NotFound: A file, or a tensor of ``names``, does not exist, or no name matches the pattern.
        ChecksumMismatch: As for ``load_safetensors``; raised by the iterator, before the damaged tensor.
        CheckpointError: As for ``load_safetensors``.
        Changed: As for ``load_safetensors``; raised by the iterator.

    Example:
        >>> ps.save_safetensors({"a.w": torch.ones(1), "b.w": torch.zeros(2)}, "s3://bucket/two.safetensors")
        >>> for name, tensor in ps.iter_safetensors("s3://bucket/two.safetensors", names="*.w"):
        ...     print(name, tensor)
        a.w tensor([1.])
        b.w tensor([0., 0.])
    """
    wanted = None if isinstance(names, str) else _list_names(names)
    source, key = open_source(url, store)
    found = Safetensors(source, resolve(source, key, wanted), source.url(key), device)
    if isinstance(names, str):
        wanted = fnmatch.filter(found.keys(), names)
        if not wanted:
            raise absent(names, found.keys(), source.url(key))
    return found.iterate_tensors(wanted)


def open_safetensors(
    url: str | os.PathLike[str], *, device: str | int | torch.device = "cpu", store: StoreOptions | str | None = None
) -> Safetensors:
    """Open a file, an index or a folder: reads the headers now, and tensors and slices on access.

    Args:
        url: As for ``load_safetensors``.
        device: As for ``load_safetensors``.
        store: As for ``save_safetensors``.

    Returns:
        A ``Safetensors``, with ``keys``, ``metadata``, ``get_tensor``, ``get_tensors`` and ``get_slice``.

    Raises:
        NotFound: A file does not exist.
        CheckpointError: As for ``load_safetensors``.

    Example:
        >>> ps.save_safetensors({"weight": torch.arange(6).reshape(2, 3)}, "s3://bucket/m.safetensors")
        >>> with ps.open_safetensors("s3://bucket/m.safetensors") as file:
        ...     file.get_slice("weight")[1]
        tensor([3, 4, 5])
    """
    source, key = open_source(url, store)
    return Safetensors(source, resolve(source, key), source.url(key), device)


def _list_names(names: object) -> list[str] | None:
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise Unusable(f"names must be names of tensors, got {kind_of(names)}")
    found = list(names)
    if wrong := [each for each in found if not isinstance(each, str)]:
        raise Unusable(f"names must be names of tensors, got {kind_of(wrong[0])} among them")
    return found


class Safetensors:
    """The tensors of one safetensors file, or of several with an index, by name; read on access.

    Thread-safe, and bound to the version of each file that was opened. Files that Penstock wrote are verified before
    data is returned. There is nothing to close; after the ``with`` block reads raise ``ValueError``.
    """

    def __init__(
        self, source: Source, files: Mapping[str, SafetensorsFile], url: str, device: str | int | torch.device
    ) -> None:
        self._source = source
        self._files = files
        self._url = url
        self._device: torch.device = torch_module().device(device)
        self._closed = False

    def keys(self) -> list[str]:
        """Return the tensors' names: those of one file in the order of their bytes, else in the index's order."""
        return list(self._files)

    def metadata(self) -> dict[str, str]:
        """Return the metadata saved with the tensors; metadata of several files is merged."""
        found: dict[str, str] = {}
        for file in dict.fromkeys(self._files.values()):
            found |= file.header.metadata
        return found

    def get_tensor(self, name: str) -> Tensor:
        """Return one tensor; raise ``NotFound`` for an unknown name and ``ChecksumMismatch`` for damaged bytes."""
        return self.get_tensors([name])[name]

    def get_tensors(self, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """Return some tensors, or all, read together.

        Raise as ``get_tensor`` does; ``NotFound`` is raised before anything is read.
        """
        wanted = self._spans(_list_names(names))
        in_order = sorted(wanted, key=attrgetter("of.key", "start"))
        read = dict(zip((each.entry.name for each in in_order), self.load_tensors(in_order), strict=True))
        return {each.entry.name: read[each.entry.name] for each in wanted}

    def iterate_tensors(self, names: Iterable[str] | None = None) -> Iterator[tuple[str, Tensor]]:
        """Return an iterator as ``ps.iter_safetensors`` does; raise ``NotFound`` before anything is read."""
        in_order = sorted(self._spans(_list_names(names)), key=attrgetter("of.key", "start"))
        return iterate_tensors(self._source, in_order, self._device)

    def size_bytes(self, names: Iterable[str] | None = None) -> int:
        """Return the size in bytes of some tensors, or of all; raise ``NotFound`` for an unknown name."""
        return sum(each.stop - each.start for each in self._spans(names))

    def get_slice(self, name: str) -> Slice:
        """Return a ``Slice`` that reads parts of a tensor when indexed; raise ``NotFound`` for an unknown name."""
        return Slice(self, self._span(name))

    def load_tensors(self, spans: Sequence[TensorSpan]) -> list[Tensor]:
        if self._closed:
            raise ValueError("read from closed safetensors")
        return load_tensors(self._source, spans, self._device, by_stages=self._device.type != "cpu")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True

    def _spans(self, names: Iterable[str] | None) -> list[TensorSpan]:
        return [self._span(name) for name in dict.fromkeys(self._files if names is None else names)]

    def _span(self, name: str) -> TensorSpan:
        if name not in self._files:
            raise absent(name, self._files, self._url)
        file = self._files[name]
        entry = file.header.entries[name]
        return TensorSpan(file, file.origin + entry.start, file.origin + entry.stop, entry, shape_of(entry))


class Slice:
    """A tensor that is read when it is indexed, and only between the first and last byte that the index needs."""

    def __init__(self, of: Safetensors, whole: TensorSpan) -> None:
        self._of = of
        self._whole = whole

    def get_shape(self) -> list[int]:
        return list(self._whole.shape)

    def get_dtype(self) -> str:
        """Return the dtype as the file names it, such as ``F32``."""
        return self._whole.entry.dtype

    def __getitem__(self, index: Any) -> Tensor:  # noqa: ANN401  any index of a tensor
        """Return the same elements as indexing the tensor itself, contiguous and in separate memory.

        Leading integers and one slice after them read exactly those bytes. The rest of the index is applied after the
        read. Raise ``IndexError`` as torch does, before anything is read.
        """
        torch, whole = torch_module(), self._whole
        if all(isinstance(each, _PLAIN) for each in (index if isinstance(index, tuple) else (index,))):
            torch.empty(whole.shape, dtype=torch.uint8, device="meta")[index]
        start, stop, shape, rest = resolve_index(whole.shape, index)
        element = (whole.stop - whole.start) // max(1, torch.Size(whole.shape).numel())
        first, last = whole.start + start * element, whole.start + stop * element
        (run,) = self._of.load_tensors([whole._replace(start=first, stop=last, shape=shape)])
        chosen: Tensor = run[rest]
        if chosen.numel() < run.numel() or not chosen.is_contiguous():
            chosen = chosen.clone(memory_format=torch.contiguous_format)
        return chosen


class Cut(NamedTuple):
    """Elements ``[start, stop)`` of a tensor, in its order: a run of ``shape``."""

    start: int
    stop: int
    shape: tuple[int, ...]
    rest: tuple[Any, ...]  # the index that remains to be applied to the run


def resolve_index(shape: tuple[int, ...], index: Any) -> Cut:  # noqa: ANN401  any index of a tensor
    """Return the shortest run of elements that contains those selected by ``index`` from a tensor of ``shape``.

    Leading integers select from the leading dimensions, and a slice from the next one, exactly. The remaining index
    becomes ``rest``. Raises ``IndexError`` for an integer beyond the tensor; torch checks ``rest``.
    """
    rest = index if isinstance(index, tuple) else (index,)
    start, count = 0, prod(shape)
    while rest and type(rest[0]) is int and count:
        count //= shape[0]
        # A range refuses an index beyond its end, where a remainder would read another element.
        start += range(shape[0])[rest[0]] * count
        shape, rest = shape[1:], rest[1:]
    # torch refuses a negative step when it applies the rest.
    if rest and isinstance(rest[0], slice) and count and (rest[0].step or 1) > 0:
        chosen = range(shape[0])[rest[0]]
        count //= shape[0]
        first, last = (chosen[0], chosen[-1] + 1) if chosen else (0, 0)
        start += first * count
        return Cut(
            start,
            start + (last - first) * count,
            (last - first, *shape[1:]),
            (slice(None, None, chosen.step), *rest[1:]),
        )
    return Cut(start, start + count, shape, rest)


@dataclass(frozen=True, slots=True)
class _Save:
    """Save of tensors to a store."""

    source: Source
    tensors: Mapping[str, torch.Tensor]
    metadata: Mapping[str, str]
    overwrite: bool

    def file(self, key: str) -> None:
        self._vacant([key])
        self._write(key, self.tensors, create_only=not self.overwrite)

    def folder(self, folder: str, most_bytes: int) -> None:
        """Write all tensors as one file, or several and then the index; files of a replaced save go at the end."""
        index, whole = self._vacant([folder + INDEX, folder + WHOLE])
        old = [] if index is None else _files(self.source, index)
        sizes = {name: tensor.nbytes for name, tensor in self.tensors.items()}
        shards = split_names(sizes, most_bytes)
        if len(shards) == 1:
            self._write(folder + WHOLE, self.tensors, create_only=not self.overwrite)
            names = [WHOLE]
            self.source.delete([folder + INDEX] if index else [])
        else:
            names = self._free(folder, len(shards))
            self._shards(folder, dict(zip(names, shards, strict=True)), sum(sizes.values()))
            self.source.delete([folder + WHOLE] if whole else [])
        self.source.delete([folder + name for name in old if name not in names])

    def _vacant(self, keys: list[str]) -> list[ObjectMeta | None]:
        """Return the metadata of existing objects, before any write; raise ``AlreadyExists`` unless ``overwrite``."""
        self.source.require(Put, keys[0])
        found = self.source.stat_existing(keys)
        taken = [meta.key for meta in found if meta is not None]
        if taken and not self.overwrite:
            message = "the checkpoint exists: pass overwrite=True to replace it"
            raise AlreadyExists(message, url=self.source.url(taken[0]))
        return found

    def _free(self, folder: str, count: int) -> list[str]:
        """Return unused file names: the usual ones, unless a file of another save has one of them."""
        names = file_names(count)
        free = not any(self.source.stat_existing([folder + name for name in names]))
        return names if free else file_names(count, uuid4().hex[:8])

    def _shards(self, folder: str, shards: Mapping[str, list[str]], size: int) -> None:
        digests = {
            file: self._write(folder + file, {name: self.tensors[name] for name in names}, create_only=True)
            for file, names in shards.items()
        }
        files = {name: file for file, names in shards.items() for name in names}
        with self.source.open_write(folder + INDEX, create_only=not self.overwrite) as writer:
            writer.write(Index(files, digests, size).encode())

    def _write(self, key: str, tensors: Mapping[str, torch.Tensor], *, create_only: bool) -> str:
        """Write a file and return the digest in its header; reads the tensors twice and holds no copy."""
        entries = layout(described(tensors))
        checksummer = Checksummer()
        for piece in _bytes(entries, tensors):
            checksummer.update(piece)
        header, digest = encode(entries, self.metadata, checksummer.checksums().digests)
        with self.source.open_write(key, create_only=create_only) as writer:
            writer.write(header)
            again, count = Checksummer(), current()
            for piece in _bytes(entries, tensors):
                writer.write(piece)
                count(0, len(piece))
                again.update(piece)
            if again.checksums() != checksummer.checksums():
                message = "the tensors were changed while they were saved, so nothing was written"
                raise Unusable(message, url=self.source.url(key))
        return digest


def _files(source: Source, index: ObjectMeta) -> list[str]:
    """Return the files that an index names, which are to be replaced; empty if the index is damaged."""
    try:
        return sorted(set(stored_index(source, index.key, index).files.values()))
    except CheckpointError:
        return []


def _bytes(entries: Iterable[TensorEntry], tensors: Mapping[str, torch.Tensor]) -> Iterator[memoryview]:
    for entry in entries:
        yield from iterate_bytes(tensors[entry.name])


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
            files = as_texts(read["weight_map"], "weight_map")
            digests = as_texts(read["metadata"][_SHARDS], _SHARDS) if ours else {}
            if odd := [each for each in files.values() if set(each) & {*"/\\\0"} or not each.endswith(".safetensors")]:
                raise ValueError(f"{odd[0]!r:.80} is not the name of a file in its folder")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"this index of safetensors files is damaged: {error}", url=url) from None
        return cls(files, digests)


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
