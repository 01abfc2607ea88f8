"""Stages of webdataset's pipelines: functions from an iterator to an iterator, and the methods that append them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch

from penstock.compat.arguments import WrongArgument
from penstock.data.datasets.stateful import StatefulIterator
from penstock.errors import MissingExtra, Unsupported, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Handler = Callable[[Exception], bool]
    Stage = Callable[[Iterator[Any]], Iterator[Any]]

ELSEWHERE = {
    "mcached": "pass store= with ps.CacheOptions",
    "lmdb_cached": "pass store= with ps.CacheOptions",
    "log_keys": "read sample['__key__'] in map()",
    "rename_keys": "use rename(), or map()",
    "extract_keys": "use to_tuple(), or map()",
    "xdecode": "use decode(), or map()",
    "rsample": "use ps.Catalog.split, or select()",
    "resampled": "each sample comes once per epoch: use with_epoch(n), repeat()",
    **dict.fromkeys(("append", "invoke", "stage"), "use compose() with functions of an iterator"),
    **dict.fromkeys(("create_url_iterator", "iterator", "iterator1"), "use iter()"),
}
_METHODS = "associate batched decode detshuffle extract_keys getfirst info map map_dict map_tuple rename rename_keys"
_METHODS += " rsample select shuffle slice to_tuple transform_with unbatched xdecode with_epoch with_length"
_DECODERS = "Continue Decoder DecodingError gzfilter handle_extension imagehandler pytorch_weights_only torch_audio"
_DECODERS += " torch_loads torch_video"
_PIPELINES = "DataPipeline FluidInterface FluidWrapper MockDataset PipelineStage non_empty pipelinefilter repeatedly"
# Names of the module webdataset that are left out, and what to use instead.
NAMES = {
    name: instead
    for names, instead in (
        (_PIPELINES, "use WebDataset and its methods; compose() takes functions of an iterator"),
        (_METHODS, "call the method of WebDataset"),
        (_DECODERS, "import it from webdataset, and pass it to decode()"),
        ("RandomMix RoundRobin", "mix datasets with ps.Mix, or join them with ps.concat"),
        ("MultiShardSample", "pass the shards of all sources, or mix datasets with ps.Mix"),
        ("ResampledShards resampled", ELSEWHERE["resampled"]),
        ("SimpleShardList shardspec", "pass the URLs to WebDataset"),
        ("ShardWriter", "write into a local folder with webdataset's own, and ps.sync it; or use ps.pack"),
        ("TarWriter", "use webdataset's own over the file of \"with ps.open(url, 'wb') as file\""),
        ("numpy_dumps torch_dumps", "import it from webdataset"),
        ("gopen gopen_schemes", "use ps.open"),
        ("tarfile_samples tarfile_to_samples", "pass the URLs to WebDataset"),
        ("Cached LMDBCached LRUCleanup pipe_cleaner", ELSEWHERE["mcached"]),
    )
    for name in names.split()
}


def reraise_exception(exn: Exception) -> bool:
    raise exn


def ignore_and_continue(exn: Exception) -> bool:
    """Return True: leave the sample out."""
    return True


def warn_and_continue(exn: Exception) -> bool:
    """Warn, and return True: leave the sample out."""
    warnings.warn(repr(exn), stacklevel=2)
    return True


def ignore_and_stop(exn: Exception) -> bool:
    """Return False: end the iteration."""
    return False


def warn_and_stop(exn: Exception) -> bool:
    """Warn, and return False: end the iteration."""
    warnings.warn(repr(exn), stacklevel=2)
    return False


def default_collation_fn(samples: list[Any]) -> Any:
    """Collate tuples or dicts: numbers and arrays become arrays, tensors are stacked, all other values become lists."""
    if isinstance(samples[0], Mapping):
        if any(each.keys() != samples[0].keys() for each in samples):
            raise WrongArgument("cannot collate samples with different fields: choose fields with to_tuple()")
        return {name: _collate_values([each[name] for each in samples]) for name in samples[0]}
    return tuple(_collate_values(list(column)) for column in zip(*samples, strict=True))


def _collate_values(values: list[Any]) -> Any:
    if isinstance(values[0], torch.Tensor):
        return torch.stack(values)
    return np.array(values) if isinstance(values[0], (int, float, np.ndarray)) else values


def _map_samples(
    samples: Iterator[Any], function: Callable[[Any], Any], handler: Handler, *, named: bool
) -> Iterator[Any]:
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


def _batch_samples(
    samples: Iterator[Any], size: int, collate: Callable[[list[Any]], Any] | None, *, last: bool
) -> Iterator[Any]:
    # Ends a batch with its last sample, so that the state of the source is that of the batch.
    while batch := list(islice(samples, size)):
        if len(batch) == size or last:
            yield batch if collate is None else collate(batch)


def _slice_samples(samples: Iterator[Any], bounds: tuple[int | None, ...]) -> Iterator[Any]:
    return islice(samples, *bounds)


def _single(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if isinstance(batch, Mapping):
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))
        else:
            yield from zip(*batch, strict=True)


def _first(sample: Mapping[str, Any], names: str | Iterable[str], *, required: bool = True) -> Any:
    each = names.split(";") if isinstance(names, str) else list(names)
    found = next((sample[name] for name in each if name in sample), None)
    if found is None and required and not any(name in sample for name in each):
        raise WrongArgument(f"the sample {sample.get('__key__')!r} has no field {';'.join(each)}, only {[*sample]}")
    return found


def _take_fields(sample: Mapping[str, Any], names: tuple[str, ...], *, required: bool, filled: bool) -> tuple[Any, ...]:
    found = tuple(_first(sample, each, required=required) for each in names)
    if filled and any(each is None for each in found):
        raise WrongArgument(f"a field of the sample {sample.get('__key__')!r} is None: {names}")
    return found


def _map_fields(sample: dict[str, Any], functions: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    return sample | {name: function(sample[name]) for name, function in functions.items()}


def _map_places(sample: Iterable[Any], functions: tuple[Callable[[Any], Any] | None, ...]) -> tuple[Any, ...]:
    values = list(sample)
    for at, function in enumerate(functions[: len(values)]):
        values[at] = values[at] if function is None else function(values[at])
    return tuple(values)


def _rename_fields(sample: dict[str, Any], names: dict[str, str], *, keep: bool) -> dict[str, Any]:
    given = {each for spelled in names.values() for each in spelled.split(";")}
    kept = {name: value for name, value in sample.items() if name not in given} if keep else {}
    return kept | {name: _first(sample, spelled) for name, spelled in names.items()}


class Fluid:
    """Methods that return a copy with one more stage, as ``FluidInterface`` has them."""

    _stages: tuple[Stage, ...] = ()
    _stateless = ""  # name of a method that keeps samples or counts, with which no state is exact
    _repetitions, _limit = 1, -1
    _sized: type[Any]

    def __getattr__(self, name: str) -> NoReturn:
        if name in ELSEWHERE:
            raise Unsupported(f"{name} is not a part of penstock.compat.webdataset: {ELSEWHERE[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _copy(self, stateless: str = "", **changes: Any) -> Self:
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | changes
        other._stateless = self._stateless or stateless
        return other

    def _then(self, stage: Callable[..., Iterator[Any]], stateless: str = "", **options: Any) -> Self:
        return self._copy(stateless, _stages=(*self._stages, partial(stage, **options)))

    def _applied(self, function: Callable[[Any], Any], handler: Handler) -> Self:
        return self._then(_map_samples, function=function, handler=handler, named=False)

    def compose(self, *stages: Stage) -> Self:
        """Append functions from an iterator to an iterator."""
        return self._copy("compose", _stages=(*self._stages, *stages))

    def map(self, f: Callable[[Any], Any], handler: Handler = reraise_exception) -> Self:
        """Call ``f`` on each sample; None leaves it out."""
        return self._then(_map_samples, function=f, handler=handler, named=True)

    def decode(
        self,
        *args: str | Callable[[str, bytes], Any],
        pre: list[Any] | None = None,
        post: list[Any] | None = None,
        only: str | list[str] | None = None,
        partial: bool = False,
        handler: Handler = reraise_exception,
    ) -> Self:
        """Decode fields with webdataset's decoders: see its documentation."""
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
        return self._applied(partial(_take_fields, names=names, required=missing_is_error, filled=filled), handler)

    def map_dict(self, handler: Handler = reraise_exception, **kw: Callable[[Any], Any]) -> Self:
        """Call a function on each of these fields."""
        return self._applied(partial(_map_fields, functions=kw), handler)

    def map_tuple(self, *args: Callable[[Any], Any] | None, handler: Handler = reraise_exception) -> Self:
        """Call a function on each value of a tuple."""
        return self._applied(partial(_map_places, functions=args), handler)

    def rename(self, handler: Handler = reraise_exception, keep: bool = True, **kw: str) -> Self:
        """Rename fields: ``rename(image="jpg;png")``."""
        return self._applied(partial(_rename_fields, names=kw, keep=keep), handler)

    def select(self, predicate: Callable[[Any], bool]) -> Self:
        """Keep the samples for which ``predicate`` is true."""
        return self._then(partial(filter, predicate))

    def slice(self, *args: int | None) -> Self:
        """Keep a slice of the samples of each worker: stop, or start, stop and step."""
        return self._then(_slice_samples, "slice", bounds=args)

    def batched(
        self,
        batchsize: int,
        collation_fn: Callable[[list[Any]], Any] | None = default_collation_fn,
        partial: bool = True,
    ) -> Self:
        """Make batches of ``batchsize``; the last of each worker may be short, unless ``partial`` is False."""
        return self._then(_batch_samples, size=batchsize, collate=collation_fn, last=partial)

    def listed(self, batchsize: int, partial: bool = True) -> Self:
        """Make lists of ``batchsize`` samples."""
        return self.batched(batchsize, None, partial)

    def unbatched(self) -> Self:
        """Yield the samples of batches one by one."""
        return self._then(_single, "unbatched")

    def unlisted(self) -> Self:
        """Yield the samples of lists one by one."""
        return self._then(chain.from_iterable, "unlisted")

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """End each iteration after this number of samples (or batches, after ``batched``); changes this object."""
        self._repetitions, self._limit = sys.maxsize, max(nsamples, nbatches)
        return self

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Iterate ``nepochs`` times in one iteration, without end by default; changes this object."""
        self._repetitions, self._limit = (nepochs if nepochs > 0 else sys.maxsize), nbatches
        return self

    def with_length(self, n: int, silent: bool = False) -> Self:
        """Give this object the length ``n``, which changes nothing else."""
        if not silent:
            warnings.warn("with_length sets what len() returns, and nothing else: use with_epoch(n)", stacklevel=2)
        self.size = n
        self.__class__ = self._sized
        return self

    def _begun(self) -> Iterator[Any]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
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


class Samples(Iterator[Any]):
    """Iterator over the stages of a dataset, with the state of the dataset's samples."""

    def __init__(self, source: Iterator[Any], stages: tuple[Stage, ...], stateless: str) -> None:
        self._source, self._stages, self._stateless = source, stages, stateless
        self._items: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._items is None:
            self._items = self._source
            for stage in self._stages:
                self._items = iter(stage(self._items))
        return next(self._items)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the samples, or batches, that were delivered."""
        return self._stateful().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where ``state`` was taken. Raise ``StateMismatch`` if it is another dataset's."""
        self._stateful().load_state_dict(state)
        self._items = None

    def _stateful(self) -> StatefulIterator:
        if self._stateless or not isinstance(self._source, StatefulIterator):
            why = self._stateless or "WebLoader"
            raise Unusable(f"cannot take or load a state behind {why}: use ps.DataLoader, or torchdata's loader")
        return self._source
