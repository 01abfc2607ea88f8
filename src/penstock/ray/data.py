"""Samples as a dataset of Ray Data, and rows of such a dataset as shards.

``read``: the samples of a catalog, read by hundreds of requests at once in each task.

1. The driver cuts the catalog into ranges of samples, of about as many bytes each as a block of Ray.
2. A task has the URL of the catalog and its range, or that part of a catalog in memory. Credentials do not travel.
3. It reads its samples in order, ahead of those that it makes, as the datasets of ``ps.DataLoader`` do: so all formats,
   checks and limits are the same. It yields Arrow tables. A task imports no torch, which costs a worker seconds.

``write``: the rows of a dataset as shards with their catalog, by the writer of ``ps.pack``.

1. The driver looks at the destination: nothing with the names of shards may be there.
2. A task writes the rows of its blocks into shards, ``shard-000012-000.tar``: named by the task, so another attempt of
   it overwrites the files of a killed one. Each shard appears in one step, and is read back.
3. The driver compares the objects with the reports of the tasks, deletes shards that only failed attempts have
   written, and saves the catalog, which makes the shards a dataset.
"""

from __future__ import annotations

import os
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from penstock.data.catalog.catalog import Catalog
from penstock.data.catalog.saved import version_of
from penstock.data.datasets.dataset import CatalogDataset
from penstock.data.order.orders import CatalogOrder
from penstock.data.reading.sample import Sample
from penstock.data.shards.encode import ENCODERS
from penstock.data.shards.registry import format_by
from penstock.engine.contracts.driver import Put
from penstock.errors import Changed, NotFound, Unusable, kind_of, require_extras
from penstock.jobs.packing.members import KEY, RowMembers
from penstock.jobs.packing.pack import Destination, Packing, PackOptions
from penstock.source import open_source
from penstock.values import as_folder
from penstock.verbs import open as open_object

with require_extras("penstock.ray.read needs Ray Data", ray="ray", pyarrow="ray"):
    import pyarrow as pa
    import ray.data
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

if TYPE_CHECKING:
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


with require_extras("penstock.ray.write needs Ray Data", ray="ray", pyarrow="ray"):
    import ray.data
    from ray.data.block import BlockAccessor
    from ray.data.datasource import Datasink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.data.shards.format import ShardFormat
    from penstock.data.shards.keys import ArchiveFormat, KeyRule
    from penstock.jobs.packing.pack import ShardRecord
    from penstock.options import StoreOptions
    from penstock.source import Source

_FORMATS = ("tar", "zip", "parquet")
_AT_ONCE = 64  # rows that become Python's
_KEYS = ("key", KEY)


def write(  # noqa: PLR0913  the options of ps.pack
    rows: ray.data.Dataset,
    url: str | os.PathLike[str],
    *,
    format: str = "tar",  # noqa: A002  the field's word
    samples: int | None = None,
    bytes: int | None = None,  # noqa: A002  as ps.pack's
    key: KeyRule = "first-dot",
    overwrite: bool = False,
    verify: bool = True,
    concurrency: int | None = None,
    store: StoreOptions | str | None = None,
) -> Catalog:
    """Write the rows of a dataset of Ray Data into shards, with their catalog, ``index.catalog``, and ``pack.json``.

    A row is a sample. Its name is in the column ``key`` or ``__key__``; without one it is numbered. Each other column
    is a field: bytes as they are, text as UTF-8, other values as JSON. A column ``bytes``, as ``penstock.ray.read``
    makes it of objects, has the object that ``key`` names, ``a/001.jpg``.

    Tasks write in parallel, and each ends its last shard: ``samples`` and ``bytes`` are the most of a shard, and Ray
    hands at least as many rows, or bytes, to a task. A shard appears in one step, and is read back and compared. A
    task that is repeated after a failure writes the same names; the catalog, which comes last, has each row once.

    Requests: for each shard those of its upload, of reading it back, and a HEAD; two listings.

    Args:
        rows: The dataset.
        url: Prefix or directory for the shards.
        format: ``"tar"``, ``"zip"`` or ``"parquet"``, as ``ps.pack`` writes them.
        samples: Most samples of a shard.
        bytes: Most bytes of a shard; default: 256 MiB if ``samples`` is not given.
        key: Rule by which names are taken apart: ``"first-dot"`` or ``"last-dot"``.
        overwrite: Delete the shards and the catalog that are there.
        verify: Read each shard back.
        concurrency: The most tasks that write at once; default: as Ray decides.
        store: Options without secrets, or the name of a profile, which every machine has; default: environment and
            profile.

    Returns:
        The catalog of the samples.

    Raises:
        MissingExtra: Ray Data is not installed.
        NotFound: The dataset has no rows.
        AlreadyExists: Shards or a catalog are there, and ``overwrite`` is not set.
        Unusable: ``rows`` is no dataset of Ray Data; an argument is invalid; a row has no field, or a name that could
            not be read again.

    Example:
        >>> import penstock.ray
        >>> sink = penstock.ray.ShardSink("s3://bucket/shards-of-ray/")  # what write(rows, url) gives to Ray
        >>> sink.get_name()
        'Penstock'
    """
    if not isinstance(rows, ray.data.Dataset):
        raise Unusable(f"rows must be a dataset of Ray Data, got {kind_of(rows)}; ps.pack writes those of Penstock")
    sink = ShardSink(
        url, format=format, samples=samples, bytes=bytes, key=key, overwrite=overwrite, verify=verify, store=store
    )
    rows.write_datasink(sink, concurrency=concurrency)
    return sink.catalog()


class ShardSink(Datasink[Any]):
    """Shards with their catalog, for ``ray.data.Dataset.write_datasink``: see ``write``.

    Args:
        url: Prefix or directory for the shards.
        format: ``"tar"``, ``"zip"`` or ``"parquet"``.
        samples: As for ``write``, like the other arguments.
        bytes: Most bytes of a shard.
        key: Rule by which names are taken apart.
        overwrite: Delete the shards and the catalog that are there.
        verify: Read each shard back.
        store: Options without secrets, or the name of a profile.

    Example:
        >>> import penstock.ray
        >>> penstock.ray.ShardSink("s3://bucket/shards-of-ray/", samples=1000).get_name()
        'Penstock'
    """

    def __init__(  # noqa: PLR0913  as write
        self,
        url: str | os.PathLike[str],
        *,
        format: str = "tar",  # noqa: A002  the field's word
        samples: int | None = None,
        bytes: int | None = None,  # noqa: A002  as ps.pack's
        key: KeyRule = "first-dot",
        overwrite: bool = False,
        verify: bool = True,
        store: StoreOptions | str | None = None,
    ) -> None:
        if format not in _FORMATS:
            raise Unusable(
                f"format must be one of {', '.join(map(repr, _FORMATS))}, got {format!r}; ps.pack writes MDS"
            )
        self._form_name, self._store, self._to = format, store, os.fspath(url)
        limits = PackOptions(samples=samples, bytes=bytes, key=key, overwrite=overwrite, verify=verify)
        self._options = limits.limited(format)
        source, folder = self._opened()
        source.require(Put, folder)
        self._url = source.url(folder)
        self._rule().described()  # refuses a function, which no catalog can keep

    def get_name(self) -> str:
        """Return the name that Ray shows."""
        return "Penstock"

    @property
    def min_rows_per_write(self) -> int | None:
        """The minimum of rows per task: a shard's maximum."""
        return self._options.samples

    @property
    def min_bytes_per_write(self) -> int | None:
        """The minimum of bytes per task: a shard's maximum; Ray uses one of both limits."""
        return None if self._options.samples else self._options.bytes

    def catalog(self) -> Catalog:
        """Return the catalog, once everything is written."""
        return Catalog.open(f"{self._url}index.catalog", root=self._url, store=self._store)

    def on_write_start(self, schema: object = None) -> None:  # noqa: ARG002  Ray's
        """Raise ``AlreadyExists`` for shards at the destination, or delete them with ``overwrite``."""
        there = self._there(overwrite=self._options.overwrite)
        if there.found and not there.overwrite:
            raise there.refusal(next(iter(there.found)), "shards or a catalog exist")
        # First what says that they are a dataset.
        there.delete(there.last)
        there.delete([*there.found])

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[tuple[str, ShardRecord]]:  # noqa: ANN401  Ray's context
        """Write the rows of a task.

        Args:
            blocks: The blocks of the task.
            ctx: Its context, which has its number.

        Returns:
            The names and records of its shards.
        """
        there = self._there(only=())
        task = f"{ctx.task_idx:06}"
        packing = self._packing(RowMembers(_rows(blocks), self._rule(), task, _KEYS), there)
        return [*packing.stream(lambda number: f"shard-{task}-{number:03}.{self._form_name}")]

    def on_write_complete(self, write_result: Any) -> None:  # noqa: ANN401  Ray's
        """Compare the shards with the reports, and save the catalog; raise ``NotFound`` without rows."""
        records = sorted(
            (each for found in write_result.write_returns for each in found or ()), key=lambda each: each[0]
        )
        if not records:
            raise NotFound("nothing was written: the dataset has no rows", url=self._url)
        packing = self._packing(RowMembers(iter(()), self._rule(), "", _KEYS), self._there())
        # A task whose result Ray had lost was repeated, or an attempt that was taken for dead went on. Shards that only
        # failed attempts have written are deleted.
        packing.finish([(name, packing.now(name, record)) for name, record in records])

    def on_write_failed(self, error: Exception) -> None:
        """Keep the written shards, without a catalog, for a later ``overwrite``."""

    def _opened(self) -> tuple[Source, str]:
        source, key = open_source(self._to, self._store)
        return source, as_folder(key)

    def _there(self, *, overwrite: bool = True, only: tuple[str, ...] | None = None) -> Destination:
        return Destination(*self._opened(), overwrite=overwrite, only=only)

    def _rule(self) -> ArchiveFormat:
        """Return the format whose rule splits names: tar for Parquet."""
        name = self._form_name if self._form_name in ENCODERS else "tar"
        return cast("ArchiveFormat", format_by(name, (), {"key": self._options.key}))

    def _packing(self, rows: RowMembers, there: Destination) -> Packing:
        form: ShardFormat = self._rule() if self._form_name in ENCODERS else format_by(self._form_name, (), {})
        return Packing(rows, form, self._options, there)


def _rows(blocks: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        for batch in BlockAccessor.for_block(block).to_arrow().to_batches(_AT_ONCE):
            yield from batch.to_pylist()
