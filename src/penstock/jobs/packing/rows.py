"""Rows that ``ps.pack`` writes: of MDS, and of Parquet as Hugging Face's datasets reads it.

MDS: ``MdsMembers`` makes the bytes of a row of each sample; without ``columns=``, the first sample decides the
encodings. ``MdsWriting`` keeps the rows of a shard in memory until it is full, since its header says where each is.

Parquet: ``columns_of`` decides the columns once: by the names of all objects, or by the first sample of a dataset.
``RowWriting`` collects rows until they are a row group of about 8 MiB, which pyarrow encodes and writes. A sample is a
row: ``__key__``, ``image`` (a struct of bytes and path) if no sample has several images, and a column of bytes for each
other field. Nothing depends on times or hosts; pyarrow writes its version into each file.
"""

from __future__ import annotations

import hashlib
import io
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.data.parquet import libraries
from penstock.data.reading.sample import FieldSample, Sample
from penstock.data.shards.mds import ColumnFormat
from penstock.data.shards.mds_encode import MOST_BYTES, columns_from, encoded_row, encoding_of, header
from penstock.errors import Changed, NotFound, Unusable
from penstock.jobs.packing.members import (
    IMAGE,
    KEY,
    Coming,
    DatasetMembers,
    Members,
    Packable,
    PackedMember,
    is_image,
    make_member,
    split_member_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from penstock.data.shards.keys import ArchiveFormat
    from penstock.data.shards.mds_columns import MDSColumn
    from penstock.jobs.packing.members import Bytes
    from penstock.source import Writer

_MEMORY_BYTES = 1 << 30  # of a shard without a limit of bytes: it is in memory
# Of a row group, unless a single row is larger; pyarrow would cut pages after 20,000 rows.
_GROUP_BYTES, _GROUP_ROWS = 8 << 20, 1 << 14
_PAGE_BYTES, _PAGE_STEP = 1 << 20, 16  # pages are cut after so many rows
_MOST_VALUE = 1 << 30  # bytes; a page of Parquet has less than twice as many
_MOST_COLUMNS = 1000
# Bounds of what a row group adds: a page's header, a column's description, and what surrounds a value.
_HEADER_BYTES, _COLUMN_BYTES, _VALUE_BYTES = 64, 320, 16
_TEXTS = {
    *("caption", "cls", "csv", "geojson", "htm", "html", "json", "md", "svg", "text", "tsv", "txt", "xml", "yaml"),
    "yml",
}


class RowColumns(NamedTuple):
    """Columns of a pack, without the key."""

    names: tuple[str, ...]
    single: bool  # the only image of each sample lies in the column ``image``, whatever its suffix

    def column(self, field: str) -> str:
        return IMAGE if self.single and is_image(field) else field

    def schema(self) -> Any:  # noqa: ANN401  pyarrow's
        """Return pyarrow's schema, with the features that datasets reads from the metadata."""
        pa, _ = libraries("a shard")
        image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        kinds = {name: image if is_image(name) else pa.binary() for name in self.names}
        features: dict[str, dict[str, str]] = {KEY: {"dtype": "string", "_type": "Value"}}
        for name in self.names:
            features[name] = {"_type": "Image"} if is_image(name) else {"dtype": "binary", "_type": "Value"}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        return pa.schema([pa.field(KEY, pa.string(), nullable=False), *kinds.items()], metadata=metadata)

    def compression(self) -> dict[str, str]:
        """Return the compression of each leaf: images and other bytes stay uncompressed, to be read in place."""
        found = {KEY: "zstd"}
        for name in self.names:
            if is_image(name):
                found |= {f"{name}.bytes": "none", f"{name}.path": "zstd"}
            else:
                found[name] = "zstd" if name.rpartition(".")[2].lower() in _TEXTS else "none"
        return found


def columns_of(fields: Iterable[str], images: int) -> RowColumns:
    """Return the columns for samples of ``fields``, with at most ``images`` images in one sample."""
    fields = [*fields]
    columns = RowColumns((), images <= 1)
    names = dict.fromkeys(map(columns.column, fields))
    if KEY in names:
        raise Unusable(f"the field {KEY!r} has the name of the column of keys: leave it out, or pack as tar")
    if len(names) > _MOST_COLUMNS:
        shown = ", ".join(map(repr, [*names][:3]))
        raise Unusable(
            f"the samples have more than {_MOST_COLUMNS} fields ({shown}, …), each a separate column: leave "
            "some out (exclude=…), pass another key=, or pack as tar"
        )
    return columns._replace(names=(*names,))


class _Sink(io.RawIOBase):
    """File that pyarrow writes: digested, counted, and handed to the store's writer."""

    def __init__(self, writer: Writer | None) -> None:
        super().__init__()
        self.writer, self.position, self.digest = writer, 0, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def write(self, data: Any) -> int:  # noqa: ANN401  any buffer
        self.position += len(data)
        if self.writer is not None:
            self.digest.update(data)
            self.writer.write(memoryview(data))
        return len(data)


class _WaitingRows:
    """Rows that wait to be written."""

    def __init__(self, columns: RowColumns) -> None:
        self._columns = columns
        self.keys: list[str] = []
        self._values: dict[str, list[bytes | None]] = {name: [] for name in columns.names}
        self._paths: dict[str, list[str | None]] = {name: [] for name in columns.names if is_image(name)}
        self.held = 0  # bytes of values
        self.bound = 0  # of them in the file

    def add(self, sample: Packable, found: dict[str, tuple[str | None, bytes]], bound: int) -> None:
        self.keys.append(sample.key)
        for name, values in self._values.items():
            path, data = found.get(name, (None, None))
            values.append(data)
            self.held += len(data or b"")
            if name in self._paths:
                self._paths[name].append(path)
        self.bound += bound

    def table(self, schema: Any) -> Any:  # noqa: ANN401  pyarrow's
        pa, _ = libraries("a shard")
        arrays = [pa.array(self.keys, pa.string())]
        for name in self._columns.names:
            # Arrow copies the values, column by column.
            data = pa.array(self._values.pop(name), pa.binary())
            if name in self._paths:
                kind, paths = schema.field(name).type, pa.array(self._paths[name], pa.string())
                data = pa.StructArray.from_arrays([data, paths], fields=[*kind], mask=data.is_null())
            arrays.append(data)
        return pa.table(arrays, schema=schema)


class RowWriting:
    """Parquet file that is written by row groups; ``offsets`` has row numbers, ``sizes`` the bytes of values."""

    def __init__(
        self, members: Members, most: tuple[int | None, int | None], count: Callable[[int, int], None]
    ) -> None:
        self._members, self._count = members, count
        self._samples, self._bytes = most
        self._sink = _Sink(None)
        self._groups, self._empty_bytes = 0, 0
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    @property
    def size(self) -> int:
        return self._sink.position

    @property
    def sha256(self) -> str:
        return self._sink.digest.hexdigest()

    def fill(self, writer: Writer, coming: Coming, first: int) -> None:
        coming.seek(first)
        columns = self._columns(coming.peek())
        schema, group = columns.schema(), _WaitingRows(columns)
        self._empty_bytes = self._bytes_of_none(schema, columns)
        self._sink = _Sink(writer)
        out = _open_parquet_writer(self._sink, schema, columns)
        try:
            while (sample := coming.peek()) is not None and not self._full(group, columns, sample):
                self._add(group, columns, sample)
                coming.advance()
                if group.held >= _GROUP_BYTES or len(group.keys) >= _GROUP_ROWS:
                    group = self._written(out, group, schema, columns)
            self._written(out, group, schema, columns)
        except BaseException:
            # pyarrow writes the end whenever its writer is closed, or collected.
            self._sink.writer = None
            out.close()
            raise
        out.close()

    def _columns(self, sample: Packable | None) -> RowColumns:
        """Return the columns; of a dataset those of its first sample, which is ``sample`` or is read again."""
        members = self._members
        if members.fields is not None:
            return columns_of(members.fields, members.images)
        if sample is None or sample.number:
            with closing(members.read(0)) as reading:
                sample = next(reading)
        fields = [each.field for each in sample.members]
        return columns_of(fields, sum(map(is_image, fields)))

    def _bytes_of_none(self, schema: Any, columns: RowColumns) -> int:  # noqa: ANN401  pyarrow's
        sink = _Sink(None)
        _open_parquet_writer(sink, schema, columns).close()
        return sink.position

    def _written(self, out: Any, group: _WaitingRows, schema: Any, columns: RowColumns) -> _WaitingRows:  # noqa: ANN401  pyarrow's
        if group.keys:
            out.write_table(group.table(schema), row_group_size=len(group.keys))
            self._groups += 1
        return _WaitingRows(columns)

    def _full(self, group: _WaitingRows, columns: RowColumns, sample: Packable) -> bool:
        if not self.offsets:
            return False
        if self._samples is not None and len(self.offsets) >= self._samples:
            return True
        if self._bytes is None:
            return False
        leaves = 1 + sum(2 if is_image(name) else 1 for name in columns.names)
        names = sum(len(name.encode()) for name in columns.names)
        around = (self._groups + 1) * (leaves * (_COLUMN_BYTES + _HEADER_BYTES) + 4 * names)
        added = _bound_row_bytes(sample)
        pages = (group.held // _PAGE_BYTES + 1) * _HEADER_BYTES
        return self._sink.position + self._empty_bytes + around + pages + group.bound + added > self._bytes

    def _add(self, group: _WaitingRows, columns: RowColumns, sample: Packable) -> None:
        found: dict[str, tuple[str | None, bytes]] = {}
        for each in sample.members:
            name = columns.column(each.field)
            if name not in columns.names:
                raise Unusable(
                    f"the sample {sample.key!r} has the field {each.field!r}, which the first sample lacks: choose "
                    "fields that all samples have (fields=…), or pack as tar"
                )
            if name in found:
                raise Unusable(
                    f"the sample {sample.key!r} has two images, {each.field!r} besides another, and the first sample "
                    "has one: choose one (fields=…), or pack as tar"
                )
            found[name] = (None if each.field == IMAGE else each.name), _data(each)
        group.add(sample, found, _bound_row_bytes(sample))
        self.offsets.append(len(self.offsets))
        self.sizes.append(sum(each.size for each in sample.members))
        self._count(1, self.sizes[-1])


def _open_parquet_writer(sink: _Sink, schema: Any, columns: RowColumns) -> Any:  # noqa: ANN401  pyarrow's
    pa, parquet = libraries("a shard")
    return parquet.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        schema,
        compression=columns.compression(),
        use_dictionary=False,
        write_statistics=False,
        data_page_size=_PAGE_BYTES,
        write_batch_size=_PAGE_STEP,
    )


def _bound_row_bytes(sample: Packable) -> int:
    """Return the upper bound of the bytes that a sample adds to a file, without compression."""
    sizes = [len(sample.key.encode()), *(each.size + len(each.name.encode()) for each in sample.members)]
    return sum(size + (size >> 7) + _VALUE_BYTES for size in sizes)


def _data(member: PackedMember) -> bytes:
    """Return the bytes of a member; refuse a value that is too long or differs from the listing."""
    if member.size > _MOST_VALUE:
        raise Unusable(
            f"{member.name!r} has {member.size} bytes, and a value in a Parquet file at most {_MOST_VALUE}: leave it "
            "out (exclude=…), or pack as tar"
        )
    pieces: list[Bytes] = [*member.pieces]
    data = bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
    if len(data) != member.size:
        raise Changed(f"{member.name!r} was replaced while it was packed")
    return data


class MdsMembers(Members):
    """Samples with a single member each: the bytes of its row in ``columns``."""

    def __init__(self, members: Members, rule: ArchiveFormat, given: Mapping[str, str] | None) -> None:
        """Take the columns ``given``, or read the first sample to find them."""
        self._members, self._rule = members, rule
        self.catalog, self.source, self.rows = members.catalog, members.source, members.rows
        self.size_bytes = members.size_bytes
        self._chosen = given is not None
        self.columns = self._found() if given is None else columns_from(given)
        self.digest = json.dumps([members.digest, self.columns])

    def _found(self) -> tuple[MDSColumn, ...]:
        form = self.catalog.format
        known = {each.name: each.encoding for each in form.columns} if isinstance(form, ColumnFormat) else {}
        with closing(self._values(0)) as samples:
            for _, _, url, values in samples:
                try:
                    names = {name: encoding_of(name, each, known.get(name, "")) for name, each in values.items()}
                    return columns_from(names)
                except Unusable as error:
                    error.url = error.url or url
                    raise
        raise NotFound("there is nothing to pack: the source has no samples")

    def _values(self, first: int) -> Generator[tuple[int, str, str, dict[str, Any]]]:
        """Yield number, key and URL of each sample, and its values by field."""
        if isinstance(self._members, DatasetMembers):
            with closing(self._members.samples(first)) as samples:
                for number, sample in samples:
                    yield number, sample.key, self._members.url(number), self._fields(sample)
            return
        root = self.catalog.root + self.catalog.base
        with closing(self._members.read(first)) as packables:
            for number, key, members in packables:
                values = {split_member_name(self._rule, each.name, "")[1]: b"".join(each.pieces) for each in members}
                yield number, key, root + members[0].name, values

    def _fields(self, sample: Sample) -> dict[str, Any]:
        if isinstance(sample, FieldSample):
            found = ((name, sample[name]) for name in sample.fields)
            return {name: each.data if isinstance(each, Sample) else each for name, each in found if each is not None}
        if self.catalog.format is None:
            name = sample.key.removeprefix(self.catalog.base)
            return {split_member_name(self._rule, name, sample.url)[1]: sample.data}
        assert isinstance(self._members, DatasetMembers)  # noqa: S101  others have objects
        return {self._members.only_field: sample.data}

    def read(self, first: int) -> Generator[Packable]:
        names = {each.name for each in self.columns}
        with closing(self._values(first)) as samples:
            for number, key, url, values in samples:
                further = next((name for name in values if name not in names), None)
                if further is not None and not self._chosen:
                    raise Unusable(
                        f"the sample has the field {further!r}, which the first sample lacks: pass columns={{…}} with "
                        "those that all samples have, or pack as tar",
                        url=url,
                    )
                try:
                    data = encoded_row(values, self.columns)
                except Unusable as error:
                    error.url = error.url or url
                    raise
                yield Packable(number, key, [make_member(key, data)])


class MdsWriting:
    """Bytes of one MDS shard, with digest and version once written."""

    def __init__(
        self, columns: tuple[MDSColumn, ...], most: tuple[int | None, int | None], count: Callable[[int, int], None]
    ) -> None:
        self._columns, self._count = columns, count
        self._samples, self._bytes = most
        self.size = 0
        self.sha256 = ""
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    def fill(self, writer: Writer, coming: Coming, first: int) -> None:
        coming.seek(first)
        rows: list[bytes] = []
        empty = len(header(self._columns, (), self._bytes))
        total, most = empty, min(self._bytes or _MEMORY_BYTES, MOST_BYTES)
        while (sample := coming.peek()) is not None:
            added = sample.members[0].size + 4
            if rows and (total + added > most or len(rows) == self._samples):
                break
            total += added
            rows += map(bytes, sample.members[0].pieces)
            self._count(1, added - 4)
            coming.advance()
        self.sizes = [*map(len, rows)]
        head, sha256 = header(self._columns, self.sizes, self._bytes), hashlib.sha256()
        self.size = len(head)
        for each in (head, *rows):
            sha256.update(each)
            writer.write(each)
        for size in self.sizes:
            self.offsets.append(self.size)
            self.size += size
        self.sha256 = sha256.hexdigest()
