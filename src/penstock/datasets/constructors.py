"""How every dataset is opened: from a prefix, a list of objects, a manifest or a catalog."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any, Self

from penstock.catalog.catalog import Catalog, Entry, as_folder
from penstock.catalog.manifest import read_manifest
from penstock.datasets.sample import Sample
from penstock.errors import InvalidURL, NotFound, Unusable
from penstock.order.partition import Repeat
from penstock.providers.urls import parse
from penstock.source import open_source
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import BinaryIO

    from penstock.options import StoreOptions

    Parser = Callable[[BinaryIO], Iterable[Any]]

__all__ = ["CatalogDataset"]


class CatalogDataset:
    """The constructors that map-style and iterable datasets share. One listing per job: workers map its result."""

    def __init__(
        self, catalog: Catalog, *, transform: Callable[[Sample], Any] | None = None, store: StoreOptions | None = None
    ) -> None:
        """Read the catalog's objects; ``transform(sample)`` is what is yielded, the ``Sample`` itself without one."""
        if not isinstance(catalog, Catalog):
            raise Unusable(
                f"a dataset is made of a Catalog, not {catalog!r}: from_prefix lists what is below a URL, from_objects "
                "takes a list of URLs, from_manifest a file that names them, from_catalog a saved catalog"
            )
        _check_transform(transform)
        self.catalog = catalog
        # A subclass may have a transform as a method.
        own = getattr(self, "transform", None)
        self.transform: Callable[[Sample], Any] | None = own if transform is None else transform
        self._source = open_source(catalog.root + catalog.base, store)[0]

    @property
    def overrides(self) -> str:
        """The method of a subclass that reads samples instead of the class's own: see ``MapDataset``."""
        return ""

    @classmethod
    def from_catalog(
        cls,
        catalog: Catalog | str | os.PathLike[str],
        *,
        store: StoreOptions | None = None,
        **options: Any,  # noqa: ANN401  the class's own
    ) -> Self:
        """Take a catalog that is there already, without a request; or the URL of one that was saved.

        ``store`` says how to reach the objects, and the file; when they differ, or lie in different buckets,
        ``Catalog.open`` the file first.

        Raises:
            NotFound: No such file.
            ManifestError: It is no catalog, a newer one, cut short, or its objects lie in another bucket.
            ChecksumMismatch: It has changed since it was written.

        """
        known = catalog if isinstance(catalog, Catalog) else Catalog.open(catalog, store=store)
        return cls(known, store=store, **options)

    @classmethod
    def from_prefix(
        cls,
        url: str | os.PathLike[str],
        *,
        include: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        allow_empty: bool = False,
        store: StoreOptions | None = None,
        **options: Any,  # noqa: ANN401  the class's own
    ) -> Self:
        """List every object whose key begins with the URL's, as ``Catalog.scan`` does."""
        catalog = Catalog.scan(url, include=include, exclude=exclude, allow_empty=allow_empty, store=store)
        return cls(catalog, store=store, **options)

    @classmethod
    def from_objects(
        cls,
        urls: Iterable[str | os.PathLike[str]],
        *,
        allow_empty: bool = False,
        store: StoreOptions | None = None,
        **options: Any,  # noqa: ANN401  the class's own
    ) -> Self:
        """Take objects of one bucket by URL, in the order given; no request, so sizes and versions are not known."""
        if isinstance(urls, (str, bytes, os.PathLike)):
            raise InvalidURL(
                "from_objects takes a list of URLs, one for each object; from_prefix lists what is below one",
                url=str(urls),
            )
        locations = [parse(url) for url in urls]
        if not locations:
            if not allow_empty:
                raise NotFound("an empty list of objects; pass allow_empty=True if that is meant")
            return cls(Catalog.build("memory://empty/", "", ()), store=store, **options)
        first = locations[0]
        stray = next((location.url for location in locations if location.root != first.root), "")
        if stray:
            raise InvalidURL(f"not in {first.root}: make a dataset per bucket", url=stray)
        entries = (Entry(location.key) for location in locations)
        return cls(Catalog.build(first.root, "", entries), store=store, **options)

    @classmethod
    def from_manifest(
        cls,
        manifest: str | os.PathLike[str],
        *,
        parser: Parser | None = None,
        base: str | os.PathLike[str] | None = None,
        allow_empty: bool = False,
        store: StoreOptions | None = None,
        **options: Any,  # noqa: ANN401  the class's own
    ) -> Self:
        """Take the objects a manifest names: "key" or "key label" lines, CSV, JSON lines, Parquet, or your own parser.

        Keys are relative to ``base`` (default: the manifest's own folder) or full URLs of the same bucket. One or two
        requests read a manifest that lies in a store.

        Raises:
            ManifestError: A line that does not parse, with its number; a key outside the bucket.
            NotFound: No manifest, or an empty one without ``allow_empty``.

        """
        if isinstance(manifest, (list, tuple)):
            raise InvalidURL("from_manifest takes the URL of one manifest; from_objects takes a list of objects")
        home, key = open_source(manifest, store)
        data = home.read(Span(key))
        folder = parse(manifest).at(key.rpartition("/")[0] + "/" if "/" in key else "")
        below = folder if base is None else parse(base)
        catalog = Catalog.build(below.root, as_folder(below.key), read_manifest(data, home.url(key), below, parser))
        return cls(catalog if allow_empty else catalog.filled(home.url(key)), store=store, **options)

    def _sample(self, index: int, span: Span, data: bytes) -> Any:  # noqa: ANN401  whatever the transform returns
        """Make what is yielded of entry ``index``; an error of the transform leaves with the object's name on it."""
        sample = Sample(self.catalog.root, span, data, self.catalog.label(index), repeat=isinstance(index, Repeat))
        if self.transform is None:
            return sample
        try:
            return self.transform(sample)
        except StopIteration as error:  # it would end whatever iterates over samples, and nobody would miss the rest
            raise RuntimeError(f"the transform of {sample.url} raised StopIteration") from error
        except Exception as error:
            error.add_note(f"while transforming {sample.url}")
            raise


def _check_transform(transform: object) -> None:
    if transform is not None and (not callable(transform) or inspect.iscoroutinefunction(transform)):
        raise Unusable(f"transform is a plain function of a sample, not {transform!r}")
