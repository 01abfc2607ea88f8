"""Datasets and loaders with webdataset's arguments: shards by URL, keys by webdataset's rule, samples as dicts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

from torch.utils.data import DataLoader
from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.compat.arguments import WrongArgument
from penstock.compat.webdataset.fluid import ELSEWHERE, Fluid, reraise_exception
from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.discovery.shards import expand_braces
from penstock.data.datasets.iterable import IterableDataset
from penstock.data.order.block_permutation import BlockShuffle
from penstock.data.shards.tar import TarFormat
from penstock.errors import Unsupported
from penstock.stores.urls import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.compat.webdataset.fluid import Handler
    from penstock.data.reading.sample import Sample
    from penstock.options import StoreOptions

_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")  # webdataset's: a key ends at the first dot of a file's name


def split_by_node(*_args: object, **_options: object) -> NoReturn:
    """Distribute the samples over ranks, as ``nodesplitter=``; it cannot be called."""
    raise Unsupported("cannot call split_by_node: pass it to WebDataset(nodesplitter=)")


def single_node_only(*_args: object, **_options: object) -> NoReturn:
    """Refuse several ranks, as ``nodesplitter=``; it cannot be called."""
    raise Unsupported("cannot call single_node_only: pass it to WebDataset(nodesplitter=)")


def split_by_worker(*_args: object, **_options: object) -> NoReturn:
    """Distribute the samples over workers, as ``workersplitter=``; it cannot be called."""
    raise Unsupported("cannot call split_by_worker: pass it to WebDataset(workersplitter=)")


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


class WebDataset(Fluid, TorchIterableDataset[Any]):
    """Samples of WebDataset's tar shards, with webdataset's arguments and methods.

    ``handler``, ``mode``, ``resampled``, ``cache_dir`` and ``workersplitter`` must have their defaults. ``cache_size``,
    ``url_to_name``, ``detshuffle`` and ``verbose`` have no effect: each order depends on ``seed`` and epoch alone.

    Args:
        urls: A shard, a pattern with braces, several of them joined by ``::``, a list, or a prefix that ends in ``/``;
            or a ``ps.Catalog`` of ``from_shards``.
        repeat: Iterate without end.
        shardshuffle: True or a positive number: shuffle, as ``shuffle`` does.
        nodesplitter: ``single_node_only`` (default), ``split_by_node``, or None: every rank reads all samples.
        select_files: Predicate of the names of members.
        rename_files: Function of the names of members.
        empty_check: Raise an error if there are no samples.
        seed: Seed of the order; default: ``WDS_SEED``, or 0.
        store: Options of the store, or the name of a profile; default: environment and profile.

    Raises:
        Unsupported: An argument has an unsupported value; the text says what to use.
        NotFound: A shard does not exist.
        Damaged: A shard is not a tar file, or is incomplete.
    """

    def __init__(
        self,
        urls: str | Iterable[str] | Catalog,
        handler: Handler = reraise_exception,
        mode: str | None = None,
        resampled: bool = False,
        repeat: bool = False,
        shardshuffle: bool | int | None = None,
        cache_size: int = -1,
        cache_dir: str | None = None,
        url_to_name: Callable[[str], str] | None = None,
        detshuffle: bool = False,
        nodesplitter: Callable[..., Any] | None = single_node_only,
        workersplitter: Callable[..., Any] | None = split_by_worker,
        select_files: Callable[[str], bool] | None = None,
        rename_files: Callable[[str], str] | None = None,
        empty_check: bool = True,
        verbose: bool = False,
        seed: int | None = None,
        *,
        store: StoreOptions | str | None = None,
    ) -> None:
        _refuse(handler is not reraise_exception, "handler=", 'use ps.DataLoader(…, on_error="skip") for failed reads')
        _refuse(resampled or mode == "resampled", "resampled=True", ELSEWHERE["resampled"])
        _refuse(mode not in {None, "resampled"}, f"mode={mode!r}", "leave it out")
        _refuse(cache_dir is not None, "cache_dir=", ELSEWHERE["mcached"])
        splitters = (None, single_node_only, split_by_node)
        _refuse(nodesplitter not in splitters, "a custom nodesplitter=", "pass split_by_node, or None")
        _refuse(workersplitter is not split_by_worker, "workersplitter=", "samples are sharded automatically")
        given: dict[str, str] = {}
        if isinstance(urls, Catalog):
            catalog = urls
        else:
            shards = _shards(urls)
            form = TarFormat(key=_KeyRule(select_files, rename_files))
            given = {parse(each).url: each for each in shards} if isinstance(shards, list) else {}
            catalog = Catalog.from_shards(shards, format=form, allow_empty=True, progress=False, store=store)
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

    def shuffle(self, size: int, **kw: Any) -> Self:
        """Shuffle by ``ps.order.BlockShuffle()`` for any ``size`` above 0: no buffer is kept; ``seed=`` sets the seed.

        ``initial=`` has no effect: no buffer has to be filled.
        """
        strange = ", ".join(kw.keys() - {"seed", "initial"})
        _refuse(bool(strange), f"shuffle({strange}=)", "pass seed=: orders depend only on it and the epoch")
        if size < 1:
            return self
        other = self._copy(_seed=int(kw["seed"]) if kw.get("seed") is not None else self._seed)
        other._dataset = other._made(shuffled=True)  # noqa: SLF001  itself
        return other

    def set_epoch(self, epoch: int) -> None:
        self._dataset.set_epoch(epoch)

    def _begun(self) -> Iterator[Any]:
        iterator = iter(self._dataset)
        progress = iterator.progress
        if self._single and progress is not None and progress.place.world > 1:
            raise WrongArgument("several ranks need WebDataset(nodesplitter=split_by_node), or nodesplitter=None")
        return iterator

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing."""


class WebLoader(Fluid):
    """Torch's ``DataLoader`` with the methods of ``WebDataset``; takes its arguments.

    ``ps.DataLoader`` forms the same batches for any number of workers, and resumes.
    """

    def __init__(self, *args: Any, **kw: Any) -> None:
        self._loader: DataLoader[Any] = DataLoader(*args, **kw)

    def shuffle(self, size: int, **kw: Any) -> Self:
        """Return this loader: its samples are mixed already. ``initial=`` has no effect."""
        strange = ", ".join(kw.keys() - {"initial"})
        _refuse(bool(strange), f"WebLoader.shuffle({strange}=)", "pass seed= to the dataset, which sets the order")
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
        return self.size


class SizedWebDataset(_Sized, WebDataset):
    """Dataset with a length."""


class SizedWebLoader(_Sized, WebLoader):
    """Loader with a length."""


WebDataset._sized, WebLoader._sized = SizedWebDataset, SizedWebLoader  # noqa: SLF001  of this file


def _refuse(wrong: bool, name: str, instead: str) -> None:
    if wrong:
        raise Unsupported(f"{name} is not a part of penstock.compat.webdataset: {instead}")


def _shards(urls: object) -> str | list[str]:
    """Return the URLs of shards, without braces and pipes; a prefix is returned unchanged."""
    _refuse(isinstance(urls, Mapping), "a dict of datasets", "join datasets with ps.concat")
    if isinstance(urls, str):
        _refuse(urls.endswith((".yaml", ".yml", ".json")), f"{urls!r}", "join datasets with ps.concat")
        if urls.endswith("/") and not urls.startswith("pipe:"):
            return urls
        given = urls.split("::")
    else:
        given = [str(each) for each in urls]  # type: ignore[attr-defined]
    return [shard for each in given for shard in expand_braces(strip_pipe(each))]


def strip_pipe(url: str) -> str:
    """Return the URL that a ``pipe:`` command copies to its output; any other URL unchanged."""
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
