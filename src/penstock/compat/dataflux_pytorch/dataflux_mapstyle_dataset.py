"""``dataflux_pytorch.dataflux_mapstyle_dataset`` over Penstock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.compat.dataflux_pytorch import listing
from penstock.compat.dataflux_pytorch.listing import Bytes, Listed, data_format_default, list_bucket
from penstock.data.datasets.map import MapDataset

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Config", "DataFluxMapStyleDataset", "data_format_default"]


class Config(listing.Config):
    """Settings of a listing: see ``listing.Config``.

    Attributes:
        threads_per_process: No effect: a batch is read with all its requests in flight.

    """

    def __init__(
        self,
        sort_listing_results: bool = False,
        max_composite_object_size: int = 100_000_000,
        num_processes: int | None = None,
        prefix: str | None = None,
        max_listing_retries: int = 3,
        threads_per_process: int = 1,
        disable_compose: bool = False,
        list_retry_config: Any = None,
        download_retry_config: Any = None,
    ) -> None:
        super().__init__(
            sort_listing_results,
            max_composite_object_size,
            num_processes,
            prefix,
            max_listing_retries,
            disable_compose,
            list_retry_config,
            download_retry_config,
        )
        self.threads_per_process = threads_per_process


class DataFluxMapStyleDataset(Listed, MapDataset):
    """Map-style dataset: ``dataset[i]`` is ``data_format_fn(data)`` for the bytes of object ``i``.

    By default the bytes themselves are returned. The bucket is listed when the dataset is created. A DataLoader's batch
    is read with all its requests in flight; ``penstock.DataLoader`` accepts this dataset, too.

    Attributes:
        project_name: As given; not needed to find objects.
        bucket_name: As given.
        config: As given.
        storage_client: As given; None in workers.

    """

    def __init__(
        self,
        project_name: str | None,
        bucket_name: str,
        config: listing.Config | None = None,
        data_format_fn: Callable[[bytes], Any] = data_format_default,
        storage_client: Any = None,
    ) -> None:
        """List the bucket: one request for each 1,000 objects, in parallel."""
        self.check_arguments(transform=data_format_fn)
        config = Config() if config is None else config
        catalog, store = list_bucket(bucket_name, config, storage_client)
        super().__init__(catalog, transform=Bytes(data_format_fn), store=store)
        self.data_format_fn = data_format_fn
        self.hold(project_name, bucket_name, config, storage_client)
