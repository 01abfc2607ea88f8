"""The common base class of map-style and iterable datasets over a catalog."""

from __future__ import annotations

import inspect
import struct
import zipfile
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.data.catalog.catalog import Catalog
from penstock.data.datasets.batched import BatchableDataset
from penstock.data.datasets.objects import ObjectReading, lists
from penstock.data.datasets.sample import Sample
from penstock.data.order.partition import Repeat
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import PenstockError, Unusable, public_url
from penstock.options import StoreOptions
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.source import Source
    from penstock.values import Span

__all__ = ["CatalogDataset"]


class CatalogDataset(BatchableDataset):
    """A dataset over a catalog, with a transform and a store. One listing per job: workers memory-map its result."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        transform: Callable[[Sample], Any] | None = None,
        store: StoreOptions | str | None = None,
    ) -> None:
        """Make a dataset of ``catalog`` that yields ``transform(sample)``, or the ``Sample`` without a transform."""
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
        """The name of the method with which a subclass reads samples; empty for none. See ``MapDataset``."""
        return ""

    @classmethod
    def check_arguments(cls, *, transform: object = None, store: StoreOptions | str | None = None) -> None:
        """Refuse arguments that the constructor would refuse, before a catalog is listed or read.

        Raises:
            Unusable: ``transform`` is not a plain function, or ``store`` is neither options nor a profile's name.

        """
        _check(transform, store)

    def reading(self, batches: Iterable[list[int]], workers: int) -> ObjectReading:
        """Return the samples of ``batches`` one by one, as their objects are read."""
        return ObjectReading(self, batches, workers)

    def url_of(self, index: int) -> str:
        """Return the URL of sample ``index``; for a range of an object, the URL of the object."""
        return self.catalog.root + self.catalog[index].key

    def spans(self, batches: Iterable[list[int]] | None = None) -> tuple[Source, Iterator[Span]]:
        """Return the store, and the span of each sample in order: see ``BatchableDataset.spans``."""
        indices = range(len(self.catalog)) if batches is None else chain.from_iterable(batches)
        return self._source, self.catalog.spans(indices)

    def lists(self, batches: Iterable[list[int]], workers: int) -> tuple[Iterator[list[Any]], ReadCounts]:
        """Return an iterator over the batches as lists of samples, and the counts of their reads."""
        counts = ReadCounts()
        return lists(self, batches, workers, counts), counts

    def _sample(self, index: int, span: Span, data: bytes) -> Any:  # noqa: ANN401  the transform decides the type
        """Return the yielded value of entry ``index``; add the object's URL as a note to an error of the transform."""
        catalog, repeat = self.catalog, isinstance(index, Repeat)
        if catalog.bare:
            sample = Sample(catalog.root, span, data, repeat=repeat)
        else:
            sample = Sample(catalog.root, span, data, catalog.label(index), columns=catalog.row(index), repeat=repeat)
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


def _check(transform: object, store: object) -> None:
    if transform is not None and (not callable(transform) or inspect.iscoroutinefunction(transform)):
        raise Unusable(f"transform is a plain function of a sample, not {transform!r}")
    if store is not None and not isinstance(store, StoreOptions | str):
        message = "store is options such as ps.S3Options(region=…), or the name of a profile"
        raise Unusable(f"{message}, not a {type(store).__name__}")
