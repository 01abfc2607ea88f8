"""What both of Dataflux's datasets are made of: a bucket that is listed once, and bytes that are formatted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from penstock.catalog.catalog import Catalog, Entry
from penstock.compat.dataflux_pytorch.options import store_options
from penstock.errors import Unusable
from penstock.providers.urls import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.datasets.sample import Sample
    from penstock.options import StoreOptions

__all__ = ["Bytes", "Config", "Listed", "Objects", "data_format_default", "listed"]

_COMPOSED = "dataflux-composed-objects/"  # what the original leaves in a bucket
_SIZE, _RETRIES = 100_000_000, 3  # the original's defaults


class Config:
    """What to list, and how. Only ``prefix`` and the retry settings change anything here.

    Attributes:
        sort_listing_results: Objects are always sorted.
        max_composite_object_size: Nothing is ever composed: nothing is written to the bucket.
        num_processes: The listing goes in parallel requests of this process.
        prefix: List the objects whose names begin with it; None: all of the bucket.
        max_listing_retries: Requests are tried again, each for itself; see ``list_retry_config``.
        list_retry_config: A ``google.api_core.retry.Retry`` for the listing; None: Penstock's own.
        download_retry_config: The same for reads.

    """

    def __init__(  # noqa: PLR0913, PLR0917  the original's signature: design/0036
        self,
        sort_listing_results: bool = False,  # noqa: FBT001, FBT002  the original's
        max_composite_object_size: int = _SIZE,
        num_processes: int | None = None,
        prefix: str | None = None,
        max_listing_retries: int = _RETRIES,
        disable_compose: bool = False,  # noqa: FBT001, FBT002  the original's
        list_retry_config: Any = None,  # noqa: ANN401  an object of google.api_core
        download_retry_config: Any = None,  # noqa: ANN401  the same
    ) -> None:
        """Hold the settings."""
        self.sort_listing_results = sort_listing_results
        self.max_composite_object_size = 0 if disable_compose else max_composite_object_size
        self.num_processes = num_processes
        self.prefix = prefix
        self.max_listing_retries = max_listing_retries
        self.list_retry_config = list_retry_config
        self.download_retry_config = download_retry_config


def data_format_default(data: bytes) -> bytes:
    """Return the bytes themselves."""
    return data


class Bytes:
    """A transform of samples: what formats bytes."""

    def __init__(self, data_format_fn: Callable[[bytes], Any]) -> None:
        """Format with ``data_format_fn``."""
        self._format = data_format_fn

    def __call__(self, sample: Sample) -> Any:  # noqa: ANN401  whatever the function returns
        """Return what the function makes of a sample's bytes."""
        return self._format(sample.read())


class Objects(Sequence[tuple[str, int]]):
    """The objects of a dataset as (name, size) pairs, in order; they take no memory of their own."""

    def __init__(self, catalog: Catalog) -> None:
        """Show a catalog."""
        self._catalog = catalog

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return one pair, or a list of them."""
        if isinstance(index, slice):
            return [*Objects(self._catalog[index])]
        entry = self._catalog[index]
        return entry.key, int(entry.size)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._catalog)

    def __eq__(self, other: object) -> bool:
        """Compare with any sequence of pairs."""
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # as a list's

    def __repr__(self) -> str:
        """Say how many."""
        return f"<{len(self):,} objects below {self._catalog.root}>"


def listed(bucket_name: str, config: Config, storage_client: object) -> tuple[Catalog, StoreOptions]:
    """List a bucket, without directory markers and what the original composed; return how to read it, too."""
    if not isinstance(config, Config):
        raise Unusable(f"config is a Config of this package, not {config!r}")
    prefix = config.prefix or ""
    composed = () if "/" in prefix else f"{_COMPOSED}**"
    store = store_options(storage_client, config.list_retry_config)
    url = f"{parse(f'gs://{bucket_name}/').root}{prefix}"
    catalog = Catalog.scan(url, exclude=composed, allow_empty=True, store=store)
    return catalog, store_options(storage_client, config.download_retry_config)


class Listed:
    """What both datasets have besides being datasets: the arguments as attributes, and the objects as a list."""

    catalog: Catalog

    def hold(self, project_name: str | None, bucket_name: str, config: Config, storage_client: object) -> None:
        """Keep the arguments as the original does."""
        self.project_name = project_name
        self.bucket_name = bucket_name
        self.config = config
        self.storage_client: Any = storage_client

    @property
    def objects(self) -> Objects:
        """The objects as (name, size) pairs; assign a list of some to read only those."""
        return Objects(self.catalog)

    @objects.setter
    def objects(self, objects: Iterable[tuple[str, int]]) -> None:
        chosen = [Entry(name, size) for name, size in objects]
        self.catalog = Catalog.build(self.catalog.root, "", chosen)

    @classmethod
    def from_prefix(cls, *_: object, **__: object) -> Any:  # noqa: ANN401  it returns nothing
        """Refuse: the original has no such constructor."""
        raise Unusable(f"{cls.__name__} is made by its class: ps.MapDataset and ps.IterableDataset have constructors")

    from_objects = from_manifest = from_catalog = from_prefix

    def __getstate__(self) -> dict[str, Any]:
        """Leave the client behind, which cannot be pickled; its credentials go to workers."""
        return self.__dict__ | {"storage_client": None}
