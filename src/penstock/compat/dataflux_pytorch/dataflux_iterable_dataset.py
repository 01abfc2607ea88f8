"""``dataflux_pytorch.dataflux_iterable_dataset`` over Penstock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.compat.dataflux_pytorch.listing import Bytes, Config, Listed, data_format_default, listed
from penstock.datasets.batched import Batched
from penstock.datasets.iterable import IterableDataset
from penstock.datasets.objects import singles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.order.partition import Tail

__all__ = ["Config", "DataFluxIterableDataset", "data_format_default"]


class DataFluxIterableDataset(Listed, IterableDataset):
    """Yields what ``data_format_fn`` makes of the bytes of each object, by default the bytes, in order, read ahead.

    A loader's workers take one run of the objects each, and every rank yields all, as in the original: assign
    ``objects`` to share them among ranks, or let ``penstock.IterableDataset`` do it.

    Attributes:
        project_name: As given; objects are found without it.
        bucket_name: As given.
        config: As given.
        storage_client: As given; None in workers.

    """

    def __init__(
        self,
        project_name: str | None,
        bucket_name: str,
        config: Config | None = None,
        data_format_fn: Callable[[bytes], Any] = data_format_default,
        storage_client: Any = None,  # noqa: ANN401  a google.cloud.storage.Client
    ) -> None:
        """List the bucket: one request for each 1,000 objects, in parallel.

        Raises:
            PenstockError: The bucket could not be listed.

        """
        self.check_arguments(transform=data_format_fn)
        config = Config() if config is None else config
        catalog, store = listed(bucket_name, config, storage_client)
        super().__init__(catalog, transform=Bytes(data_format_fn), place="unsharded", store=store)
        self.data_format_fn = data_format_fn
        self.hold(project_name, bucket_name, config, storage_client)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # it has no state: a worker's run is its own
        """Begin at the first object, or the first of this worker's run."""
        place, count = self._iterations.place(), len(self.catalog)
        run = -(-count // place.workers)
        rows = range(min(place.worker * run, count), min((place.worker + 1) * run, count))
        return singles(self, rows, place.workers)

    def batched(
        self, batch_size: int, collate_fn: Callable[[list[Any]], Any] | None = None, *, tail: Tail = "short"
    ) -> Batched:
        """Return batches that are formed here: see ``penstock.IterableDataset.batched``."""
        return Batched(self, self._plan(batch_size, tail), self._iterations, collate_fn)
