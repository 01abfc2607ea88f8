"""Reading of a dataset over a catalog: single objects, groups of them, runs of a shard, or units.

Which of these it is depends on the catalog, and on the order in which the samples are read.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from penstock.data.order.orders import CatalogOrder
from penstock.data.order.partition import Repeat
from penstock.data.reading.groups import GroupReading, Homes, grouped_sample
from penstock.data.reading.objects import ObjectReading, lists, made_sample, singles, span_url
from penstock.data.reading.reading import SampleDataset, in_lists
from penstock.data.reading.runs import RunReading, runs_of
from penstock.data.reading.sample import Sample
from penstock.data.reading.units import UnitReading, unit_url
from penstock.engine.contracts.fetching import ReadCounts
from penstock.errors import PenstockError, Unusable, public_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.data.catalog.catalog import Catalog
    from penstock.data.order.protocol import Order
    from penstock.data.reading.iteration import Iterations
    from penstock.data.reading.reading import Reading, Reads
    from penstock.data.reading.runs import Runs
    from penstock.source import Source
    from penstock.values import Span


class ReadableDataset(SampleDataset):
    """A dataset over a catalog, whose samples are read from one store, or from one for each field of a group.

    Attributes:
        catalog: The samples.
        transform: Function from a ``Sample`` to what the dataset yields; None: the ``Sample`` itself.

    """

    catalog: Catalog
    transform: Callable[[Sample], Any] | None
    _source: Source
    # How neighbours are read together, in which order; None: each sample by itself.
    _runs: Runs | None = None
    _place: Iterations | None = None
    _homes: Homes

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
        """Return how samples are read together: as the order has it; samples in units by units in any case."""
        in_units = self._runs is None and self.catalog.units is not None
        return runs_of(self.catalog, CatalogOrder()) if in_units else self._runs

    def samples(self, indices: Iterable[int], workers: int) -> Iterator[Any]:
        """Return an iterator over samples one by one, transformed on this thread; the first error ends it."""
        if self._together() is None and not self.catalog.fields:
            return singles(self, indices, workers)
        return (each for [each] in in_lists(self.reading(([index] for index in indices), workers)))

    def url_of(self, index: int) -> str:
        """Return the URL of sample ``index``; in a shard, with its bytes: ``…/a.tar#bytes=512-1023``, or number."""
        catalog = self.catalog
        if catalog.units is not None:
            return unit_url(catalog, index)
        return span_url(catalog.root, catalog.span(index))

    def spans(self, batches: Iterable[list[int]] | None = None) -> tuple[Source, Iterator[Span]]:
        """Return the store, and the span of each sample in order: see ``SampleDataset.spans``."""
        if self.catalog.fields and len(self._homes.sources) > 1:
            raise Unusable("the objects of these samples lie in several stores: reads() has the spans of each")
        [found] = self.reads(None if batches is None else lambda: batches)
        return found

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
