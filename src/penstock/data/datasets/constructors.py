"""Constructors of datasets: check the arguments, then list, read or build a catalog."""

from __future__ import annotations

import inspect
import os
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from penstock.data.catalog.catalog import Catalog, Entry
from penstock.data.catalog.labels import check_rule
from penstock.data.catalog.manifest import read_manifest
from penstock.errors import InvalidURL, NotFound
from penstock.options import StoreOptions
from penstock.source import open_source
from penstock.stores.s3.options import S3Options
from penstock.stores.urls import parse
from penstock.values import Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import BinaryIO

    from penstock.data.catalog.labels import Rule
    from penstock.data.datasets.dataset import CatalogDataset

    Parser = Callable[[BinaryIO], Iterable[Any]]

__all__ = ["Parser", "constructor", "listed", "named", "saved"]

P = ParamSpec("P")
D = TypeVar("D", bound="CatalogDataset")

_LOADER = ": pass it to ps.DataLoader(dataset, …) or dataset.batched(…)"
_INSTEAD = {
    **dict.fromkeys(("shuffle", "seed", "place", "batch_size", "tail", "drop_last", "collate_fn"), _LOADER),
    **dict.fromkeys(("num_workers", "prefetch", "decode_threads", "pin_memory", "device"), ": it is ps.DataLoader's"),
    "sampler": ": ps.DataLoader orders samples and shards them over ranks by itself; see its shuffle and place",
    "prefetch_factor": ": pass prefetch to ps.DataLoader",
    "endpoint_url": ": pass store=ps.S3Options(endpoint=…)",
}


def constructor(find: Callable[Concatenate[type[D], P], Catalog]) -> Callable[Concatenate[type[D], P], D]:
    """Turn ``find``, a function that returns a catalog, into a constructor with the same signature.

    Arguments of the class's ``__init__`` are passed to ``__init__``, and arguments of ``find`` to ``find``. A
    subclass's ``__init__`` may take more arguments than ``find`` names, or fewer. The arguments are checked before
    ``find`` is called, so that an invalid one costs no request.

    Raises:
        TypeError: Neither function takes an argument, or ``__init__`` lacks one that it needs.
        Unusable: ``check_arguments`` refuses an argument.

    """
    explicit = inspect.signature(find)

    @wraps(find)
    def construct(cls: type[D], /, *args: P.args, **arguments: P.kwargs) -> D:
        shared = {name: value for name, value in arguments.items() if name in explicit.parameters}
        own = _own_arguments(cls, find.__name__, arguments, shared)
        _bind(cls, find.__name__, explicit, cls, *args, **shared)
        # A subclass with its own ``__init__`` may give the arguments another meaning.
        if _definer(cls, "__init__") is _definer(cls, "check_arguments"):
            cls.check_arguments(**own)
        return cls(find(cls, *args, **shared), **own)  # type: ignore[arg-type]

    construct.__signature__ = explicit.replace(return_annotation="Self")  # type: ignore[attr-defined]
    return construct


def _own_arguments(
    cls: type[Any], name: str, arguments: Mapping[str, Any], explicit: Collection[str]
) -> dict[str, Any]:
    """Return the given arguments that ``cls.__init__`` takes.

    Raises:
        TypeError: Neither ``__init__`` nor the constructor takes one of them, or ``__init__`` needs a missing one.

    """
    takes = _parameters(cls)
    own = {each: value for each, value in arguments.items() if each in takes}
    for each in arguments:
        if each not in takes and each not in explicit:
            raise TypeError(f"{cls.__name__}.{name}() got an unexpected keyword argument {each!r}{_instead(each)}")
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


def listed(urls: Iterable[str | os.PathLike[str]], *, labels: Rule | None, allow_empty: bool) -> Catalog:
    """Return a catalog of the objects at ``urls`` in one bucket, in this order; no request: see ``from_objects``."""
    if labels is not None:
        check_rule(labels)
    if isinstance(urls, (str, bytes, os.PathLike)):
        raise InvalidURL(
            "from_objects takes a list of URLs, one for each object; from_prefix lists what is below one",
            url=str(urls),
        )
    locations = [parse(url) for url in urls]
    if not locations:
        if not allow_empty:
            raise NotFound("an empty list of objects; pass allow_empty=True if that is meant")
        return _labelled(Catalog.build("memory://empty/", "", ()), labels)
    first = locations[0]
    stray = next((location.url for location in locations if location.root != first.root), "")
    if stray:
        raise InvalidURL(f"not in {first.root}: make a dataset per bucket", url=stray)
    return _labelled(Catalog.build(first.root, "", (Entry(location.key) for location in locations)), labels)


def named(
    manifest: str | os.PathLike[str],
    *,
    parser: Parser | None,
    base: str | os.PathLike[str] | None,
    labels: Rule | None,
    allow_empty: bool,
    store: StoreOptions | str | None,
) -> Catalog:
    """Return the catalog of the objects that a manifest names: see ``from_manifest``."""
    if isinstance(manifest, (list, tuple)):
        raise InvalidURL("from_manifest takes the URL of one manifest; from_objects takes a list of objects")
    if labels is not None:
        check_rule(labels)
    home, key = open_source(manifest, store)
    data = home.read(Span(key))
    folder = parse(manifest).at(key.rpartition("/")[0] + "/" if "/" in key else "")
    below = folder if base is None else parse(base)
    catalog = Catalog.build(below.root, as_folder(below.key), read_manifest(data, home.url(key), below, parser))
    if not (allow_empty or len(catalog)):
        raise NotFound("this manifest names no objects; pass allow_empty=True if that is meant", url=home.url(key))
    return _labelled(catalog, labels)


def _labelled(catalog: Catalog, labels: Rule | None) -> Catalog:
    return catalog if labels is None else catalog.with_labels(labels)


def saved(catalog: Catalog | str | os.PathLike[str], *, store: StoreOptions | str | None) -> Catalog:
    """Return ``catalog`` if it is a ``Catalog``, else open the catalog saved at this URL: see ``from_catalog``."""
    return catalog if isinstance(catalog, Catalog) else Catalog.open(catalog, store=store)
