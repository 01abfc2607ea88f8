"""A dataset over a catalog: what map-style and iterable datasets share."""

from __future__ import annotations

import inspect
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.catalog.catalog import Catalog
from penstock.datasets.batched import BatchableDataset
from penstock.datasets.objects import ObjectReading, lists
from penstock.datasets.sample import Sample
from penstock.errors import Unusable, public_url
from penstock.options import StoreOptions
from penstock.order.partition import Repeat
from penstock.protocols.fetching import ReadCounts
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.source import Source
    from penstock.values import Span

__all__ = ["CatalogDataset"]


class CatalogDataset(BatchableDataset):
    """A catalog, a transform and a store. One listing per job: workers map its result."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        transform: Callable[[Sample], Any] | None = None,
        store: StoreOptions | str | None = None,
    ) -> None:
        """Read the catalog's objects; ``transform(sample)`` is what is yielded, the ``Sample`` itself without one."""
        if not isinstance(catalog, Catalog):
            raise Unusable(
                f"a dataset is made of a Catalog, not {catalog!r}: from_prefix lists what is below a URL, from_objects "
                "takes a list of URLs, from_manifest a file that names them, from_catalog a saved catalog"
            )
        _check(transform, store)
        self.catalog = catalog
        # A subclass may have a transform as a method.
        own = getattr(self, "transform", None)
        self.transform = own if transform is None else transform
        self._source = open_source(catalog.root + catalog.base, store)[0]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes: ``classes[sample.label]``; () for a catalog without classes."""
        return self.catalog.classes

    @property
    def contents(self) -> Catalog:
        """The catalog."""
        return self.catalog

    @property
    def overrides(self) -> str:
        """The method of a subclass that reads samples instead of the class's own: see ``MapDataset``."""
        return ""

    @classmethod
    def check_arguments(cls, *, transform: object = None, store: StoreOptions | str | None = None) -> None:
        """Refuse what the constructor would refuse, before a catalog is listed or read.

        Raises:
            Unusable: ``transform`` is no plain function, or ``store`` no options.

        """
        _check(transform, store)

    def reading(self, batches: Iterable[list[int]], workers: int) -> ObjectReading:
        """Return the samples of ``batches`` one by one, as their objects are read."""
        return ObjectReading(self, batches, workers)

    def url_of(self, index: int) -> str:
        """Return the URL of sample ``index``; of a range of an object, the object's."""
        return self.catalog.root + self.catalog[index].key

    def spans(self, batches: Iterable[list[int]] | None = None) -> tuple[Source, Iterator[Span]]:
        """Return the store, and the object of each sample in order: see ``BatchableDataset.spans``."""
        indices = range(len(self.catalog)) if batches is None else chain.from_iterable(batches)
        return self._source, self.catalog.spans(indices)

    def lists(self, batches: Iterable[list[int]], workers: int) -> tuple[Iterator[list[Any]], ReadCounts]:
        """Return the samples of each batch as a list, and counts of their reads."""
        counts = ReadCounts()
        return lists(self, batches, workers, counts), counts

    def _sample(self, index: int, span: Span, data: bytes) -> Any:  # noqa: ANN401  whatever the transform returns
        """Make what is yielded of entry ``index``; an error of the transform leaves with the object's name on it."""
        catalog, repeat = self.catalog, isinstance(index, Repeat)
        if catalog.bare:
            sample = Sample(catalog.root, span, data, repeat=repeat)
        else:
            sample = Sample(catalog.root, span, data, catalog.label(index), columns=catalog.row(index), repeat=repeat)
        if self.transform is None:
            return sample
        try:
            return self.transform(sample)
        except StopIteration as error:  # it would end the iteration over samples in silence
            raise RuntimeError(f"the transform of {public_url(sample.url)} raised StopIteration") from error
        except Exception as error:
            error.add_note(f"while transforming {public_url(sample.url)}")
            raise


def _check(transform: object, store: object) -> None:
    if transform is not None and (not callable(transform) or inspect.iscoroutinefunction(transform)):
        raise Unusable(f"transform is a plain function of a sample, not {transform!r}")
    if store is not None and not isinstance(store, StoreOptions | str):
        message = "store is options such as ps.S3Options(region=…), or the name of a profile"
        raise Unusable(f"{message}, not a {type(store).__name__}")
