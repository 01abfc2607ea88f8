"""``FrameDataset``: the base class of datasets whose samples are decoded from packets of videos or sound.

``FileDataset`` is that of datasets whose samples are windows of single files.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from penstock.data.catalog.labels import classify_rows
from penstock.data.datasets.windows import WindowDataset
from penstock.data.order.sampling import sample_number
from penstock.data.video.reading import ClipReading, ClipRuns, fit_order, hold_bytes
from penstock.errors import Unusable, add_article

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.data.catalog.columns.column import Column
    from penstock.data.catalog.labels import Rule
    from penstock.data.order.protocol import Order
    from penstock.data.video.frames import Videos
    from penstock.data.video.reading import ClipContents, FileWindows, Held


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


class FileDataset(FrameDataset):
    """Samples that are windows of single files; a subclass sets ``windows``, and says how it is made."""

    windows: Any

    def _take_windows(self, windows: FileWindows, transform: object, kind: type[FileWindows]) -> None:
        name = type(self).__name__
        if not isinstance(windows, kind):
            raise Unusable(f"create {add_article(name)} by {name}.from_shards(urls), got {windows!r}")
        if transform is not None and not callable(transform):
            raise Unusable(f"transform must be a function of a clip, got {transform!r}")
        self.windows = windows
        self.transform = getattr(self, "transform", None) if transform is None else transform

    @property
    def contents(self) -> FileWindows:
        """The windows, whose digest is part of a state."""
        return self.windows  # type: ignore[no-any-return]  # each subclass has windows of another type

    def _select_part(self, first: int, stop: int) -> Self:
        part = copy(self)
        part.windows = self.windows.part(first, stop)
        return part

    def _make_sample(self, sample: int, held: Held) -> Any:  # noqa: ANN401  the transform decides the type
        return self._transform_sample(self.windows.make_clip(sample, held), sample)


def list_urls(urls: Any) -> Any:  # noqa: ANN401  as find_shards takes them
    """Return URLs that can be named twice: an iterator is a list afterwards."""
    if not hasattr(urls, "__iter__") and not isinstance(urls, os.PathLike):
        raise Unusable(f"urls must be a URL or a list of URLs, got {urls!r}")
    return urls if isinstance(urls, (str, os.PathLike, list, set, frozenset)) else [*urls]


def label_files(videos: Videos, rule: Rule | None) -> Column | None:
    """Return the label of each file by its name; None without a rule."""
    if rule is None:
        return None
    names = [key[len(videos.base) :] for key in videos.keys]
    return classify_rows(rule, iter([names]), len(names), None)
