"""Common parts of Dataflux's classes: settings, store options, the listing, and the transform of bytes."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.data.catalog.catalog import Catalog, scan_all
from penstock.data.catalog.rows import Entry
from penstock.engine.contracts.credentials import BearerToken
from penstock.errors import MissingExtra, Unusable
from penstock.options import RetryOptions
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.urls import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.data.reading.sample import Sample
    from penstock.options import StoreOptions

_GOOGLE = "https://storage.googleapis.com"
_NO_DEADLINE_S = 1e9


def store_options(storage_client: Any = None, retry: Any = None) -> GCSOptions:
    """Return store options for a ``google.cloud.storage.Client`` and a ``google.api_core.retry.Retry``.

    The client supplies its credentials and its endpoint. Without a client: Google's application default credentials, or
    ``STORAGE_EMULATOR_HOST``. The retry settings supply the deadline, and the first and the longest delay.
    """
    given: dict[str, Any] = {}
    if retry is not None:
        given["retry"] = _retries(retry)
    if storage_client is None:
        return GCSOptions(**given)
    credentials = getattr(storage_client, "_credentials", None)
    endpoint = getattr(getattr(storage_client, "_connection", None), "API_BASE_URL", None)
    if credentials is None or not isinstance(endpoint, str):
        raise Unusable(f"storage_client must be a google.cloud.storage.Client, got {storage_client!r}")
    if endpoint.rstrip("/") != _GOOGLE:
        given["endpoint"] = endpoint
    if type(credentials).__name__ == "AnonymousCredentials":
        return GCSOptions(anonymous=True, **given)
    return GCSOptions(credentials=ClientToken(credentials), **given)


class ClientToken:
    """Source of tokens from a client's credentials, refreshed as the client would. Workers receive the credentials."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def __call__(self) -> BearerToken:
        """Return a valid token. Raise ``MissingExtra`` if it needs a refresh and google-auth is not installed."""
        held = self._credentials
        if not held.valid:
            try:
                from google.auth.transport.requests import Request
            except ImportError as error:
                raise MissingExtra("a client's credentials need google-auth: pip install 'penstock[gcs]'") from error
            held.refresh(Request())
        expires_at = None if held.expiry is None else held.expiry.replace(tzinfo=UTC).timestamp()
        return BearerToken(held.token, expires_at, "storage_client")


def _retries(retry: Any) -> RetryOptions:
    try:
        initial, maximum, timeout = retry._initial, retry._maximum, retry._timeout  # noqa: SLF001  they are not public
    except AttributeError:
        raise Unusable(f"a retry configuration must be a google.api_core.retry.Retry, got {retry!r}") from None
    patience = _NO_DEADLINE_S if timeout is None else timeout
    return RetryOptions(base_s=initial, cap_s=maximum, patience_s=patience)


# Prefix of the composed objects that the original leaves in a bucket.
_COMPOSED = "dataflux-composed-objects/"
_SIZE, _RETRIES = 100_000_000, 3  # the original's defaults


@dataclass(eq=False)
class Config:
    """Settings of a listing. Only ``prefix`` and the retry settings have an effect.

    Objects are always sorted, and never composed; this process lists with parallel requests, each retried separately.

    Attributes:
        prefix: List only objects whose names begin with it; None: the whole bucket.
        list_retry_config: A ``google.api_core.retry.Retry`` for the listing; None: Penstock's own settings.
        download_retry_config: The same for reads.
    """

    sort_listing_results: bool = False
    max_composite_object_size: int = _SIZE
    num_processes: int | None = None
    prefix: str | None = None
    max_listing_retries: int = _RETRIES
    disable_compose: InitVar[bool] = False
    list_retry_config: Any = None
    download_retry_config: Any = None

    def __post_init__(self, disable_compose: bool) -> None:
        """Set the size that the original's loops compare with."""
        if disable_compose:
            self.max_composite_object_size = 0


def data_format_default(data: bytes) -> bytes:
    return data


def _format_sample(data_format_fn: Callable[[bytes], Any], sample: Sample) -> Any:
    return data_format_fn(sample.read())


class Objects(list[tuple[str, int]]):
    """Objects of a dataset as (name, size) pairs, in order; changes to the list change the dataset."""

    changed = False


def _wrap_list_method(name: str) -> Callable[..., Any]:
    change = getattr(list, name)

    def method(self: Objects, *arguments: Any, **options: Any) -> Any:
        self.changed = True
        return change(self, *arguments, **options)

    method.__name__, method.__doc__ = name, change.__doc__
    return method


for _name in (
    *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"),
    *("__delitem__", "__iadd__", "__imul__", "__setitem__"),
):
    setattr(Objects, _name, _wrap_list_method(_name))


def list_bucket(bucket_name: str, config: Config, storage_client: object) -> tuple[Catalog, StoreOptions]:
    """Return the catalog of a bucket, and the store options to read it.

    Directory markers are left out, and so are objects that the original composed, unless ``prefix`` contains a ``/``.
    """
    if not isinstance(config, Config):
        raise Unusable(f"config must be a Config of this package, got {config!r}")
    prefix = config.prefix or ""
    composed = () if "/" in prefix else f"{_COMPOSED}**"
    store = store_options(storage_client, config.list_retry_config)
    url = f"{parse(f'gs://{bucket_name}/').root}{prefix}"
    catalog = scan_all(url, store, exclude=composed)
    return catalog, store_options(storage_client, config.download_retry_config)


class Listed:
    """Mixin of both datasets: the constructor, the arguments as attributes, and the objects as a list."""

    _settings: ClassVar[type[Config]] = Config
    _reading: ClassVar[dict[str, Any]] = {}  # further arguments of Penstock's dataset
    _check_arguments: Callable[..., None]
    _catalog: Catalog
    _objects: Objects | None = None

    def __init__(
        self,
        project_name: str | None,
        bucket_name: str,
        config: Config | None = None,
        data_format_fn: Callable[[bytes], Any] = data_format_default,
        storage_client: Any = None,
    ) -> None:
        """List the bucket: one request for each 1,000 objects, in parallel."""
        self._check_arguments(transform=data_format_fn)
        config = self._settings() if config is None else config
        catalog, store = list_bucket(bucket_name, config, storage_client)
        transform = partial(_format_sample, data_format_fn)
        super().__init__(catalog, transform=transform, store=store, **self._reading)  # type: ignore[call-arg]
        self.project_name = project_name
        self.bucket_name = bucket_name
        self.config = config
        self.data_format_fn = data_format_fn
        self.storage_client = storage_client

    @property
    def catalog(self) -> Catalog:
        if self._objects is not None and self._objects.changed:
            self._choose(self._objects)
        return self._catalog

    @catalog.setter
    def catalog(self, catalog: Catalog) -> None:
        self._catalog, self._objects = catalog, None

    @property
    def objects(self) -> Objects:
        """The objects as (name, size) pairs; to read only some, assign another list or change this one."""
        if self._objects is None:
            self._objects = Objects((each.key, int(each.size)) for each in self._catalog)
        return self._objects

    @objects.setter
    def objects(self, objects: Iterable[tuple[str, int]]) -> None:
        self._choose(objects if isinstance(objects, Objects) else Objects(objects))

    def _choose(self, objects: Objects) -> None:
        # Objects of the listing stay bound to the listed version.
        known = {(each.key, int(each.size)): each for each in self._catalog}
        chosen = [known.get((name, size)) or Entry(name, size) for name, size in objects]
        self._catalog = Catalog.build(self._catalog.root, "", chosen)
        self._objects, objects.changed = objects, False

    @classmethod
    def from_prefix(cls, *_: object, **__: object) -> Any:
        raise Unusable(f"{cls.__name__} has no named constructors: use those of ps.MapDataset and ps.IterableDataset")

    from_objects = from_manifest = from_catalog = from_prefix

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the client, which cannot be pickled; workers receive its credentials."""
        return self.__dict__ | {"_catalog": self.catalog, "_objects": None, "storage_client": None}
