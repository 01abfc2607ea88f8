"""Datasets as one by the numbers of their samples: those of the first, then those of the second, and so on."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from copy import copy
from functools import cached_property, partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Self, cast

from penstock.data.datasets.batched import BatchableDataset
from penstock.data.datasets.dataset import CatalogDataset
from penstock.data.order.partition import Repeat
from penstock.data.reading.joint import JointMember, JointReading
from penstock.data.reading.objects import MergedReading
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.data.reading.iteration import Contents
    from penstock.data.reading.joint import Read
    from penstock.data.reading.reading import Reading, Reads
    from penstock.source import Source
    from penstock.values import Span


class JointContents:
    """The identity of the data of several datasets.

    Attributes:
        root: That of the first dataset.
        base: The same.

    """

    def __init__(self, parts: Sequence[Contents]) -> None:
        self.root, self.base = parts[0].root, parts[0].base
        self._parts = tuple(parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the digests of all parts, in order."""
        described = [[len(each), each.digest] for each in self._parts]
        return hashlib.sha256(f"penstock concat 1\n{json.dumps(described)}".encode()).hexdigest()


class JoinedDataset(BatchableDataset):
    """Base class of datasets whose samples are those of several others, each read by its own."""

    parts: Sequence[BatchableDataset]  # the datasets, in order

    def join(self, parts: Sequence[BatchableDataset], lengths: Sequence[int]) -> None:
        self.parts = tuple(parts)
        self._lengths = lengths
        self._bounds = [*accumulate(lengths, initial=0)]
        self._joint = JointContents([each.contents for each in parts if each.contents is not None])

    @property
    def contents(self) -> JointContents | None:
        return self._joint

    @property
    def decodes(self) -> bool:
        return any(each.decodes for each in self.parts)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset().union(*(each.kinds for each in self.parts))

    def collated(self, batch: int) -> tuple[Self, Callable[[list[Any]], Any] | None]:
        """Return this dataset as its samples are collated, and the function that does; torch's if parts differ."""
        if len(self.kinds) > 1:
            raise Unusable(
                f"a batch is one array, and the datasets have {' and '.join(sorted(self.kinds))}: give all the same "
                "length= and output=, or pass collate_fn="
            )
        found = [each.collated(batch) for each in self.parts]
        collate_fn = found[0][1]
        if any(other != collate_fn for _, other in found):
            return self, None
        dataset = copy(self)
        dataset.parts = tuple(part for part, _ in found)
        return dataset, collate_fn

    def reading(self, batches: Iterable[list[int]], workers: int) -> Reading:
        return JointReading(self.members({}), batches, self.split, workers)

    def members(self, own: Mapping[int, Read]) -> list[JointMember]:
        """Return the members of a joint reading: parts whose samples are objects of one store are read together.

        ``own`` has functions that return the reading of a part, for parts that are read by themselves in any case.
        """
        groups: list[list[int]] = []
        stores: list[tuple[Source, list[int]]] = []
        for number, part in enumerate(self.parts):
            source = None if number in own else _find_store(part)
            group = next((group for store, group in stores if source is not None and store.shares(source)), None)
            if group is None:
                groups.append(group := [])
                stores += [] if source is None else [(source, group)]
            group.append(number)
        shares, members = self.portions(), list[JointMember]()
        for group in groups:
            read = own.get(group[0], self.parts[group[0]].reading)
            if len(group) > 1:
                read = partial(MergedReading, {number: cast("CatalogDataset", self.parts[number]) for number in group})
            share = max(1, round(1 / sum(1 / shares[number] for number in group)))
            members.append(JointMember(read, share, tuple(group)))
        return members

    @property
    def transforms(self) -> dict[str, Callable[[Any], Any] | None]:
        named = enumerate(self.parts)
        return {f"{name} of dataset {number}": each for number, part in named for name, each in part.transforms.items()}

    def portions(self) -> list[int]:
        return [1] * len(self.parts)

    def split(self, batch: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the number of each sample's part, and its number in that."""
        bounds = self._bounds
        # Not by numpy, which lets go of the interpreter's lock: getting it back may take 0.1 ms.
        numbers = [bisect_right(bounds, index) - 1 for index in batch]
        indices = [index - bounds[number] for index, number in zip(batch, numbers, strict=True)]
        if Repeat in map(type, batch):
            indices = [
                Repeat(index) if type(given) is Repeat else index for index, given in zip(indices, batch, strict=True)
            ]
        return numbers, indices

    def url_of(self, index: int) -> str:
        [number], [inner] = self.split([index])
        return self.parts[number].url_of(inner)

    def spans(self, batches: Iterable[list[int]] | None = None) -> tuple[Source, Iterator[Span]]:
        """Return the store and the byte spans that the samples need, if all parts lie in one store.

        Raises:
            Unusable: They lie in several.

        """
        kept = None if batches is None else [*batches]
        found = [*self.reads(None if kept is None else lambda: kept)]
        if len({id(source) for source, _ in found}) > 1 and len({source.root for source, _ in found}) > 1:
            raise Unusable("the samples lie in several stores: reads() has the spans of each")
        return found[0][0], chain.from_iterable(spans for _, spans in found)

    def reads(self, batches: Callable[[], Iterable[list[int]]] | None = None) -> Iterator[Reads]:
        for number, part in enumerate(self.parts):
            yield from part.reads(None if batches is None else partial(self._inner, batches, number))

    def _inner(self, batches: Callable[[], Iterable[list[int]]], part: int) -> Iterator[list[int]]:
        for numbers, indices in map(self.split, batches()):
            yield [index for number, index in zip(numbers, indices, strict=True) if number == part]


def _find_store(part: BatchableDataset) -> Source | None:
    """Return the store of a dataset whose samples are read by one request each; None for others."""
    if not isinstance(part, CatalogDataset) or part.overrides or part.catalog.fields:
        return None
    return None if part._together() is not None else part._source  # noqa: SLF001  it has no other user
