"""``read``: the samples of a catalog as a dataset of Ray Data, read by hundreds of requests at once in each task.

1. The driver cuts the catalog into ranges of samples, of about as many bytes each as a block of Ray.
2. A task has the URL of the catalog and its range, or that part of a catalog in memory. Credentials do not travel.
3. It reads its samples in order, ahead of those that it makes, as the datasets of ``ps.DataLoader`` do: so all formats,
   checks and limits are the same. It yields Arrow tables. A task imports no torch, which costs a worker seconds.
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.saved import version_of
from penstock.data.datasets.dataset import CatalogDataset
from penstock.data.order.orders import CatalogOrder
from penstock.data.reading.sample import Sample
from penstock.errors import Changed, Unusable, require_extras
from penstock.verbs import open as open_object

with require_extras("penstock.ray.read needs Ray Data", ray="ray", pyarrow="ray"):
    import pyarrow as pa
    import ray.data
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from penstock.options import StoreOptions

_BLOCK_BYTES = 64 << 20
_BATCH = 64  # samples that are handed over together


def read(
    catalog: Catalog | str | os.PathLike[str],
    *,
    store: StoreOptions | str | None = None,
    **options: Any,  # noqa: ANN401  those of Ray
) -> ray.data.Dataset:
    """Return a dataset of Ray Data with a row for each sample of a catalog: objects, samples inside shards, or groups.

    A row has ``key``, ``bytes`` (for a sample of several fields, a column for each of them instead), ``label`` if the
    catalog has labels, and the columns of the catalog. Transform rows with Ray's ``map`` and ``map_batches``.

    Each task has hundreds of requests in flight, and yields blocks of about 64 MiB. Give the URL of a saved catalog
    rather than a catalog of millions of samples: tasks then open that file, and compare its digest.

    Requests, in each task: those of the file, and those of ``ps.DataLoader`` over the samples in catalog order. A task
    fails with the error of its first sample that fails; with ``Unusable`` where a field or column is named as another.

    Args:
        catalog: A catalog, or the URL of its file.
        store: Options without secrets, or the name of a profile, which every machine has; default: environment and
            profile.
        **options: Arguments of ``ray.data.read_datasource``: ``override_num_blocks``, ``concurrency``, ``num_cpus``.

    Returns:
        The dataset; nothing but the catalog is read yet.

    Raises:
        MissingExtra: Ray Data is not installed.
        NotFound: The file does not exist.

    Example:
        >>> import penstock.ray
        >>> catalog = ps.Catalog.scan("s3://bucket/train/3/")
        >>> source = penstock.ray.CatalogSource(catalog)  # what read(catalog) gives to Ray
        >>> [block.num_rows for task in source.get_read_tasks(2) for block in task()]
        [30, 30]
    """
    found: ray.data.Dataset = ray.data.read_datasource(CatalogSource(catalog, store=store), **options)
    return found


class CatalogSource(Datasource):
    """The samples of a catalog, for ``ray.data.read_datasource``: see ``read``.

    Args:
        catalog: The catalog, or the URL of a saved one.
        store: Options without secrets, or the name of a profile, which every machine has; default: environment and
            profile.

    Example:
        >>> import penstock.ray
        >>> penstock.ray.CatalogSource(ps.Catalog.scan("s3://bucket/train/3/")).get_name()
        'Penstock'
    """

    def __init__(self, catalog: Catalog | str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Ray's
        self._url = None if isinstance(catalog, Catalog) else str(catalog)
        self._store = store
        self._version = "" if self._url is None else _version(self._url, store)
        self._catalog = catalog if isinstance(catalog, Catalog) else Catalog.open(catalog, store=store)

    def get_name(self) -> str:
        """Return the name that Ray shows."""
        return "Penstock"

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the bytes of all samples, None if they are not known."""
        total = self._catalog.total_bytes
        return total if total >= 0 else None

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: object = None,  # noqa: ARG002
    ) -> list[ReadTask]:
        """Return a task for each of ``parallelism`` ranges of samples, fewer of a smaller catalog."""
        total = len(self._catalog)
        count = max(min(parallelism, total), 1)
        borders = [total * number // count for number in range(count + 1)]
        whole_bytes = self.estimate_inmemory_data_size()
        tasks = []
        for start, stop in pairwise(borders):
            size_bytes = None if whole_bytes is None else whole_bytes * (stop - start) // max(total, 1)
            about = BlockMetadata(num_rows=stop - start, size_bytes=size_bytes, input_files=None, exec_stats=None)
            tasks.append(ReadTask(self._read(start, stop), about, per_task_row_limit=per_task_row_limit))
        return tasks

    def _read(self, start: int, stop: int) -> partial[Iterator[pa.Table]]:
        if self._url is None:
            return partial(_blocks, self._catalog[start:stop], self._store)
        return partial(_opened_blocks, self._url, self._store, self._version, start, stop)


def _opened_blocks(
    url: str, store: StoreOptions | str | None, version: str, start: int, stop: int
) -> Iterator[pa.Table]:
    yield from _blocks(_open_catalog_version(url, store, version)[start:stop], store)


@lru_cache(maxsize=2)
def _open_catalog_version(url: str, store: StoreOptions | str | None, version: str) -> Catalog:
    """Return a version of a catalog, which the tasks of a process share."""
    catalog = Catalog.open(url, store=store)
    # After the catalog was read, so that it has no later version.
    if _version(url, store) != version:
        raise Changed("cannot read samples: the catalog was replaced after the dataset was made", url=url)
    return catalog


def _version(url: str, store: StoreOptions | str | None) -> str:
    with open_object(url, "rb", store=store) as file:
        return version_of(file, url)


def _blocks(catalog: Catalog, store: StoreOptions | str | None) -> Iterator[pa.Table]:
    """Yield the samples of a catalog, in order, as tables of about 64 MiB; an empty one without samples."""
    dataset = CatalogDataset(catalog, transform=_row, store=store).ordered(CatalogOrder())
    rows: list[dict[str, Any]] = []
    size_bytes, empty = 0, True
    borders = range(0, len(catalog), _BATCH)
    batches, _ = dataset.lists(([*range(len(catalog))[at : at + _BATCH]] for at in borders), workers=1)
    for batch in batches:
        for row, row_bytes in batch:
            rows.append(row)
            size_bytes += row_bytes
        if size_bytes >= _BLOCK_BYTES:
            yield _make_arrow_table(rows)
            rows, size_bytes, empty = [], 0, False
    if rows or empty:
        yield _make_arrow_table(rows)


def _row(sample: Sample) -> tuple[dict[str, Any], int]:
    """Return the row of a sample, and about how many bytes it has."""
    row: dict[str, Any] = {"key": sample.key}
    size_bytes = sample.size
    values = {name: sample[name] for name in sample.fields} or {"bytes": sample}
    for name, value in values.items():
        _add(row, name, value.data if isinstance(value, Sample) else value)
        size_bytes += value.size if isinstance(value, Sample) else 0
    if sample.label is not None:
        _add(row, "label", sample.label)
    for name, value in sample.columns.items():
        _add(row, name, value)
    return row, size_bytes


def _add(row: dict[str, Any], name: str, value: object) -> None:
    if name in row:
        raise Unusable(f"cannot make a row of a sample: two values are named {name!r}; choose fields=, or rename one")
    row[name] = value


def _make_arrow_table(rows: list[dict[str, Any]]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> pa.Array:
    if any(isinstance(value, memoryview | bytes) for value in values):
        # Not plain binary, whose arrays hold at most 2 GiB.
        return pa.array(values, pa.large_binary())
    return pa.array(values)
