"""``ps.pack`` into MDS: samples as rows of columns, and shards that begin with the places of their samples.

1. ``MdsMembers`` takes the samples that are to be packed, and makes the bytes of a row of each. Without ``columns=``,
   the first sample decides the encodings.
2. ``MdsWriting`` keeps the rows of a shard in memory until it is full, since its header says where each of them is.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.data.reading.sample import FieldSample, Sample
from penstock.data.shards.mds import ColumnFormat
from penstock.data.shards.mds_encode import MOST_BYTES, columns_from, encoded_row, encoding_of, header
from penstock.errors import NotFound, Unusable
from penstock.jobs.packing.members import DatasetMembers, Members, Packable, PackedMember, once, split_member_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from penstock.data.shards.keys import ArchiveFormat
    from penstock.data.shards.mds_columns import MDSColumn
    from penstock.jobs.packing.members import Coming
    from penstock.source import Writer

_MEMORY_BYTES = 1 << 30  # of a shard without a limit of bytes: it is in memory


class MdsMembers(Members):
    """Samples of other members, each as a single member, the bytes of its row.

    Attributes:
        columns: Columns of the rows.

    """

    def __init__(self, members: Members, rule: ArchiveFormat, given: Mapping[str, str] | None) -> None:
        """Take the columns ``given``, or read the first sample to find them.

        Raises:
            Unusable: An encoding cannot be written, or there is none for a field.

        """
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
        """Yield the samples from number ``first`` on.

        Raises:
            Unusable: A sample does not fit the columns.

        """
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
                yield Packable(number, key, [PackedMember(key, len(data), once(data), partial(once, data))])


class MdsWriting:
    """The bytes of one MDS shard, and what is known of them once they were written."""

    def __init__(
        self, columns: tuple[MDSColumn, ...], most: tuple[int | None, int | None], count: Callable[[int, int], None]
    ) -> None:
        """Begin an empty shard of at most so many samples, and bytes."""
        self._columns, self._count = columns, count
        self._samples, self._bytes = most
        self.size = 0
        self.sha256 = ""
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    def fill(self, writer: Writer, coming: Coming, first: int) -> None:
        """Write samples from number ``first`` on, as many as the limits allow and at least one."""
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
