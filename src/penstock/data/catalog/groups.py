"""Groups: several objects, each of a field, that make one sample.

A grouped table has one row for each sample: the row of its lead, whose name and label are those of the sample. The
objects of the other fields are parts, each with a separate table, whose rows belong to the same samples.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

import numpy as np

from penstock.data.catalog.columns.column import Numbers, encode, list_rows, pack_narrow, taken
from penstock.data.catalog.columns.compact import Derived, compact_keys, derive_keys
from penstock.data.catalog.columns.table import TableBuilder, gather_regions
from penstock.data.catalog.labels import names, quote_some
from penstock.data.catalog.rows import at, span_of
from penstock.data.shards.keys import Missing, called, rule_of
from penstock.errors import Unusable
from penstock.values import check_choice, common_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Rows
    from penstock.data.catalog.columns.compact import Keys
    from penstock.data.catalog.columns.table import Table
    from penstock.values import Span

GroupRule: TypeAlias = "str | Callable[[str], tuple[str, str] | str | None]"
_Rule: TypeAlias = "Callable[[str], tuple[str, str] | None]"

# More are not fields but numbers of objects, and each takes memory for every sample.
_MOST_FIELDS = 1024
# Places for objects, for each object: 8 bytes each while samples are formed.
_SPARSE = 64
# Objects whose fields an error names.
_LOOKED_AT = 1000


class FieldObjects(NamedTuple):
    """The objects of one field.

    Attributes:
        root: URL of their bucket.
        base: The prefix of their keys that is not part of their names.
        table: The objects.
        places: The row of ``table`` of each sample, -1 where it lacks the field; None: the row of the same number.
    """

    root: str
    base: str
    table: Table
    places: Numbers | None = None

    def span(self, row: int) -> Span | None:
        """Return the bytes of the object of the sample ``row``; None if the sample lacks the field."""
        if self.places is not None:
            row = self.places.view[row]
            if row < 0:
                return None
        return span_of(self.table, row)

    def rows(self, samples: Rows) -> NDArray[np.int64]:
        """Return the row of each sample, -1 where it lacks the field."""
        if self.places is not None:
            return taken(self.places.values, samples).astype(np.int64)
        return list_rows(samples)

    def take(self, samples: Rows) -> FieldObjects:
        if self.places is None:
            return self._replace(table=gather_regions(self.table.take(samples)))
        return _part(self, self.rows(samples))

    def plus(self, other: FieldObjects, field: str, samples: tuple[int, int]) -> FieldObjects:
        """Return the objects of both; ``samples`` are the numbers of samples of the two."""
        if self.root != other.root:
            raise Unusable(f"the objects of {field!r} are in {self.root} and {other.root}: use ps.concat")
        places = None
        if self.places is not None or other.places is not None:
            first, second = (each.rows(range(count)) for each, count in zip((self, other), samples, strict=True))
            moved = np.where(second < 0, -1, second + self.table.rows)
            places = pack_narrow(np.concatenate((first, moved)))
        return FieldObjects(
            self.root, common_folder(self.base, other.base), gather_regions(self.table.plus(other.table)), places
        )


def _part(part: FieldObjects, rows: NDArray[np.integer[Any]]) -> FieldObjects:
    """Return the part of samples whose rows in ``part.table`` are given, -1 where they lack the field."""
    there, places = rows >= 0, None
    if not there.all():
        places = pack_narrow(np.where(there, np.cumsum(there, dtype=rows.dtype) - 1, -1))
        rows = rows[there]
    return part._replace(table=gather_regions(part.table.take(rows)), places=places)


@dataclass(frozen=True, slots=True, eq=False)
class FieldGroup:
    """The fields of a grouped table.

    Attributes:
        fields: Names of the fields, in order.
        lead: The field whose objects are the rows of the table itself; "" if no field has an object in every sample.
            The rows of the table then repeat the first object of each sample.
        rule: Rule from a name below the base to the key of its sample; "": the whole name.
        parts: The objects of each field but the lead.
    """

    fields: tuple[str, ...]
    lead: str
    rule: GroupRule
    parts: Mapping[str, FieldObjects]

    def _changed(self, change: Callable[[FieldObjects], FieldObjects]) -> FieldGroup:
        return replace(self, parts={field: change(part) for field, part in self.parts.items()})

    def beside(self, keys: Keys) -> FieldGroup:
        """Return this group with keys of parts derived from keys of samples, where both begin alike."""

        def derived(part: FieldObjects) -> FieldObjects:
            if not self.lead or part.places is not None or isinstance(part.table.keys, Derived):
                return part
            found = derive_keys(keys, part.table.keys)
            return (
                part if found is None else part._replace(table=gather_regions(part.table.having(keys=found), anew=True))
            )

        return self._changed(derived)

    def settled(self, keys: Keys) -> FieldGroup:
        """Return this group, of samples with these keys, without keys that are derived from others."""

        def copied(part: FieldObjects) -> FieldObjects:
            mine = part.table.keys
            if not isinstance(mine, Derived) or mine.origin is keys:
                return part
            return part._replace(table=part.table.having(keys=compact_keys(mine)))

        return self._changed(copied)

    def moved(self, before: Keys, after: Keys) -> FieldGroup:
        """Return this group with keys that were derived from ``before`` derived from ``after``, which are equal."""

        def rooted(part: FieldObjects) -> FieldObjects:
            keys = part.table.keys
            if not isinstance(keys, Derived) or keys.origin is not before or isinstance(after, Derived):
                return part
            return part._replace(table=part.table.having(keys=keys.of(after)))

        return self._changed(rooted)

    def take(self, samples: Rows) -> FieldGroup:
        return self._changed(lambda part: part.take(samples))

    def spread(self, root: str, base: str, table: Table) -> FieldGroup:
        """Return this group without a lead: ``table``, whose rows are below ``base``, becomes a part."""
        if not self.lead:
            return self
        return replace(self, lead="", parts={**self.parts, self.lead: FieldObjects(root, base, bare(table))})

    def plus(self, other: FieldGroup, samples: tuple[int, int]) -> FieldGroup:
        """Return the group of the samples of both; ``samples`` are their numbers."""
        if {*self.fields} != {*other.fields} or self.rule != other.rule or self.lead != other.lead:
            raise Unusable(
                f"the samples have the fields {', '.join(self.fields)} in one catalog and {', '.join(other.fields)} in "
                "the other, or other keys: use ps.concat"
            )
        parts = {field: part.plus(other.parts[field], field, samples) for field, part in self.parts.items()}
        return replace(self, parts=parts)

    def all(self, root: str, base: str, table: Table) -> tuple[FieldObjects, ...]:
        """Return the part of each field, in order; that of the lead is ``table``, whose rows are below ``base``."""
        lead = FieldObjects(root, base, table)
        return tuple(lead if field == self.lead else self.parts[field] for field in self.fields)

    def sizes(self, table: Table, samples: Rows) -> NDArray[np.int64]:
        """Return the bytes of each sample's objects together, -1 where one is not known: int64."""
        found = np.zeros(len(samples), np.int64)
        unknown = np.zeros(len(samples), bool)
        for part in self.all("", "", table):
            rows = part.rows(samples)
            there = rows >= 0
            sizes = np.zeros(len(samples), np.int64)
            sizes[there] = part.table.sizes.values[rows[there]]
            unknown |= sizes < 0
            found += sizes
        found[unknown | (found < 0)] = -1
        return found

    def check(self, samples: int) -> None:
        """Raise ValueError if the group, which came from a file, does not fit a table of ``samples`` rows."""
        if len({*self.fields}) < len(self.fields) or {*self.fields} - {self.lead} != self.parts.keys():
            raise ValueError("fields without objects, or objects without a field")
        for part in self.parts.values():
            part.table.check()
            rows, of = range(samples) if part.places is None else part.places.values, part.table.rows
            if isinstance(rows, range):
                inside = samples <= of
            elif len(rows) != samples or rows.dtype.kind not in "iu" or rows.dtype == np.uint64:
                raise ValueError("the numbers of objects and samples differ")
            else:
                inside = not samples or (rows.min() >= -1 and rows.max() < of)
            if not inside:
                raise ValueError("samples refer to objects that do not exist")
        if isinstance(self.rule, str) and self.rule:
            key_of(self.rule)


def bare(table: Table) -> Table:
    """Return a table without labels of classes, columns and group, over the same memory."""
    return table.having(classes=None, columns={}, group=None)


def addable(first: FieldObjects, second: FieldObjects) -> tuple[Table, Table]:
    """Return two tables that can be joined: both of groups with the same lead or none."""
    one, two = first.table.group, second.table.group
    if one is None or two is None or first.table is second.table:
        return first.table, second.table
    if first.base != second.base and any(each.rule not in ("", "stem", "folder") for each in (one, two)):
        raise Unusable("the keys of these samples are names below different prefixes: use ps.concat")
    if one.lead == two.lead:
        return first.table, second.table
    return first.table.having(group=one.spread(*first[:3])), second.table.having(group=two.spread(*second[:3]))


def check_grouping(group: object, fields: object, missing: object) -> tuple[str, ...]:
    """Check the arguments of a grouping before anything is listed; return the names of the fields."""
    if group is None:
        check_choice(missing, get_args(Missing), "missing")
        if fields is not None or missing != "error":
            raise Unusable('fields= and missing= are for samples of several objects: pass group=, such as group="stem"')
        return ()
    _choose_rule(group)
    check_choice(missing, get_args(Missing), "missing")
    if fields is None:
        return ()
    if isinstance(fields, str) or not isinstance(fields, Iterable):
        raise Unusable(f'fields must be names of several fields, such as ("jpg", "json"), got {fields!r}')
    found = tuple(fields)
    if not found or not all(isinstance(each, str) and each for each in found) or len({*found}) < len(found):
        raise Unusable(f"fields must be different names, got {found!r}")
    return found


def _choose_rule(group: Any) -> _Rule:  # noqa: ANN401  checked here
    if not isinstance(group, str) and not callable(group):
        raise Unusable(
            f'group must be "stem", "folder", a regular expression with the groups key and field, or a function, got '
            f"{group!r}"
        )
    if group == "stem":
        return rule_of("first-dot")
    if group == "folder":
        return _by_folder
    try:
        return rule_of(group)
    except Unusable as error:
        raise Unusable(str(error).replace("key must be", 'group must be "stem", "folder" or', 1)) from None


def _by_folder(name: str) -> tuple[str, str] | None:
    folder, _, rest = name.rpartition("/")
    return (folder, rest) if folder else None


@lru_cache(maxsize=64)
def key_of(rule: GroupRule) -> Callable[[str], str | None]:
    """Return the function from a name to the key of its sample; None: the rule does not match."""
    if rule == "stem":
        return _stem
    if isinstance(rule, str):
        if rule != "folder" and "(?P<field>" not in rule:
            # A rule of ``Catalog.join``: the field is known.
            rule = f"{rule}(?P<field>)"
        split = _choose_rule(rule)
        return lambda name: None if (found := split(name)) is None else found[0]

    def called(name: str) -> str | None:
        found = rule(name)
        return found if found is None or isinstance(found, str) else found[0]

    return called


def _stem(name: str) -> str | None:
    folder, slash, last = name.rpartition("/")
    stem = last.partition(".")[0]
    return f"{folder}{slash}{stem}" if stem else None


class NamedObjects(NamedTuple):
    """Rows of a table whose keys begin with ``base`` in the bucket ``root``."""

    root: str
    base: str
    table: Table
    rows: Rows

    def blocks(self) -> Iterator[list[str]]:
        """Yield the names of the objects, block by block."""
        return names(self.table, self.rows, len(encode(self.base)))

    def key(self, row: int) -> str:
        return self.table.keys.text(self.table.object(row))

    def name(self, row: int) -> str:
        return self.key(row)[len(self.base) :]


def group_objects(found: NamedObjects, rule: GroupRule, fields: tuple[str, ...], missing: Missing) -> Table:
    """Return the table of the samples that objects make, in the order of the first object of each.

    No ``fields`` are all fields, sorted by name; for ``rule`` and ``missing`` see ``Catalog.with_groups``.
    """
    split = partial(called, rule, argument="group") if callable(rule) else _choose_rule(rule)
    known = {field: number for number, field in enumerate(fields)}
    field, digests = _split_names(found, split, known, rule)
    of, samples = number_keys(digests)
    del digests
    if len(known) * samples > _SPARSE * len(found.rows) + (1 << 20):
        raise Unusable(f"group={rule!r} makes {len(known)} fields, which most samples lack: pass fields=")
    names_of_fields = [*known] if fields else sorted(known)
    places = np.full((len(known), samples), -1, _row_type(found))

    def key_at(sample: int) -> str:
        pair = split(found.name(int(places[:, sample].max())))
        return "" if pair is None else pair[0]

    for name, number in known.items():
        mine, target = of[field[field >= 0] == number], places[names_of_fields.index(name)]
        rows = at(found.rows, np.flatnonzero(field == number))
        target[mine] = rows
        if np.count_nonzero(target >= 0) < len(mine):
            raise _occurs_twice(mine, name, found, rows, key_at)
    places = complete(key_at, places, names_of_fields, missing)
    if missing == "error" or not known:
        _check_some(places, found, split)
    parts = {name: FieldObjects(found.root, found.base, bare(found.table)) for name in names_of_fields}
    return _build_sample_table(found.table, places, parts, rule)


def _split_names(
    found: NamedObjects, split: _Rule, known: dict[str, int], rule: GroupRule
) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return the number of each object's field, -1 for none, and the digests of the keys of the others.

    ``known`` has the numbers of the fields that are taken; if it is empty, all are, and it is filled.
    """
    kinds, strange, salt, count = array("h"), list[str](), token_hex(8), 0
    digests = np.empty((2, len(found.rows)), np.int64)
    number = known.get if known else lambda field: known.setdefault(field, len(known))
    for block in found.blocks():
        keys = list[str]()
        for name in block:
            pair = split(name)
            kind = None if pair is None else number(pair[1])
            kinds.append(-1 if kind is None else kind)
            if pair is None and not callable(rule):
                strange.append(name)
            if pair is not None and kind is not None:
                keys.append(pair[0])
            if len(known) > _MOST_FIELDS:
                raise Unusable(f"group={rule!r} makes more than {_MOST_FIELDS} fields: pass fields=, or another group=")
        digests[:, count : count + len(keys)] = _digest_keys(keys, salt)
        count += len(keys)
    if strange:
        raise Unusable(
            f"{len(strange)} objects have no key and field by group={rule!r}: {quote_some(strange)}; leave them out, "
            f"e.g. with exclude={strange[:1]}"
        )
    return np.frombuffer(kinds, np.int16), digests[:, :count]


def _row_type(*found: NamedObjects) -> type[np.signedinteger[Any]]:
    return np.int32 if all(each.table.rows < 1 << 31 for each in found) else np.int64


def _digest_keys(keys: Sequence[str], salt: str) -> NDArray[np.int64]:
    """Return two hashes of each key: int64, shape (2, keys).

    Keys with the same pair are taken for equal. Of a billion different keys, two have the same pair with a probability
    of 10⁻²⁰; a random ``salt`` makes this hold whatever the keys are.
    """
    found = np.empty((2, len(keys)), np.int64)
    found[0] = np.fromiter(map(hash, keys), np.int64, len(keys))
    found[1] = np.fromiter((hash(salt + key) for key in keys), np.int64, len(keys))
    return found


def _sort_keys(digests: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Sort digests in place; return their former places, ascending for equal ones, and which repeat the one before."""
    order = np.lexsort((digests[1], digests[0]))
    for half in digests:
        half[:] = half[order]
    again = np.zeros(len(order), bool)
    again[1:] = digests[0, 1:] == digests[0, :-1]
    again[1:] &= digests[1, 1:] == digests[1, :-1]
    return order, again


def number_keys(digests: NDArray[np.int64]) -> tuple[NDArray[np.integer[Any]], int]:
    """Return the number of each key, in the order of first occurrence, and how many there are; sorts the digests."""
    order, again = _sort_keys(digests)
    kind: np.dtype[np.integer[Any]] = np.dtype(np.int32 if len(order) < 1 << 31 else np.int64)
    firsts: NDArray[np.int64] = order[~again]
    number, found = np.zeros(len(firsts), kind), np.zeros(len(order), kind)
    number[np.argsort(firsts)] = np.arange(len(firsts), dtype=kind)
    found[order] = number[np.cumsum(~again, dtype=kind) - 1]
    return found, len(firsts)


class KeyIndex:
    """Different keys in the order of their numbers, found by digests, which are sorted in place: 24 bytes a key.

    Attributes:
        twice: The numbers of two equal keys; None if there are none.
    """

    def __init__(self, digests: NDArray[np.int64]) -> None:
        self._digests = digests
        self._order, again = _sort_keys(digests)
        at = int(np.argmax(again)) if again.any() else 0
        self.twice = (int(self._order[at - 1]), int(self._order[at])) if at else None

    def find(self, digests: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each of some keys, -1 for others."""
        found = np.full(digests.shape[1], -1, np.int64)
        # Neighbours are found in the same cache lines.
        asked = np.argsort(digests[0], kind="stable")
        at = np.searchsorted(self._digests[0], digests[0, asked])
        while len(asked):
            inside = at < len(self._order)
            asked, at = asked[inside], at[inside]
            alike = self._digests[0, at] == digests[0, asked]
            asked, at = asked[alike], at[alike]
            same = self._digests[1, at] == digests[1, asked]
            found[asked[same]] = self._order[at[same]]
            # Another key with the same first hash would follow.
            asked, at = asked[~same], at[~same] + 1
        return found


def _check_some(places: NDArray[np.integer[Any]], found: NamedObjects, split: _Rule) -> None:
    if len(found.rows) and not places.size:
        pairs = map(split, islice(chain.from_iterable(found.blocks()), _LOOKED_AT))
        there = quote_some(sorted({pair[1] for pair in pairs if pair is not None}))
        advice = f"fields must be some of those that occur, {there}" if there else "group must return a key"
        raise Unusable(f"none of the {len(found.rows)} objects is in a sample: {advice}")


def _build_sample_table(
    table: Table, places: NDArray[np.integer[Any]], parts: Mapping[str, FieldObjects], rule: GroupRule
) -> Table:
    """Return the table of samples whose objects are the rows ``places`` of each of ``parts``, -1 for none.

    The first field leads, if every sample has it; its rows are those of ``table``.
    """
    fields = tuple(parts)
    lead = fields[0] if fields and (places[0] >= 0).all() else ""
    # The first object of each sample.
    first = places[0] if lead else places[np.argmax(places >= 0, axis=0), np.arange(places.shape[1])]
    kept = {field: _part(parts[field], places[number]) for number, field in enumerate(fields) if field != lead}
    made = gather_regions(table.take(first))
    return made.having(group=FieldGroup(fields, lead, rule, kept).beside(made.keys))


def complete(
    key_at: Callable[[int], str], places: NDArray[np.integer[Any]], fields: Sequence[str], missing: Missing
) -> NDArray[np.integer[Any]]:
    """Return the columns of ``places`` that ``missing`` leaves; ``key_at`` gives the key of a sample for an error."""
    lacking = places < 0
    some: NDArray[np.bool_] = np.any(lacking, axis=0)
    if missing == "error" and some.any():
        at = int(np.argmax(some))
        absent = ", ".join(repr(field) for field, lacks in zip(fields, lacking[:, at], strict=True) if lacks)
        present = ", ".join(field for field, lacks in zip(fields, lacking[:, at], strict=True) if not lacks)
        raise Unusable(
            f"{int(some.sum())} of {len(some)} samples lack a field: {key_at(at)!r} has no {absent}, only "
            f'{present or "none"}; pass missing="drop" or missing="none", or the fields that all have as fields='
        )
    left = ~some if missing == "drop" else ~lacking.all(axis=0)
    return places if left.all() else places[:, left]


def _occurs_twice(
    of: NDArray[np.integer[Any]],
    field: str,
    found: NamedObjects,
    rows: NDArray[np.int64],
    key_at: Callable[[int], str],
) -> Unusable:
    """Return the error for a field whose objects, at ``rows``, belong to the samples ``of``, some to the same."""
    numbers, counts = np.unique(of, return_counts=True)
    twice = int(numbers[np.argmax(counts)])
    both = [found.key(int(row)) for row in rows[of == twice][:2]]
    return Unusable(
        f"the sample {key_at(twice)!r} has the field {field!r} twice: {both[0]!r} and {both[-1]!r} "
        f"({int((counts > 1).sum())} samples have one twice); leave one out (exclude=…), or pass another group="
    )


def key_objects(found: NamedObjects, on: object, field: str) -> Iterator[list[str | None]]:
    """Yield the key of each object by a rule, or as given one by one, block by block."""
    if found.table.units is not None:
        raise Unusable(
            f"the entries of {field!r} are in units that are decoded as a whole (row groups, compressed shards), and "
            "cannot be joined with others"
        )
    if not isinstance(on, str) and isinstance(on, Iterable):
        given: list[Any] = [*on]
        if len(given) != len(found.rows) or not all(each is None or isinstance(each, str) for each in given):
            raise Unusable(f"on= of {field!r} must be one key (a str) for each of its {len(found.rows)} entries")
        yield given
        return
    try:
        rule = key_of(on) if isinstance(on, str) or callable(on) else None
    except Unusable:
        rule = None
    if rule is None:
        raise Unusable(
            'on must be "stem", a regular expression with the group (?P<key>…), a function of the name, or a list of '
            f"keys, got {on!r}"
        )
    lacking = list[str]()
    for block in found.blocks():
        keys = [*map(rule, block)]
        if not callable(on):
            lacking += [name for name, key in zip(block, keys, strict=True) if key is None]
        yield keys
    if lacking:
        raise Unusable(f"{len(lacking)} entries of {field!r} have no key by on={on!r}: {quote_some(lacking)}")


def _digest_objects(
    found: NamedObjects, on: object, field: str, salt: str
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the rows of objects that have a key, and its digest, block by block."""
    start = 0
    for keys in key_objects(found, on, field):
        there = np.fromiter((key is not None for key in keys), bool, len(keys))
        yield (
            at(found.rows, start + np.flatnonzero(there)),
            _digest_keys([key for key in keys if key is not None], salt),
        )
        start += len(keys)


def _index_keys(
    keyed: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]], total: int
) -> tuple[KeyIndex, NDArray[np.int64]]:
    """Return the index of the keys of at most ``total`` objects, given as ``_digest_objects`` does, and their rows."""
    digests, rows, count = np.empty((2, total), np.int64), np.empty(total, np.int64), 0
    for some, found in keyed:
        rows[count : count + len(some)] = some
        digests[:, count : count + len(some)] = found
        count += len(some)
    return KeyIndex(digests[:, :count]), rows[:count]


def _place_objects(
    keyed: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]], index: KeyIndex, places: NDArray[np.integer[Any]]
) -> tuple[int, int, int] | None:
    """Set the row of the object of each key in ``places``; return a key that occurs twice, and its two rows."""
    for found, digests in keyed:
        numbers = index.find(digests)
        rows, numbers = found[numbers >= 0], numbers[numbers >= 0]
        before, order = places[numbers], np.arange(len(rows))
        places[numbers] = order
        # The last of equal keys stays.
        twice = (before >= 0) | (places[numbers] != order)
        if twice.any():
            at = int(np.argmax(twice))
            rest = (before[at] if before[at] >= 0 else rows[places[numbers[at]]]), rows[at]
            return int(numbers[at]), int(rest[0]), int(rest[1])
        places[numbers] = rows
    return None


def join_catalogs(catalogs: Mapping[str, NamedObjects], on: object, missing: Missing) -> Table:
    """Return the table of the samples that entries of several catalogs make: see ``Catalog.join``."""
    fields, salt = [*catalogs], token_hex(8)
    if not isinstance(on, Mapping):
        on = dict.fromkeys(fields, on)
    elif odd := sorted({*map(str, on)} ^ {*fields}):
        raise Unusable(f"on= must have a rule for each field, and {', '.join(odd)} is only in one of the two")
    lead, rule = catalogs[fields[0]], on[fields[0]]
    if isinstance(rule, Iterable) and not isinstance(rule, str):
        # An error reads the keys again.
        rule = [*rule]

    def key_at(sample: int) -> str:
        keys = chain.from_iterable(key_objects(lead, rule, fields[0]))
        return next(islice((key for key in keys if key is not None), sample, None))

    index, first = _index_keys(_digest_objects(lead, rule, fields[0], salt), len(lead.rows))
    places = np.full((len(fields), len(first)), -1, _row_type(*catalogs.values()))
    places[0] = first
    twice = None if index.twice is None else (index.twice[0], *(int(first[at]) for at in index.twice))
    for field, mine in zip(fields, places, strict=True):
        if field != fields[0]:
            twice = _place_objects(_digest_objects(catalogs[field], on[field], field, salt), index, mine)
        if twice is not None:
            both = [catalogs[field].key(row) for row in twice[1:]]
            raise Unusable(f"the key {key_at(twice[0])!r} occurs twice in {field!r}: {both[0]!r} and {both[1]!r}")
    del index
    places = complete(key_at, places, fields, missing)
    if len(first) and not places.size:
        key = key_at(0)
        raise Unusable(f"no key of {fields[0]!r}, such as {key!r}, occurs in all other catalogs: pass another on=")
    parts = {name: FieldObjects(each.root, each.base, bare(each.table)) for name, each in catalogs.items()}
    return _build_sample_table(lead.table, places, parts, rule if isinstance(rule, str) or callable(rule) else "")


def named_groups(
    found: Iterable[tuple[object, Mapping[str, str | None]]], fields: Sequence[str], place: tuple[str, str]
) -> tuple[str, Table]:
    """Return the common base, and the table, of the samples of a manifest, whose rows name an object for each field.

    ``found`` has the label and the full key of each field of each sample, None for a missing one; ``place`` is the URL
    of the bucket, and the base that all keys may have in common.
    """
    root, base = place
    first, inside = TableBuilder(), True
    tables = {field: TableBuilder() for field in fields}
    places = {field: array("q") for field in fields}
    for label, keys in found:
        present = [key for key in keys.values() if key is not None]
        inside = inside and all(key.startswith(base) for key in present)
        first.add(encode(present[0]), -1, "", label)
        for field, key in keys.items():
            places[field].append(-1 if key is None else len(tables[field]))
            if key is not None:
                tables[field].add(encode(key), -1)
    base = base if inside else ""
    lead = fields[0] if len(tables[fields[0]]) == len(first) else ""
    parts = {}
    for field in fields:
        if field != lead:
            given = np.frombuffer(places[field], np.int64)
            parts[field] = FieldObjects(
                root, base, tables[field].freeze(), pack_narrow(given) if (given < 0).any() else None
            )
    made = first.freeze()
    return base, made.having(group=FieldGroup(tuple(fields), lead, "", parts).beside(made.keys))
