"""``dataflux_pytorch.dataflux_mapstyle_dataset`` over Penstock."""

from __future__ import annotations

from typing import Any

from penstock.compat.dataflux_pytorch import listing
from penstock.compat.dataflux_pytorch.listing import Listed, data_format_default
from penstock.data.datasets.map import MapDataset

__all__ = ["Config", "DataFluxMapStyleDataset", "data_format_default"]


class Config(listing.Config):
    """Settings of a listing: see ``listing.Config``. ``threads_per_process`` has no effect."""

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

    The arguments are attributes; ``storage_client`` is None in workers, and ``project_name`` has no effect.
    """

    _settings = Config
