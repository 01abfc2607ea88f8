"""Reading names of ``webdataset`` 1.0 over Penstock: ``import penstock.compat.webdataset as wds``, and nothing else.

``wds.WebDataset(urls).shuffle(1000).decode("pil").to_tuple("jpg", "cls")`` yields the samples that webdataset yields:
dicts with ``__key__``, ``__url__`` and the bytes of each field. Differences:

- The headers of the shards are read once, when the dataset is created (all bytes of shards with small samples). To pay
  for this once, pass a ``ps.Catalog`` of the shards, which can be saved, in place of the URLs.
- ``shuffle(n)`` of any ``n`` and ``shardshuffle=`` of any size give ``ps.BlockShuffle()``: blocks of 1 MiB of all
  shards are mixed. No buffer is kept, each epoch has another order that depends on ``seed`` and epoch alone (default
  seed: ``WDS_SEED``, or 0), and the iterator's ``state_dict`` resumes it exactly.
- Ranks (``nodesplitter=wds.split_by_node``) and workers share samples and not shards, so there may be fewer shards than
  workers. Each sample comes once per epoch; but each worker process, and each rank, reads every block of 1 MiB that has
  a sample for it. ``ps.DataLoader`` over ``from_shards(…)`` with ``shuffle=ps.Lanes()`` reads each block once.
- Shards are URLs of any store, or local paths; those of a dataset lie in one bucket. ``pipe:curl -s -L URL``,
  ``pipe:aws s3 cp URL -`` and ``pipe:gsutil cat URL`` become the URL; another pipe raises ``Unsupported``.
- Samples of local files have no ``__local_path__``.
- A link, a sparse or a compressed archive, and members of a sample that are not neighbours raise an error by name.
- ``decode`` uses the decoders of webdataset, which must be installed for it.
- Left out, with an explicit error: ``resampled=True``, ``cache_dir=``, ``handler=`` of the dataset, own splitters.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from penstock.compat.arguments import WrongArgument
from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.shards import expanded
from penstock.data.shards.tar import TarFormat
from penstock.errors import MissingExtra, Unsupported, Unusable, needing
from penstock.stores.urls import parse

with needing("penstock.compat.webdataset needs torch", torch="torch"):
    import torch
    from torch.utils.data import DataLoader
    from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.data.datasets.iterable import IterableDataset
from penstock.data.datasets.stateful import StatefulIterator
from penstock.data.order.blocks import BlockShuffle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.data.datasets.sample import Sample
    from penstock.options import StoreOptions

    Handler = Callable[[Exception], bool]
    Stage = Callable[[Iterator[Any]], Iterator[Any]]

__all__ = [
    "WebDataset",
    "WebLoader",
    "default_collation_fn",
    "ignore_and_continue",
    "ignore_and_stop",
    "reraise_exception",
    "single_node_only",
    "split_by_node",
    "split_by_worker",
    "warn_and_continue",
    "warn_and_stop",
]

_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")  # webdataset's: a key ends at the first dot of a file's name
_ELSEWHERE = {
    "mcached": "pass store= with ps.CacheOptions",
    "lmdb_cached": "pass store= with ps.CacheOptions",
    "log_keys": "read sample['__key__'] in map()",
    "rename_keys": "use rename(), or map()",
    "extract_keys": "use to_tuple(), or map()",
    "xdecode": "use decode(), or map()",
    "rsample": "use ps.Catalog.split, or select()",
    "resampled": "each sample comes once per epoch: use with_epoch(n), repeat()",
}


def reraise_exception(exn: Exception) -> bool:
    """Raise ``exn``."""
    raise exn


def ignore_and_continue(exn: Exception) -> bool:  # noqa: ARG001  a handler's
    """Return True: leave the sample out."""
    return True


def warn_and_continue(exn: Exception) -> bool:
    """Warn, and return True: leave the sample out."""
    warnings.warn(repr(exn), stacklevel=2)
    return True


def ignore_and_stop(exn: Exception) -> bool:  # noqa: ARG001  a handler's
    """Return False: end the iteration."""
    return False


def warn_and_stop(exn: Exception) -> bool:
    """Warn, and return False: end the iteration."""
    warnings.warn(repr(exn), stacklevel=2)
    return False


def split_by_node(*_args: object, **_options: object) -> NoReturn:
    """Share the samples out over ranks, as ``nodesplitter=``; it cannot be called."""
    raise Unsupported("cannot call split_by_node: pass it to WebDataset(nodesplitter=)")


def single_node_only(*_args: object, **_options: object) -> NoReturn:
    """Refuse several ranks, as ``nodesplitter=``; it cannot be called."""
    raise Unsupported("cannot call single_node_only: pass it to WebDataset(nodesplitter=)")


def split_by_worker(*_args: object, **_options: object) -> NoReturn:
    """Share the samples out over workers, as ``workersplitter=``; it cannot be called."""
    raise Unsupported("cannot call split_by_worker: pass it to WebDataset(workersplitter=)")


def default_collation_fn(samples: list[Any]) -> Any:  # noqa: ANN401  of the samples' type
    """Collate tuples or dicts: numbers and arrays become arrays, tensors are stacked, anything else is a list.

    Raises:
        ValueError: Samples have different fields, or arrays have different shapes.

    """
    if isinstance(samples[0], Mapping):
        if any(each.keys() != samples[0].keys() for each in samples):
            raise WrongArgument("cannot collate samples with different fields: choose fields with to_tuple()")
        return {name: _combined([each[name] for each in samples]) for name in samples[0]}
    return tuple(_combined(list(column)) for column in zip(*samples, strict=True))


def _combined(values: list[Any]) -> Any:  # noqa: ANN401  of the values' type
    if isinstance(values[0], torch.Tensor):
        return torch.stack(values)
    return np.array(values) if isinstance(values[0], (int, float, np.ndarray)) else values


def _mapped(samples: Iterator[Any], function: Callable[[Any], Any], handler: Handler, *, named: bool) -> Iterator[Any]:
    """Call ``function`` on each sample; ``named``: None leaves a sample out, and a dict keeps its key."""
    for sample in samples:
        try:
            found = function(sample)
        except Exception as error:  # noqa: BLE001  the handler decides
            if handler(error):
                continue
            return
        if named and found is None:
            continue
        if named and isinstance(sample, dict) and isinstance(found, dict):
            found["__key__"] = sample.get("__key__")
        yield found


def _selected(samples: Iterator[Any], predicate: Callable[[Any], bool]) -> Iterator[Any]:
    return (sample for sample in samples if predicate(sample))


def _batches(
    samples: Iterator[Any], size: int, collate: Callable[[list[Any]], Any] | None, *, last: bool
) -> Iterator[Any]:
    # Ends a batch with its last sample, so that the state of the source is that of the batch.
    while batch := list(islice(samples, size)):
        if len(batch) == size or last:
            yield batch if collate is None else collate(batch)


def _sliced(samples: Iterator[Any], *bounds: int | None) -> Iterator[Any]:
    return islice(samples, *bounds)


def _single(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if isinstance(batch, Mapping):
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))
        else:
            yield from zip(*batch, strict=True)


def _joined(batches: Iterator[list[Any]]) -> Iterator[Any]:
    for batch in batches:
        yield from batch


def _first(sample: Mapping[str, Any], names: str | Iterable[str], *, required: bool = True) -> Any:  # noqa: ANN401
    each = names.split(";") if isinstance(names, str) else list(names)
    found = next((sample[name] for name in each if name in sample), None)
    if found is None and required and not any(name in sample for name in each):
        raise WrongArgument(f"the sample {sample.get('__key__')!r} has no field {';'.join(each)}, only {[*sample]}")
    return found


@dataclass(frozen=True, slots=True)
class _Tuple:
    names: tuple[str, ...]
    required: bool
    filled: bool

    def __call__(self, sample: Mapping[str, Any]) -> tuple[Any, ...]:
        found = tuple(_first(sample, each, required=self.required) for each in self.names)
        if self.filled and None in [each if each is None else 0 for each in found]:
            raise WrongArgument(f"a field of the sample {sample.get('__key__')!r} is None: {self.names}")
        return found


@dataclass(frozen=True, slots=True)
class _Fields:
    functions: dict[str, Callable[[Any], Any]]

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {name: function(sample[name]) for name, function in self.functions.items()}


@dataclass(frozen=True, slots=True)
class _Places:
    functions: tuple[Callable[[Any], Any] | None, ...]

    def __call__(self, sample: Iterable[Any]) -> tuple[Any, ...]:
        values = list(sample)
        for at, function in enumerate(self.functions[: len(values)]):
            values[at] = values[at] if function is None else function(values[at])
        return tuple(values)


@dataclass(frozen=True, slots=True)
class _Renamed:
    names: dict[str, str]
    keep: bool

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        given = {each for names in self.names.values() for each in names.split(";")}
        kept = {name: value for name, value in sample.items() if name not in given} if self.keep else {}
        return kept | {name: _first(sample, names) for name, names in self.names.items()}


class _Fluid:
    """Methods that return a copy with one more stage, as ``FluidInterface`` has them."""

    _stages: tuple[Stage, ...] = ()
    _stateless = ""  # name of a method that keeps samples or counts, with which no state is exact
    _repetitions, _limit = 1, -1
    _sized: type[Any]

    def __getattr__(self, name: str) -> NoReturn:
        """Raise ``Unsupported`` for methods of webdataset that are left out."""
        if name in _ELSEWHERE:
            raise Unsupported(f"{name} is not a part of penstock.compat.webdataset: {_ELSEWHERE[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _copy(self, stateless: str = "", **changes: Any) -> Self:  # noqa: ANN401  attributes
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | changes
        other._stateless = self._stateless or stateless
        return other

    def _then(self, stage: Stage, stateless: str = "") -> Self:
        return self._copy(stateless, _stages=(*self._stages, stage))

    def _applied(self, function: Callable[[Any], Any], handler: Handler) -> Self:
        return self._then(partial(_mapped, function=function, handler=handler, named=False))

    def compose(self, *stages: Stage) -> Self:
        """Append functions from an iterator to an iterator."""
        return self._copy("compose", _stages=(*self._stages, *stages))

    def map(self, f: Callable[[Any], Any], handler: Handler = reraise_exception) -> Self:
        """Call ``f`` on each sample; None leaves it out."""
        return self._then(partial(_mapped, function=f, handler=handler, named=True))

    def decode(
        self,
        *args: str | Callable[[str, bytes], Any],
        pre: list[Any] | None = None,
        post: list[Any] | None = None,
        only: str | list[str] | None = None,
        partial: bool = False,
        handler: Handler = reraise_exception,
    ) -> Self:
        """Decode fields with webdataset's decoders: see its documentation.

        Raises:
            MissingExtra: webdataset is not installed.

        """
        try:
            from webdataset.autodecode import Decoder, ImageHandler  # type: ignore[import-untyped]
        except ImportError as error:
            raise MissingExtra("decode() uses the decoders of webdataset: pip install webdataset") from error
        handlers = [ImageHandler(each) if isinstance(each, str) else each for each in args]
        return self.map(Decoder(handlers, pre=pre, post=post, only=only, partial=partial), handler=handler)

    def to_tuple(
        self,
        *args: str,
        handler: Handler = reraise_exception,
        missing_is_error: bool = True,
        none_is_error: bool | None = None,
    ) -> Self:
        """Make tuples of these fields; ``"jpg;png"`` is the first of several that the sample has."""
        names = tuple(args[0].split()) if len(args) == 1 else args
        filled = missing_is_error if none_is_error is None else none_is_error
        return self._then(
            partial(_mapped, function=_Tuple(names, missing_is_error, filled), handler=handler, named=False)
        )

    def map_dict(self, handler: Handler = reraise_exception, **kw: Callable[[Any], Any]) -> Self:
        """Call a function on each of these fields."""
        return self._applied(_Fields(kw), handler)

    def map_tuple(self, *args: Callable[[Any], Any] | None, handler: Handler = reraise_exception) -> Self:
        """Call a function on each value of a tuple."""
        return self._applied(_Places(args), handler)

    def rename(self, handler: Handler = reraise_exception, keep: bool = True, **kw: str) -> Self:  # noqa: FBT001, FBT002  webdataset's
        """Rename fields: ``rename(image="jpg;png")``."""
        return self._applied(_Renamed(kw, keep), handler)

    def select(self, predicate: Callable[[Any], bool]) -> Self:
        """Keep the samples for which ``predicate`` is true."""
        return self._then(partial(_selected, predicate=predicate))

    def slice(self, *args: int | None) -> Self:
        """Keep a slice of the samples of each worker: stop, or start, stop and step."""
        return self._then(partial(_slicing, bounds=args), "slice")

    def batched(
        self,
        batchsize: int,
        collation_fn: Callable[[list[Any]], Any] | None = default_collation_fn,
        partial: bool = True,  # noqa: FBT001, FBT002  webdataset's
    ) -> Self:
        """Make batches of ``batchsize``; the last of each worker may be short, unless ``partial`` is False."""
        return self._then(_Batching(batchsize, collation_fn, partial))

    def listed(self, batchsize: int, partial: bool = True) -> Self:  # noqa: FBT001, FBT002  webdataset's
        """Make lists of ``batchsize`` samples."""
        return self.batched(batchsize, None, partial)

    def unbatched(self) -> Self:
        """Yield the samples of batches one by one."""
        return self._then(_single, "unbatched")

    def unlisted(self) -> Self:
        """Yield the samples of lists one by one."""
        return self._then(_joined, "unlisted")

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """End each iteration after this number of samples (or batches, after ``batched``); changes this object."""
        self._repetitions, self._limit = sys.maxsize, max(nsamples, nbatches)
        return self

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Iterate ``nepochs`` times in one iteration, without end by default; changes this object."""
        self._repetitions, self._limit = (nepochs if nepochs > 0 else sys.maxsize), nbatches
        return self

    def with_length(self, n: int, silent: bool = False) -> Self:  # noqa: FBT001, FBT002  webdataset's
        """Give this object the length ``n``, which changes nothing else."""
        if not silent:
            warnings.warn("with_length sets what len() returns, and nothing else: use with_epoch(n)", stacklevel=2)
        self.size = n
        self.__class__ = self._sized
        return self

    def _begun(self) -> Iterator[Any]:
        """Begin the next epoch of the source."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the samples, or batches."""
        if self._repetitions == 1:
            return Samples(self._begun(), self._stages, self._stateless)
        every = self._repeated()
        return islice(every, self._limit) if self._limit > 0 else every

    def _repeated(self) -> Iterator[Any]:
        for _ in range(self._repetitions):
            count = 0
            for count, sample in enumerate(Samples(self._begun(), self._stages, self._stateless), 1):  # noqa: B007
                yield sample
            if not count:
                return


@dataclass(frozen=True, slots=True)
class _Batching:
    size: int
    collate: Callable[[list[Any]], Any] | None
    last: bool

    def __call__(self, samples: Iterator[Any]) -> Iterator[Any]:
        return _batches(samples, self.size, self.collate, last=self.last)


def _slicing(samples: Iterator[Any], bounds: tuple[int | None, ...]) -> Iterator[Any]:
    return _sliced(samples, *bounds)


class Samples(Iterator[Any]):
    """Iterator over the stages of a dataset, with the state of the dataset's samples."""

    def __init__(self, source: Iterator[Any], stages: tuple[Stage, ...], stateless: str) -> None:
        """Run ``stages`` over ``source``."""
        self._source, self._stages, self._stateless = source, stages, stateless
        self._items: Iterator[Any] | None = None

    def __next__(self) -> Any:  # noqa: ANN401  the last stage's
        """Return the next sample or batch."""
        if self._items is None:
            self._items = self._source
            for stage in self._stages:
                self._items = iter(stage(self._items))
        return next(self._items)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the samples, or batches, that were delivered.

        Raises:
            Unusable: A stage keeps samples or counts them, so that no state is exact.

        """
        return self._stateful().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was taken. Raise ``StateMismatch`` if it is another dataset's."""
        self._stateful().load_state_dict(state)
        self._items = None

    def _stateful(self) -> StatefulIterator:
        if self._stateless or not isinstance(self._source, StatefulIterator):
            why = self._stateless or "WebLoader"
            raise Unusable(f"cannot take or load a state behind {why}: use ps.DataLoader, or torchdata's loader")
        return self._source


@dataclass(frozen=True, slots=True)
class _KeyRule:
    """Rule of keys of webdataset: files without a dot are left out."""

    select: Callable[[str], bool] | None = None
    rename: Callable[[str], str] | None = None

    def __call__(self, name: str) -> tuple[str, str] | None:
        name = self.rename(name) if self.rename else name
        found = _NAME.fullmatch(name) if self.select is None or self.select(name) else None
        return None if found is None else (found[1], found[2].lower())


@dataclass(frozen=True, slots=True)
class _AsDict:
    """Transform from a sample to webdataset's dict."""

    given: dict[str, str]  # shards by URL, as they were given

    def __call__(self, sample: Sample) -> dict[str, Any]:
        found: dict[str, Any] = {"__key__": sample.key, "__url__": self.given.get(sample.url, sample.url)}
        return found | {name: bytes(sample[name].data) for name in sample.fields}


class WebDataset(_Fluid, TorchIterableDataset[Any]):
    """Samples of WebDataset's tar shards, with webdataset's arguments and methods.

    Args:
        urls: A shard, a pattern with braces, several of them joined by ``::``, a list, or a prefix that ends in ``/``;
            or a ``ps.Catalog`` of ``from_shards``.
        handler: ``reraise_exception`` only.
        mode: None only.
        resampled: False only.
        repeat: Iterate without end.
        shardshuffle: True or a positive number: shuffle, as ``shuffle`` does.
        cache_size: Ignored without ``cache_dir``.
        cache_dir: None only.
        url_to_name: Ignored: it names files of the cache.
        detshuffle: Ignored: each order depends on ``seed`` and epoch alone.
        nodesplitter: ``single_node_only`` (default), ``split_by_node``, or None: every rank reads all samples.
        workersplitter: ``split_by_worker`` only.
        select_files: Predicate of the names of members.
        rename_files: Function of the names of members.
        empty_check: Raise an error if there are no samples.
        verbose: Ignored.
        seed: Seed of the order; default: ``WDS_SEED``, or 0.
        store: Options of the store, or the name of a profile; default: environment and profile.

    Raises:
        Unsupported: An argument has a value that is not here; the text says what to use.
        NotFound: A shard does not exist.
        Damaged: A shard is not a tar file, or is incomplete.

    """

    def __init__(  # noqa: PLR0913, PLR0917  webdataset's
        self,
        urls: str | Iterable[str] | Catalog,
        handler: Handler = reraise_exception,
        mode: str | None = None,
        resampled: bool = False,  # noqa: FBT001, FBT002  webdataset's
        repeat: bool = False,  # noqa: FBT001, FBT002
        shardshuffle: bool | int | None = None,  # noqa: FBT001
        cache_size: int = -1,  # noqa: ARG002
        cache_dir: str | None = None,
        url_to_name: Callable[[str], str] | None = None,  # noqa: ARG002
        detshuffle: bool = False,  # noqa: ARG002, FBT001, FBT002
        nodesplitter: Callable[..., Any] | None = single_node_only,
        workersplitter: Callable[..., Any] | None = split_by_worker,
        select_files: Callable[[str], bool] | None = None,
        rename_files: Callable[[str], str] | None = None,
        empty_check: bool = True,  # noqa: FBT001, FBT002
        verbose: bool = False,  # noqa: ARG002, FBT001, FBT002
        seed: int | None = None,
        *,
        store: StoreOptions | str | None = None,
    ) -> None:
        """Read the headers of the shards."""
        _refuse(handler is not reraise_exception, "handler=", 'use ps.DataLoader(…, on_error="skip") for failed reads')
        _refuse(resampled or mode == "resampled", "resampled=True", _ELSEWHERE["resampled"])
        _refuse(mode not in {None, "resampled"}, f"mode={mode!r}", "leave it out")
        _refuse(cache_dir is not None, "cache_dir=", _ELSEWHERE["mcached"])
        splitters = (None, single_node_only, split_by_node)
        _refuse(nodesplitter not in splitters, "nodesplitter= of your own", "pass split_by_node, or None")
        _refuse(workersplitter is not split_by_worker, "workersplitter=", "workers share the samples out")
        given: dict[str, str] = {}
        if isinstance(urls, Catalog):
            catalog = urls
        else:
            shards = _shards(urls)
            form = TarFormat(key=_KeyRule(select_files, rename_files))
            given = {parse(each).url: each for each in shards} if isinstance(shards, list) else {}
            catalog = Catalog.from_shards(shards, format=form, progress=False, store=store)
        if empty_check and not len(catalog):
            raise WrongArgument("the shards have no samples: pass empty_check=False to allow this")
        self._catalog, self._transform, self._store = catalog, _AsDict(given), store
        self._seed = int(os.environ.get("WDS_SEED") or 0) if seed is None else int(seed)
        self._single = nodesplitter is single_node_only
        self._place = None if nodesplitter is not None else "unsharded"
        self._dataset = self._made(shuffled=bool(shardshuffle))
        if repeat:
            self.repeat()

    def _made(self, *, shuffled: bool) -> IterableDataset:
        return IterableDataset(
            self._catalog,
            transform=self._transform,
            shuffle=BlockShuffle() if shuffled else False,
            seed=self._seed,
            place=self._place,  # type: ignore[arg-type]
            store=self._store,
        )

    def shuffle(self, size: int, **kw: Any) -> Self:  # noqa: ANN401  webdataset's
        """Shuffle by ``ps.BlockShuffle()`` for any ``size`` above 0: no buffer is kept; ``seed=`` sets the seed.

        Raises:
            Unsupported: ``rng=`` is passed.

        """
        if size < 1:
            return self
        _refuse("rng" in kw, "rng=", "pass seed=, of which and the epoch each order depends alone")
        other = self._copy(_seed=int(kw["seed"]) if kw.get("seed") is not None else self._seed)
        other._dataset = other._made(shuffled=True)  # noqa: SLF001  itself
        return other

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration: see ``ps.IterableDataset.set_epoch``."""
        self._dataset.set_epoch(epoch)

    def _begun(self) -> Iterator[Any]:
        iterator = iter(self._dataset)
        progress = iterator.progress
        if self._single and progress is not None and progress.place.world > 1:
            raise WrongArgument("several ranks need WebDataset(nodesplitter=split_by_node), or nodesplitter=None")
        return iterator

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing."""


class WebLoader(_Fluid):
    """Torch's ``DataLoader`` with the methods of ``WebDataset``; takes its arguments.

    ``ps.DataLoader`` forms the same batches for any number of workers, and resumes.
    """

    def __init__(self, *args: Any, **kw: Any) -> None:  # noqa: ANN401  torch's
        """Make the loader."""
        self._loader: DataLoader[Any] = DataLoader(*args, **kw)

    def shuffle(self, size: int, **_kw: Any) -> Self:  # noqa: ANN401  webdataset's
        """Return this loader: its samples are mixed already.

        Raises:
            Unsupported: The dataset is not shuffled.

        """
        dataset = self._loader.dataset
        if size > 0 and isinstance(dataset, WebDataset):
            ordered = isinstance(dataset._dataset._order, BlockShuffle)  # noqa: SLF001  of this file
            _refuse(not ordered, "WebLoader.shuffle of a dataset in its own order", "call shuffle(n) on the dataset")
        return self

    def _begun(self) -> Iterator[Any]:
        return iter(self._loader)


class _Sized:
    """Base of objects with the length that ``with_length`` gave them."""

    size: int

    def __len__(self) -> int:
        """Return that length."""
        return self.size


class SizedWebDataset(_Sized, WebDataset):
    """Dataset with a length."""


class SizedWebLoader(_Sized, WebLoader):
    """Loader with a length."""


WebDataset._sized, WebLoader._sized = SizedWebDataset, SizedWebLoader  # noqa: SLF001  of this file


def _refuse(wrong: bool, name: str, instead: str) -> None:  # noqa: FBT001
    if wrong:
        raise Unsupported(f"{name} is not a part of penstock.compat.webdataset: {instead}")


def _shards(urls: object) -> str | list[str]:
    """Return the URLs of shards, without braces and pipes; a prefix is returned as it is."""
    _refuse(isinstance(urls, Mapping), "a dict of datasets", "join datasets with ps.concat")
    if isinstance(urls, str):
        _refuse(urls.endswith((".yaml", ".yml", ".json")), f"{urls!r}", "join datasets with ps.concat")
        if urls.endswith("/") and not urls.startswith("pipe:"):
            return urls
        given = urls.split("::")
    else:
        given = [str(each) for each in urls]  # type: ignore[attr-defined]
    return [shard for each in given for shard in expanded(unpiped(each))]


def unpiped(url: str) -> str:
    """Return the URL that a ``pipe:`` command copies to its output; any other URL unchanged.

    Raises:
        Unsupported: The command does anything else.

    """
    if not url.startswith("pipe:"):
        return url
    words = shlex.split(url.removeprefix("pipe:"))
    quiet = [each for each in words if not re.fullmatch(r"-[sSLf]+|--silent|--location|--fail|--show-error", each)]
    match quiet if words[:1] == ["curl"] else words:
        case ["curl", str(found)] | ["aws", "s3", "cp", str(found), "-"] | ["cat", str(found)]:
            return found
        case ["gsutil", "cat", str(found)] | ["gcloud", "storage", "cat", str(found)]:
            return found
    raise Unsupported(f"cannot run {url!r}: pass the URL of the shard itself, and its options as store=")
