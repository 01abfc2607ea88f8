"""The base class of map-style and iterable datasets over a catalog: its constructors, and reading of its samples.

A constructor checks its arguments, then lists, reads or builds a catalog. Samples are single objects, groups of them,
cut from runs of a shard, or of units: which of these depends on the catalog, and on the order in which they are read.
"""

from __future__ import annotations

import inspect
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import fields
from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar

from penstock.data.catalog.catalog import Catalog, make_catalog
from penstock.data.catalog.discovery.manifest import manifest_fields, read_groups, read_manifest
from penstock.data.catalog.groups import check_grouping, named_groups
from penstock.data.catalog.labels import check_rule
from penstock.data.catalog.rows import Entry
from penstock.data.order.orders import CatalogOrder
from penstock.data.order.sampling import Repeat
from penstock.data.reading.objects import (
    GroupReading,
    Homes,
    ObjectReading,
    grouped_sample,
    homes_of,
    lists,
    made_sample,
    singles,
    span_url,
)
from penstock.data.reading.reading import SampleDataset
from penstock.data.reading.runs import RunReading, UnitReading, runs_of, unit_url
from penstock.data.reading.sample import Sample
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import InvalidURL, NotFound, PenstockError, Unusable, kind_of, public_url
from penstock.options import StoreOptions
from penstock.options.typed import explain_attribute, suggest_word
from penstock.source import open_source
from penstock.stores.s3.options import S3Options
from penstock.stores.urls import parse
from penstock.values import Span, as_folder, switch

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import BinaryIO

    from penstock.data.catalog.groups import GroupRule
    from penstock.data.catalog.labels import Rule
    from penstock.data.order.protocol import Order
    from penstock.data.reading.iteration import Iterations
    from penstock.data.reading.reading import Reading, Reads
    from penstock.data.reading.runs import Runs
    from penstock.data.shards.format import ShardFormat
    from penstock.data.shards.keys import KeyRule, Missing
    from penstock.source import Source

    Parser = Callable[[BinaryIO], Iterable[Any]]
    Stores = StoreOptions | str | Mapping[str, StoreOptions | str] | None


def _hint(error: Exception) -> str:
    """Return advice on an error of a transform; empty for most errors."""
    if isinstance(error, PenstockError):
        return ""
    if isinstance(error, (TypeError, AttributeError)) and ("Sample'" in str(error) or " Sample" in str(error)):
        return "a transform is called with a ps.Sample, the bytes of an object: open it first, PIL.Image.open(sample)"
    if isinstance(error, (OSError, EOFError, SyntaxError, struct.error, zlib.error, zipfile.BadZipFile)):
        return (
            "the bytes are those that the store holds: if the object itself is damaged, "
            'ps.DataLoader(…, on_error="skip") leaves such samples out, logs them and counts them'
        )
    return ""


P = ParamSpec("P")
D = TypeVar("D", bound="CatalogDataset")

_LOADER = ": pass it to ps.DataLoader(dataset, …) or dataset.batched(…)"
_INSTEAD = {
    **dict.fromkeys(("shuffle", "seed", "place", "batch_size", "tail", "drop_last", "collate_fn"), _LOADER),
    **dict.fromkeys(("num_workers", "prefetch", "decode_threads", "pin_memory", "device"), ": it is ps.DataLoader's"),
    **dict.fromkeys(("persistent_workers", "worker_init_fn", "timeout"), ": it is ps.DataLoader's"),
    "versions": ": pass it to ps.Catalog.scan or ps.Catalog.from_shards, save the catalog, and use from_catalog",
    **dict.fromkeys(
        ("sampler", "batch_sampler", "generator"),
        ": ps.DataLoader orders samples and shards them over ranks by itself; see its shuffle, seed and place",
    ),
    **dict.fromkeys(
        ("num_replicas", "rank", "world_size", "num_shards"),
        ": a process finds its rank by itself; to give it, pass place=ps.Place(rank=…, world=…) to ps.DataLoader, or "
        "to an IterableDataset",
    ),
    "prefetch_factor": ": pass prefetch to ps.DataLoader",
    "columns": ": pass fields=, the names of the columns of Parquet files, too",
    "endpoint_url": ": pass store=ps.S3Options(endpoint=…)",
}


def constructor(
    find: Callable[Concatenate[type[D], P], Catalog], inner: Callable[..., Catalog] | None = None
) -> Callable[Concatenate[type[D], P], D]:
    """Turn ``find``, a function that returns a catalog, into a constructor with the same signature.

    Arguments of the class's ``__init__`` are passed to ``__init__``, and arguments of ``find`` to ``find``. A
    subclass's ``__init__`` may take more arguments than ``find`` names, or fewer. The arguments are checked before
    ``find`` is called, so that an invalid one costs no request. With ``inner``, ``find`` is only a signature, and
    ``inner`` is called. Without a docstring, ``find`` has that of the base class's constructor, and the arguments that
    it adds are those of its class.
    """
    explicit = inspect.signature(find)
    called = inner or find
    takes = inspect.signature(called).parameters

    @wraps(find)
    def construct(cls: type[D], /, *args: P.args, **arguments: P.kwargs) -> D:
        shared = {name: value for name, value in arguments.items() if name in explicit.parameters}
        own = _own_arguments(cls, find.__name__, arguments, explicit.parameters)
        _bind(cls, find.__name__, explicit, cls, *args, **shared)
        # A subclass with its own ``__init__`` may give the arguments another meaning.
        if _definer(cls, "__init__") is _definer(cls, "_check_arguments"):
            cls._check_arguments(**own)
        given = {name: value for name, value in shared.items() if name in takes}
        return cls(called(cls, *args, **given), **own)  # type: ignore[arg-type]

    if not find.__doc__:
        construct.__doc__ = _extend_docstring(find.__qualname__.partition(".")[0], find.__name__, explicit)
    construct.__signature__ = explicit.replace(return_annotation="Self")  # type: ignore[attr-defined]
    return construct


def repeat_constructor(find: Callable[Concatenate[type[D], P], Catalog]) -> Callable[Concatenate[type[D], P], D]:
    """Return the base class's constructor of the same name, with the signature of ``find``."""
    return constructor(find, inspect.unwrap(getattr(CatalogDataset, find.__name__).__func__))


def _extend_docstring(kind: str, name: str, signature: inspect.Signature) -> str:
    """Return the docstring of the base class's constructor, with the arguments that only ``signature`` has."""
    text = inspect.getdoc(getattr(CatalogDataset, name)) or ""
    first = "    transform: As for the class.\n"
    more = [each for each in signature.parameters if each != "cls" and f"\n    {each}: " not in text]
    described = "".join(f"    {each}: As for the class.\n" for each in more)
    return text.replace("ps.MapDataset", f"ps.{kind}").replace(first, first + described)


def _own_arguments(
    cls: type[Any], name: str, arguments: Mapping[str, Any], explicit: Collection[str]
) -> dict[str, Any]:
    """Return the given arguments that ``cls.__init__`` takes; raise TypeError for others, and for missing ones."""
    takes = _parameters(cls)
    own = {each: value for each, value in arguments.items() if each in takes}
    for each in arguments:
        if each not in takes and each not in explicit:
            hint = _instead(each) or suggest_word(each, (*takes, *explicit))
            raise TypeError(f"{cls.__name__}.{name}() got an unexpected keyword argument {each!r}{hint}")
    _bind(cls, name, inspect.signature(cls.__init__), None, None, **own)
    return own


def _bind(cls: type[Any], name: str, signature: inspect.Signature, /, *args: object, **arguments: object) -> None:
    try:
        signature.bind(*args, **arguments)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}.{name}(): {error}") from None


def _parameters(cls: type[Any]) -> set[str]:
    """Return the names of the keyword arguments of ``cls``; a ``**`` parameter adds those of the next base class."""
    names: set[str] = set()
    for kind in cls.__mro__:
        if "__init__" in vars(kind):
            parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
            names.update(
                each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
            )
            if not any(each.kind is each.VAR_KEYWORD for each in parameters):
                break
    return names - {"self", "catalog"}


def _definer(cls: type[Any], name: str) -> type[Any]:
    return next(kind for kind in cls.__mro__ if name in vars(kind))


def _instead(name: str) -> str:
    for options in (StoreOptions, S3Options):
        if name in {each.name for each in fields(options)}:
            return f": it is an option of the store, store=ps.{options.__name__}({name}=…)"
    return _INSTEAD.get(name, "")


def make_url_catalog(urls: Iterable[str | os.PathLike[str]], *, labels: Rule | None, allow_empty: bool) -> Catalog:
    check_rule(labels)
    if isinstance(urls, (str, bytes, os.PathLike)):
        raise InvalidURL(
            "from_objects takes a list of URLs, one for each object; from_prefix lists the objects below one URL",
            url=str(urls),
        )
    if not isinstance(urls, Iterable):
        raise InvalidURL(f"from_objects takes a list of URLs, one for each object, got {kind_of(urls)}")
    allow_empty = switch(allow_empty, "allow_empty")
    locations = [parse(url) for url in urls]
    if not locations:
        if not allow_empty:
            raise NotFound("the list of objects is empty; pass allow_empty=True to allow this")
        return _apply_labels(Catalog.build("memory://empty/", "", ()), labels)
    first = locations[0]
    stray = next((location.url for location in locations if location.root != first.root), "")
    if stray:
        raise InvalidURL(f"not in {first.root}: make a dataset per bucket", url=stray)
    return _apply_labels(Catalog.build(first.root, "", (Entry(location.key) for location in locations)), labels)


def _apply_labels(catalog: Catalog, labels: Rule | None) -> Catalog:
    return catalog if labels is None else catalog.with_labels(labels)


# What other libraries call on a dataset.
_ELSEWHERE = {
    "map": "pass transform=",
    "filter": "take the samples of a catalog: MapDataset(dataset.catalog.filter(include=…))",
    "batch": "write ps.DataLoader(dataset, batch_size)",
    "shuffle": "write ps.DataLoader(dataset, batch_size, shuffle=True)",
    "repeat": "an epoch is a pass of the loader: loop over it again",
    "prefetch": "write ps.DataLoader(…, prefetch=…)",
    "cache": "pass store=ps.StoreOptions(cache=ps.CacheOptions(…))",
    "take": "slice a MapDataset, dataset[:n]",
    "skip": "slice a MapDataset, dataset[n:]",
    **dict.fromkeys(("split", "train_test_split", "random_split"), "write dataset.catalog.split(0.9)"),
    "shard": "ranks and workers share samples automatically",
}


class CatalogDataset(SampleDataset):
    """A dataset over a catalog, with a transform and a store. One listing per job: workers memory-map its result.

    A subclass whose ``__init__`` takes more arguments may repeat the signature of a constructor, for type checkers and
    ``help``: the constructors pass on any argument of ``__init__``.

    Attributes:
        catalog: The samples.
        transform: Function from a ``Sample`` to the yielded value; None: the ``Sample`` itself.
    """

    catalog: Catalog
    transform: Callable[[Sample], Any] | None
    _source: Source
    # How neighbours are read together, in which order; None: each sample by itself.
    _runs: Runs | None = None
    _place: Iterations | None = None
    _homes: Homes

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            explain_attribute(self, name, _ELSEWHERE)

    def __init__(
        self, catalog: Catalog, *, transform: Callable[[Sample], Any] | None = None, store: Stores = None
    ) -> None:
        if not isinstance(catalog, Catalog):
            raise Unusable(
                f"catalog must be a Catalog, got {catalog!r}: from_prefix lists what is below a URL, from_objects "
                "takes a list of URLs, from_manifest a file that names them, from_catalog a saved catalog"
            )
        by_field = isinstance(store, Mapping) and catalog.fields
        for each in store.values() if isinstance(store, Mapping) and by_field else (store,):
            CatalogDataset._check_arguments(transform=transform, store=each)
        self.catalog = catalog
        # A subclass may have a transform as a method.
        own = getattr(self, "transform", None)
        self.transform = own if transform is None else transform
        if catalog.fields:
            self._homes = homes_of(catalog, store)
            self._source = self._homes.sources[0]
        elif not isinstance(store, Mapping):  # see _check
            self._source = open_source(catalog.root + catalog.base, store)[0]

    def __repr__(self) -> str:
        return repr(self.catalog).replace("Catalog", type(self).__name__, 1)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes: ``classes[sample.label]``; () for a catalog without classes."""
        return self.catalog.classes

    @property
    def contents(self) -> Catalog:
        return self.catalog

    @property
    def overrides(self) -> str:
        """The name of the method with which a subclass reads samples; empty for none. See ``MapDataset``."""
        return ""

    def ordered(self, order: Order, iterations: Iterations | None = None) -> Self:
        """Return this dataset, prepared to be read in ``order``: neighbouring samples of shards in one request."""
        runs = None if self.overrides else runs_of(self.catalog, order)
        if runs is None:
            return self
        dataset = copy(self)
        dataset._runs, dataset._place = runs, iterations  # noqa: SLF001  itself
        return dataset

    def reading(self, batches: Iterable[list[int]], workers: int) -> Reading:
        runs = self._together()
        if self.overrides or (runs is None and not self.catalog.fields):
            return ObjectReading(self, batches, workers)
        if runs is None:
            return GroupReading(self, batches, workers)
        kind = RunReading if self.catalog.units is None else UnitReading
        return kind(self._source, runs, batches, workers, self._sample, self._place)

    def _together(self) -> Runs | None:
        """Return how samples are read together: as the order requires; samples in units always by units."""
        in_units = self._runs is None and self.catalog.units is not None
        return runs_of(self.catalog, CatalogOrder()) if in_units else self._runs

    def samples(self, indices: Iterable[int], workers: int) -> Iterator[Any]:
        if self._together() is None and not self.catalog.fields:
            return singles(self, indices, workers)
        return super().samples(indices, workers)

    def url_of(self, index: int) -> str:
        """Return the URL of sample ``index``; in a shard, with its bytes: ``…/a.tar#bytes=512-1023``, or number."""
        catalog = self.catalog
        if catalog.units is not None:
            return unit_url(catalog, index)
        return span_url(catalog.root, catalog.span(index))

    def reads(self, batches: Callable[[], Iterable[list[int]]] | None = None) -> Iterator[Reads]:
        catalog = self.catalog

        def indices() -> Iterable[int]:
            return range(len(catalog)) if batches is None else chain.from_iterable(batches())

        if not catalog.fields:
            units = catalog.units
            yield self._source, catalog.spans(indices()) if units is None else units.fetched([*indices()])
            return
        for number, source in enumerate(self._homes.sources):
            yield source, self._homes.spans(catalog.members(indices()), number)

    def lists(self, batches: Iterable[list[int]], workers: int) -> tuple[Iterator[list[Any]], ReadCounts]:
        if not self.overrides and (self._together() is not None or self.catalog.fields):
            return super().lists(batches, workers)
        counts = ReadCounts()
        return lists(self, batches, workers, counts), counts

    def _sample(self, index: int, span: Span, data: Any) -> Any:  # noqa: ANN401  the transform decides the type
        """Return the yielded value of entry ``index``; add the object's URL as a note to an error of the transform.

        ``data`` is the bytes of the entry; or its unit, decoded, and its number within the unit.
        """
        catalog, repeat = self.catalog, isinstance(index, Repeat)
        if catalog.plain:
            sample = Sample(catalog.root, span, data, None, None, repeat)
        else:
            label, columns = (None, {}) if catalog.unlabelled else (catalog.label(index), catalog.row(index))
            shared = label, columns, repeat
            if type(data) is list:
                sample = grouped_sample(catalog, span, data, shared)
            else:
                sample = made_sample(catalog.root, catalog.format, span, data, shared)
        if self.transform is None:
            return sample
        try:
            return self.transform(sample)
        except StopIteration as error:
            # A StopIteration would silently end the iteration over samples.
            raise RuntimeError(f"the transform of {public_url(sample.url)} raised StopIteration") from error
        except Exception as error:
            error.add_note(f"while transforming {public_url(sample.url)}")
            if hint := _hint(error):
                error.add_note(hint)
            raise

    @classmethod
    @constructor
    def from_prefix(  # noqa: PLR0913  see design/0020
        cls: type[D],
        url: str | os.PathLike[str],
        *,
        transform: Callable[[Sample], Any] | None = None,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
        labels: str | re.Pattern[str] | Callable[[str], str | None] | None = None,
        group: GroupRule | None = None,
        fields: Sequence[str] | None = None,
        missing: Missing = "error",
        allow_empty: bool = False,
        progress: bool | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Return a dataset of all objects whose keys begin with the key of ``url``; one LIST request per 1,000 objects.

        All arguments are checked before the first request.

        Args:
            url: The bucket or prefix.
            transform: As for the class.
            include: Globs over the key below the prefix, of which one must match; default: all objects.
            exclude: Globs of which none may match.
            labels: Rule of classes, such as ``"folder"``: see ``Catalog.with_labels``; default: no labels.
            group: Rule by which several objects make one sample, such as ``"stem"``: see ``Catalog.with_groups``;
                default: each object is a sample.
            fields: Fields of a group to take, such as ``("jpg", "json")``; default: all.
            missing: Treatment of a group that lacks a field: ``"error"`` (default), ``"drop"`` or ``"none"``.
            allow_empty: Accept a prefix without objects.
            progress: Show the number of objects found: see ``Catalog.scan``.
            store: As for the class.

        Raises:
            NotFound: No object is found, and ``allow_empty`` is not set.
            Unusable: An argument is invalid, an object has no label, or a group lacks a field.

        Example:
            >>> dataset = ps.MapDataset.from_prefix("s3://bucket/train/", include="[34]/*.png", labels="folder")
            >>> len(dataset.catalog), dataset.classes
            (120, ('3', '4'))
        """
        return Catalog.scan(
            url,
            include=include,
            exclude=exclude,
            labels=labels,
            group=group,
            fields=fields,
            missing=missing,
            allow_empty=allow_empty,
            progress=progress,
            store=store,
        )

    @classmethod
    @constructor
    def from_objects(
        cls: type[D],
        urls: Iterable[str | os.PathLike[str]],
        *,
        transform: Callable[[Sample], Any] | None = None,
        labels: str | re.Pattern[str] | Callable[[str], str | None] | None = None,
        allow_empty: bool = False,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Return a dataset of the objects at ``urls``, all in one bucket, in the given order.

        Makes no request, so that sizes are not known.

        Args:
            urls: URLs of the objects.
            transform: As for the class.
            labels: Rule of classes: see ``Catalog.with_labels``; the key of an object begins after the bucket.
            allow_empty: Accept an empty list.
            store: As for the class.

        Raises:
            NotFound: ``urls`` is empty, and ``allow_empty`` is not set.
            InvalidURL: ``urls`` is not a list of URLs, or the URLs are not all in one bucket.
            Unusable: An argument is invalid, or an object has no label.

        Example:
            >>> urls = ["s3://bucket/train/3/0000.png", "s3://bucket/train/4/0000.png"]
            >>> [sample.key for sample in ps.MapDataset.from_objects(urls)]
            ['train/3/0000.png', 'train/4/0000.png']
        """
        return make_url_catalog(urls, labels=labels, allow_empty=allow_empty)

    @classmethod
    @constructor
    def from_manifest(  # noqa: PLR0913  see design/0020
        cls: type[D],
        manifest: str | os.PathLike[str],
        *,
        transform: Callable[[Sample], Any] | None = None,
        parser: Parser | None = None,
        base: str | os.PathLike[str] | None = None,
        labels: str | re.Pattern[str] | Callable[[str], str | None] | None = None,
        fields: Sequence[str] | None = None,
        missing: Missing = "error",
        allow_empty: bool = False,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        r"""Return a dataset of the objects that a manifest names.

        A manifest in a store costs one or two requests.

        Args:
            manifest: A file of "key" or "key label" lines, CSV, JSON lines or Parquet. Keys are relative to ``base``,
                or full URLs of the same bucket.
            transform: As for the class.
            parser: Function that reads any other format: it takes the open file and yields entries.
            base: URL below which the keys are; default: the manifest's folder.
            labels: Rule of classes that replaces the manifest's labels: see ``Catalog.with_labels``; its keys begin
                below ``base``.
            fields: Columns that each name an object of one sample, such as ``("image", "mask")``, or with
                ``_file_name`` at their end in the manifest. Default: the columns that end so, if no other names a key.
            missing: Treatment of a row without an object of a field: ``"error"`` (default), ``"drop"`` or
                ``"none"``.
            allow_empty: Accept a manifest without keys.
            store: As for the class.

        Raises:
            ManifestError: A line does not parse (the text has its number), or a key is outside the bucket.
            NotFound: The manifest does not exist, or is empty and ``allow_empty`` is not set.
            Unusable: An argument is invalid, or an object has no label.

        Example:
            >>> with ps.open("list.txt", "w") as file:
            ...     file.write("3/0000.png three\n4/0000.png four\n")
            33
            >>> dataset = ps.MapDataset.from_manifest("list.txt", base="s3://bucket/train/")
            >>> [(sample.key, sample.label) for sample in dataset]
            [('train/3/0000.png', 'three'), ('train/4/0000.png', 'four')]
        """
        if fields is not None or missing != "error":
            check_grouping("stem", fields, missing)
        if fields is not None and parser is not None:
            raise Unusable("fields= and parser= exclude one another: fields= is for a manifest with columns")
        if parser is not None and not callable(parser):
            raise Unusable(f"parser must be a function that reads an open file, got {parser!r}")
        if isinstance(manifest, (list, tuple)):
            raise InvalidURL("from_manifest takes the URL of one manifest; from_objects takes a list of objects")
        check_rule(labels)
        home, key = open_source(manifest, store)
        data = home.read(Span(key))
        folder = parse(manifest).at(key.rpartition("/")[0] + "/" if "/" in key else "")
        below = folder if base is None else parse(base)
        name, place = home.url(key), (below.root, as_folder(below.key))
        wanted = tuple(fields or ()) or (() if parser is not None else manifest_fields(data, name))
        if wanted:
            found = read_groups(data, name, below, wanted, missing)
            catalog = make_catalog(below.root, *named_groups(found, wanted, place))
        elif missing != "error":
            raise Unusable(f"missing={missing!r} is for a manifest that names several objects in a row")
        else:
            catalog = Catalog.build(*place, read_manifest(data, name, below, parser))
        if not (switch(allow_empty, "allow_empty") or len(catalog)):
            raise NotFound("this manifest names no objects; pass allow_empty=True to allow this", url=home.url(key))
        return _apply_labels(catalog, labels)

    @classmethod
    @constructor
    def from_catalog(
        cls: type[D],
        catalog: Catalog | str | os.PathLike[str],
        *,
        transform: Callable[[Sample], Any] | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Return a dataset of a ``Catalog``, without a request, or of the catalog saved at a URL, after verifying it.

        If the file and the objects need different options, or are in different buckets, open the file first with
        ``Catalog.open``.

        Args:
            catalog: A catalog, or the URL of its file.
            transform: As for the class.
            store: As for the class, but not a mapping; also applies to the file of the catalog.

        Raises:
            NotFound: The file does not exist.
            ManifestError: The file is not a catalog, has a newer format, is truncated, or lists objects of another
                bucket.
            ChecksumMismatch: The file has changed since it was written.
            Unusable: An argument is invalid.

        Example:
            >>> ps.Catalog.scan("s3://bucket/train/3/").save("s3://bucket/three.catalog")
            >>> dataset = ps.MapDataset.from_catalog("s3://bucket/three.catalog")
            >>> len(dataset.catalog)
            60
        """
        return catalog if isinstance(catalog, Catalog) else Catalog.open(catalog, store=store)

    @classmethod
    @constructor
    def from_shards(  # noqa: PLR0913  see design/0020
        cls: type[D],
        urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        transform: Callable[[Sample], Any] | None = None,
        format: str | ShardFormat | None = None,  # noqa: A002  the field's word
        fields: str | Sequence[str] | None = None,
        key: KeyRule | None = None,
        missing: Missing | None = None,
        skip: str | Sequence[str] | None = None,
        labels: str | re.Pattern[str] | Callable[[str], str | None] | None = None,
        index: str | None = None,
        allow_empty: bool = False,
        progress: bool | None = None,
        store: StoreOptions | str | None = None,
    ) -> Catalog:
        """Return a dataset of the samples inside shards, such as tar files; nothing is copied or converted.

        The shards are read once to find their samples: see ``Catalog.from_shards``. Save the catalog
        (``dataset.catalog.save(url)``), and ``from_catalog`` starts at once.

        With ``shuffle=True``, each sample takes a separate request, in any order. With ``shuffle=ps.order.Lanes()`` (or
        ``ps.order.BlockShuffle()``), neighbouring samples are read in one request of about 1 MiB and mixed with those
        of 160 others, at a third of the cost; without a shuffle they are read in such requests, too. A sample with
        several fields gives each by its name: ``sample["jpg"]``. Rows of Parquet files are read by row groups, each
        decoded once: only with ``ps.order.Lanes()``, ``ps.order.BlockShuffle()`` or in order.

        Args:
            urls: The shards: a prefix, a glob, a pattern such as ``"s3://bucket/train-{0000..0127}.tar"``, or a list.
            transform: As for the class.
            format: ``"tar"``, ``"zip"``, ``"parquet"``, ``"mds"``, ``"litdata"``, ``"jsonl"``, ``"tfrecord"``; or
                ``"tar.gz"``, ``"jsonl.gz"``, ``"tfrecord.gz"``, which are also for zstd; default: by the ends of the
                names, for which LitData's chunks have none.
            fields: Fields to take: ``("jpg", "cls")``; default: all. A single name, ``"jpg"``: a sample is this field.
            key: Rule by which members form samples: see ``Catalog.from_shards``.
            missing: Treatment of a sample that lacks one of ``fields``: ``"error"`` (default), ``"drop"`` or
                ``"none"``.
            skip: Globs of the names of members that are left out.
            labels: Rule of classes: see ``Catalog.from_shards``.
            index: Side indexes of tar files, ``"energon"``, ``"wds2idx"`` or a URL: see ``Catalog.from_shards``.
            allow_empty: Accept shards without samples.
            progress: Show a bar of shards and their bytes: see ``Catalog.scan``.
            store: As for the class.

        Raises:
            NotFound: No shard was found; or the shards hold no sample, and ``allow_empty`` is False.
            Damaged: A shard contradicts its format, or a sample lacks a field.
            Unsupported: A shard has something that cannot be read by its place.
            Unusable: An argument is invalid, or the format is unknown.

        Example:
            >>> dataset = ps.MapDataset.from_shards("s3://bucket/shards/", fields=("png", "cls"))
            >>> next(iter(dataset))["cls"].read(), len(dataset.catalog)
            (b'0', 600)
        """
        return Catalog.from_shards(
            urls,
            format=format,
            fields=fields,
            key=key,
            missing=missing,
            skip=skip,
            labels=labels,
            index=index,
            allow_empty=allow_empty,
            progress=progress,
            store=store,
        )

    @classmethod
    def _check_arguments(cls, *, transform: object = None, store: object = None) -> None:
        """Refuse arguments that the constructor would refuse, before a catalog is listed or read."""
        if transform is not None and (not callable(transform) or inspect.iscoroutinefunction(transform)):
            raise Unusable(f"transform must be a plain function of a sample, got {transform!r}")
        if store is not None and not isinstance(store, StoreOptions | str):
            message = "store must be options such as ps.S3Options(region=…), or the name of a profile"
            raise Unusable(f"{message}, got {kind_of(store)}")
