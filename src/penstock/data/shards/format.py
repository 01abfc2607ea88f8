"""The contract of a shard format: two pure functions, from bytes to the places of samples, and to their fields.

Where a sample has no separate bytes, the second function is two: bytes of a unit to samples, and one sample of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from penstock.errors import Bug, Unusable, add_article

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Self

    from numpy.typing import NDArray


class Ask(NamedTuple):
    """A byte range of a shard that a walk needs next, within the size of the shard."""

    start: int
    stop: int


class Units(NamedTuple):
    """The units of one shard whose samples are decoded together, such as row groups; int64 arrays.

    Attributes:
        firsts: Number, within the shard, of the first sample of each unit, ascending from 0: shape (units,).
        decoded: Bytes that each unit takes once decoded, as an estimate: shape (units,).
        ends: Number of ranges of all units up to and with each one: shape (units,).
        starts: First byte of each range, in the order of the units, ascending within a unit: shape (ranges,).
        stops: The byte after each range.
    """

    firsts: NDArray[np.int64]
    decoded: NDArray[np.int64]
    ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


class Extents(NamedTuple):
    """The samples of one shard, in the order of their bytes.

    Attributes:
        offsets: First byte of each sample; with ``units``, the number of each sample in the shard: int64, shape
            (samples,).
        sizes: Bytes of each sample; with ``units``, its share of the unit's bytes: int64, shape (samples,).
        keys: The name of each sample within its shard; empty if the format has no names.
        schema: Values that the shard holds once for all its samples, and that ``ShardFormat.having`` takes; JSON.
        units: The units of samples without bytes of their own; None if each sample has a range.
    """

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    keys: Sequence[str] = ()
    schema: Any = None
    units: Units | None = None


class UnitPiece(NamedTuple):
    """A range of a unit: its first byte in the shard, and its bytes."""

    start: int
    data: memoryview


class InflatedUnit(NamedTuple):
    """The inflated bytes of several samples, and the place of each, and the end of the last."""

    data: memoryview
    places: list[int]

    def sample(self, number: int) -> memoryview:
        return self.data[self.places[number] : self.places[number + 1]]


class Fields(NamedTuple):
    """A sample of several fields: its name in the shard, if any, and their values, a memoryview for bytes."""

    key: str
    values: dict[str, Any]


Walk: TypeAlias = "Generator[Ask, memoryview, Extents]"


@dataclass(frozen=True, slots=True)
class ShardFormat(ABC):
    """A format of shards. A subclass is a frozen dataclass of JSON values, which a catalog file keeps.

    Attributes:
        name: Name for ``format=``.
        suffixes: Ends of the names of its shards, lower-case.
        most_walks: Most shards that are walked at once; fewer where a walk holds a whole shard in memory.
        in_units: Whether samples are in units that are decoded as a whole: see ``UnitFormat``.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    in_units: ClassVar[bool] = False
    most_walks: ClassVar[int] = 32

    @abstractmethod
    def walk(self, size: int) -> Walk:
        """Find the samples of a shard of ``size`` bytes.

        A generator: it yields an ``Ask``, receives exactly these bytes, and returns the extents at the end. It asks for
        no byte twice, and keeps no more than it was given last. Nothing that the bytes say is trusted: sizes and counts
        are compared with ``size`` before memory is allocated for them.

        Raises:
            Damaged: The shard contradicts its format; the text names the member and the offset.
            Unsupported: The shard has contents that cannot be read by ranges; the text says what to do.
        """

    @abstractmethod
    def sample(self, data: memoryview) -> Fields | memoryview:
        """Return the fields of the sample in ``data``, the bytes of its extent; or the bytes of its only field.

        Values are views of ``data`` where possible. Any thread may call it.

        Raises:
            Damaged: The bytes are not those of a sample, or a checksum does not match.
        """

    def having(self, schema: Any) -> Self:  # noqa: ANN401, ARG002  as the format's walk returns it
        """Return this format with the schema of a shard.

        Raises:
            Unusable: The schema does not match that of the shards before.
        """
        return self

    def described(self) -> dict[str, Any]:
        """Return the format as JSON values, for a catalog file.

        Raises:
            Unusable: An argument is a function.
        """
        found: dict[str, Any] = {"name": self.name}
        for each in fields(self):
            value = getattr(self, each.name)
            if callable(value):
                raise Unusable(
                    f"cannot save a catalog of shards with a function as {each.name}=: pass a regular expression"
                )
            found[each.name] = value
        return found


class UnitFormat(ShardFormat):
    """A format whose samples have no separate bytes: a unit of several is fetched and decoded as a whole.

    Its walk returns ``Extents.units``, and no unit without samples.
    """

    in_units: ClassVar[bool] = True

    def sample(self, data: memoryview) -> Fields | memoryview:
        """Raise ``Bug``: samples in units have no separate bytes."""
        raise Bug(f"{len(data)} bytes are not a sample: those of {add_article(self.name)} file have none")

    @abstractmethod
    def decode(self, pieces: list[UnitPiece], first: int) -> Any:  # noqa: ANN401  as the format keeps it
        """Return the decoded unit, from which ``row`` takes single samples; any thread may call it.

        Args:
            pieces: The ranges of the unit, in the order of ``Units.starts``.
            first: Number, within the shard, of its first sample.

        Raises:
            Damaged: The bytes are not those of the unit, a checksum does not match, or they decode to more than is
                plausible.
        """

    @abstractmethod
    def row(self, unit: Any, number: int) -> Fields | memoryview:  # noqa: ANN401  as ``decode`` returns it
        """Return the sample ``number`` of a decoded unit, from 0; any thread may call it.

        Raises:
            Damaged: The sample cannot be made.
        """


def run_walk(walk: Walk, data: memoryview) -> Extents:
    """Return the samples that a walk finds in a file, which is in memory."""
    try:
        ask = next(walk)
        while True:
            ask = walk.send(data[ask.start : ask.stop])
    except StopIteration as end:
        found: Extents = end.value
        return found


def unit_extents(sizes: NDArray[np.int64], unpacked: int, size: int, names: Extents | None = None) -> Extents:
    """Return the extents of a shard of ``size`` bytes that is one unit, with the keys and the schema of ``names``."""
    one = [[0], [unpacked], [1], [0], [size]] if len(sizes) else [[]] * 5
    units = Units(*(np.array(each, dtype=np.int64) for each in one))
    keys, schema = ((), None) if names is None else (names.keys, names.schema)
    return Extents(np.arange(len(sizes), dtype=np.int64), sizes, keys, schema, units)


def extents_of(starts: Sequence[int], stops: Sequence[int], keys: Sequence[str] = ()) -> Extents:
    """Return the extents from ``starts`` to ``stops``, in bytes."""
    offsets = np.array(starts, dtype=np.int64)
    return Extents(offsets, np.array(stops, dtype=np.int64) - offsets, keys)


@dataclass(frozen=True, slots=True)
class FieldsFormat(ShardFormat):
    """A format that takes some fields of its samples.

    Attributes:
        fields: Names of the fields to take; empty: all. A single name as a str: samples are this field alone.
    """

    fields: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _field_names(self.fields))

    @property
    def wanted(self) -> tuple[str, ...]:
        """The fields to take; empty: all."""
        return (self.fields,) if isinstance(self.fields, str) else self.fields


def _field_names(given: object) -> str | tuple[str, ...]:
    """Return the argument ``fields`` of a format, which may come from a file: one name, or a tuple of names."""
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)) or not all(isinstance(each, str) and each for each in names):
        raise Unusable(f"fields must be the name of a field, or several, got {given!r}")
    if len(set(names)) < len(names):
        raise Unusable(f"fields must be different names, got {given!r}")
    return given if isinstance(given, str) else tuple(names)
