"""``FrameDataset``: the base class of datasets whose samples are decoded from frames of videos."""

from __future__ import annotations

from abc import abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any, SupportsIndex

from penstock.data.datasets.windows import WindowDataset
from penstock.data.order.sampling import sample_number
from penstock.data.video.reading import ClipReading, ClipRuns, fit_order, hold_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.data.order.protocol import Order
    from penstock.data.video.reading import ClipContents, Held


class FrameDataset(WindowDataset):
    """Samples that are decoded from the bytes of ``ClipContents``."""

    @property
    @abstractmethod
    def contents(self) -> ClipContents:
        """The samples, whose digest is part of a state."""

    @abstractmethod
    def _make_sample(self, sample: int, held: Held) -> Any:  # noqa: ANN401  the transform decides the type
        """Return the yielded value of a sample, from the bytes of its files."""

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Read samples with all requests in flight at once."""
        samples = [sample_number(index, len(self)) for index in indices]
        spans = [self.contents.spans_of(sample, sample + 1) for sample in samples]
        bodies = iter(self.contents.source.read_many([*chain.from_iterable(spans)]))
        held = [hold_bytes(each, [next(bodies) for _ in each]) for each in spans]
        return [*map(self._make_sample, samples, held)]

    def _fit_order(self, shuffle: object) -> Order:
        return fit_order(shuffle, self.contents)

    def _runs_of(self, order: Order) -> ClipRuns:
        return ClipRuns(self.contents, order)

    def reading(self, batches: Iterable[list[int]], workers: int) -> ClipReading:
        """Return the samples of ``batches``, made from runs as these are read: see ``SampleDataset.reading``."""
        return ClipReading(self._in_runs(), batches, workers, self._make_sample, self._place)
