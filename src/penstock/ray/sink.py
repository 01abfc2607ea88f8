"""``write``: the rows of a dataset of Ray Data as shards with their catalog, by the writer of ``ps.pack``.

1. The driver looks at the destination: nothing with the names of shards may be there.
2. A task writes the rows of its blocks into shards, ``shard-000012-000.tar``: named by the task, so another attempt of
   it overwrites the files of a killed one. Each shard appears in one step, and is read back.
3. The driver compares the objects with the reports of the tasks, deletes shards that only failed attempts have
   written, and saves the catalog, which makes the shards a dataset.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penstock.data.catalog.catalog import Catalog
from penstock.data.shards.encode import ENCODERS
from penstock.data.shards.registry import format_by
from penstock.engine.contracts.driver import Put
from penstock.errors import NotFound, Unusable, kind_of, require_extras
from penstock.jobs.packing.members import (
    KEY,
    Members,
    Packable,
    PackedMember,
    encode_field,
    is_image,
    once,
    split_member_name,
)
from penstock.jobs.packing.pack import Destination, Packing, PackOptions
from penstock.source import open_source
from penstock.values import as_folder

with require_extras("penstock.ray.write needs Ray Data", ray="ray", pyarrow="ray"):
    import ray.data
    from ray.data.block import BlockAccessor
    from ray.data.datasource import Datasink

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

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
        packing = self._packing(_Rows(blocks, self._rule(), task), there)
        return [*packing.stream(lambda number: f"shard-{task}-{number:03}.{self._form_name}")]

    def on_write_complete(self, write_result: Any) -> None:  # noqa: ANN401  Ray's
        """Compare the shards with the reports, and save the catalog; raise ``NotFound`` without rows."""
        records = sorted(
            (each for found in write_result.write_returns for each in found or ()), key=lambda each: each[0]
        )
        if not records:
            raise NotFound("nothing was written: the dataset has no rows", url=self._url)
        packing = self._packing(_Rows((), self._rule(), ""), self._there())
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

    def _packing(self, rows: _Rows, there: Destination) -> Packing:
        form: ShardFormat = self._rule() if self._form_name in ENCODERS else format_by(self._form_name, (), {})
        return Packing(rows, form, self._options, there)


class _Rows(Members):
    """The rows of blocks, which are read once, in order."""

    def __init__(self, blocks: Iterable[Any], rule: ArchiveFormat, task: str) -> None:
        self._blocks, self._form, self._task = blocks, rule, task
        self.catalog = Catalog.build("memory://rows/", "", [])
        self.rows, self.size_bytes, self.digest = np.zeros(0, np.int64), None, ""

    def read(self, first: int) -> Generator[Packable]:
        for number, row in enumerate(self._rows(), first):
            sample = self._packable(number, row)
            if self.fields is None:
                # Those of later rows must be among them.
                self.fields = tuple(each.field for each in sample.members)
                self.images = sum(map(is_image, self.fields))
            yield sample

    def _rows(self) -> Iterator[dict[str, Any]]:
        for block in self._blocks:
            for batch in BlockAccessor.for_block(block).to_arrow().to_batches(_AT_ONCE):
                yield from batch.to_pylist()

    def _packable(self, number: int, row: dict[str, Any]) -> Packable:
        named = next((name for name in _KEYS if name in row), None)
        given = f"{self._task}{number:09}" if named is None else str(row.pop(named))
        key, members = given, list[PackedMember]()
        if isinstance(data := row.get("bytes"), bytes):
            key, field = split_member_name(self._form, given, "")
            members.append(_member(given, data, field))
            del row["bytes"]
        for name, value in row.items():
            whole, found = f"{key}.{name}", encode_field(value, name, "")
            if found is None:
                continue
            if split_member_name(self._form, whole, "") != (key, name):
                raise Unusable(
                    f"the field {name!r} of the row {given!r} would be read as "
                    f"{split_member_name(self._form, whole, '')[1]!r}: "
                    'rename one of them, or pass another key=, such as key="last-dot"'
                )
            members.append(_member(whole, found, name))
        if not members:
            raise Unusable(f"the row {given!r} has no field: it needs a column in addition to its key")
        return Packable(number, key, members)


def _member(name: str, data: bytes | memoryview, field: str) -> PackedMember:
    return PackedMember(name, len(data), once(data), partial(once, data), field)
