"""Groups: several objects, each of a field, that make one sample.

A grouped table has one row for each sample: the row of its lead, whose name and label are those of the sample. The
objects of the other fields are parts, each with a separate table, whose rows belong to the same samples.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

import numpy as np

from penstock.data.catalog.columns.column import Numbers, decode, encode, list_rows, pack_narrow, taken
from penstock.data.catalog.columns.compact import Derived, compact_keys, derive_keys
from penstock.data.catalog.columns.table import TableBuilder, gather_regions
from penstock.data.catalog.labels import names, quote_some
from penstock.data.catalog.rows import span_of
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


def _part(part: FieldObjects, rows: NDArray[np.int64]) -> FieldObjects:
    """Return the part of samples whose rows in ``part.table`` are given, -1 where they lack the field."""
    there = rows >= 0
    places = None if there.all() else pack_narrow(np.where(there, np.cumsum(there) - 1, -1))
    return part._replace(table=gather_regions(part.table.take(rows[there])), places=places)


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

    def names(self) -> Iterator[str]:
        for block in names(self.table, self.rows, len(self.base.encode("utf-8", "surrogateescape"))):
            yield from block


def group_objects(found: NamedObjects, rule: GroupRule, fields: tuple[str, ...], missing: Missing) -> Table:
    """Return the table of the samples that objects make, in the order of the first object of each.

    No ``fields`` are all fields, sorted by name; for ``rule`` and ``missing`` see ``Catalog.with_groups``.
    """
    samples, kinds = array("q"), array("q")
    keys: dict[str, int] = {}
    known = {field: number for number, field in enumerate(fields)}
    split = partial(called, rule, argument="group") if callable(rule) else _choose_rule(rule)
    strange = list[str]()
    for name in found.names():
        pair = split(name)
        if pair is None and not callable(rule):
            strange.append(name)
        if pair is None or (fields and pair[1] not in known):
            samples.append(-1)
            kinds.append(-1)
            continue
        samples.append(keys.setdefault(pair[0], len(keys)))
        kinds.append(known.setdefault(pair[1], len(known)))
        if len(known) > _MOST_FIELDS:
            raise Unusable(f"group={rule!r} makes more than {_MOST_FIELDS} fields: pass fields=, or another group=")
    if strange:
        raise Unusable(
            f"{len(strange)} objects have no key and field by group={rule!r}: {quote_some(strange)}; leave them out, "
            f"e.g. with exclude={strange[:1]}"
        )
    of, field = np.frombuffer(samples, np.int64), np.frombuffer(kinds, np.int64)
    rows = list_rows(found.rows)
    names_of_fields = [*known] if fields else sorted(known)
    order = np.array([names_of_fields.index(each) for each in known], dtype=np.int64)
    if len(known) * len(keys) > _SPARSE * len(rows) + (1 << 20):
        raise Unusable(f"group={rule!r} makes {len(known)} fields, which most samples lack: pass fields=")
    places = np.full((len(known), len(keys)), -1, np.int64)
    for number in range(len(known)):
        mine = np.flatnonzero(field == number)
        target = places[order[number]]
        target[of[mine]] = rows[mine]
        if np.count_nonzero(target >= 0) < len(mine):
            _refuse_twice([*keys], of[mine], [*known][number], found, rows[mine])
    places = complete([*keys], places, names_of_fields, missing)
    if missing == "error" or not known:
        _check_some(places, found, split)
    parts = {name: FieldObjects(found.root, found.base, bare(found.table)) for name in names_of_fields}
    return _build_sample_table(found.table, places, parts, rule)


def _check_some(places: NDArray[np.int64], found: NamedObjects, split: _Rule) -> None:
    if len(found.rows) and not places.size:
        pairs = map(split, islice(found.names(), _LOOKED_AT))
        there = quote_some(sorted({pair[1] for pair in pairs if pair is not None}))
        advice = f"fields must be some of those that occur, {there}" if there else "group must return a key"
        raise Unusable(f"none of the {len(found.rows)} objects is in a sample: {advice}")


def _build_sample_table(
    table: Table, places: NDArray[np.int64], parts: Mapping[str, FieldObjects], rule: GroupRule
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
    keys: Sequence[str], places: NDArray[np.int64], fields: Sequence[str], missing: Missing
) -> NDArray[np.int64]:
    """Return the columns of ``places`` that ``missing`` leaves."""
    lacking = places < 0
    some: NDArray[np.bool_] = np.any(lacking, axis=0)
    if missing == "error" and some.any():
        at = int(np.argmax(some))
        absent = ", ".join(repr(field) for field, lacks in zip(fields, lacking[:, at], strict=True) if lacks)
        present = ", ".join(field for field, lacks in zip(fields, lacking[:, at], strict=True) if not lacks)
        raise Unusable(
            f"{int(some.sum())} of {len(some)} samples lack a field: {keys[at]!r} has no {absent}, only "
            f'{present or "none"}; pass missing="drop" or missing="none", or the fields that all have as fields='
        )
    left = np.flatnonzero(~some) if missing == "drop" else np.flatnonzero(~lacking.all(axis=0))
    return places[:, left]


def _refuse_twice(
    keys: Sequence[str], of: NDArray[np.int64], field: str, found: NamedObjects, rows: NDArray[np.int64]
) -> None:
    numbers, counts = np.unique(of, return_counts=True)
    twice = int(numbers[np.argmax(counts)])
    both = [decode(found.table.keys[found.table.object(int(row))]) for row in rows[of == twice][:2].tolist()]
    raise Unusable(
        f"the sample {keys[twice]!r} has the field {field!r} twice: {both[0]!r} and {both[-1]!r} "
        f"({int((counts > 1).sum())} samples have one twice); leave one out (exclude=…), or pass another group="
    )


def key_objects(found: NamedObjects, on: object, field: str) -> list[str | None]:
    """Return the key of each object by a rule, or as given one by one."""
    if found.table.units is not None:
        raise Unusable(
            f"the entries of {field!r} are in units that are decoded as a whole (row groups, compressed shards), and "
            "cannot be joined with others"
        )
    if not isinstance(on, str) and isinstance(on, Iterable):
        given: list[Any] = [*on]
        if len(given) != len(found.rows) or not all(each is None or isinstance(each, str) for each in given):
            raise Unusable(f"on= of {field!r} must be one key (a str) for each of its {len(found.rows)} entries")
        return given
    try:
        rule = key_of(on) if isinstance(on, str) or callable(on) else None
    except Unusable:
        rule = None
    if rule is None:
        raise Unusable(
            'on must be "stem", a regular expression with the group (?P<key>…), a function of the name, or a list of '
            f"keys, got {on!r}"
        )
    lacking, keys = list[str](), list[str | None]()
    for name in found.names():
        keys.append(rule(name))
        if keys[-1] is None and not callable(on):
            lacking.append(name)
    if lacking:
        raise Unusable(f"{len(lacking)} entries of {field!r} have no key by on={on!r}: {quote_some(lacking)}")
    return keys


def join_catalogs(catalogs: Mapping[str, NamedObjects], on: object, missing: Missing) -> Table:
    """Return the table of the samples that entries of several catalogs make: see ``Catalog.join``."""
    fields = [*catalogs]
    if not isinstance(on, Mapping):
        on = dict.fromkeys(fields, on)
    elif odd := sorted({*map(str, on)} ^ {*fields}):
        raise Unusable(f"on= must have a rule for each field, and {', '.join(odd)} is only in one of the two")
    numbers: dict[str, int] = {}
    places = np.zeros((0, 0), np.int64)
    for field, found in catalogs.items():
        keys, rows = key_objects(found, on[field], field), list_rows(found.rows)
        if field == fields[0]:
            numbers = {key: at for at, key in enumerate(dict.fromkeys(key for key in keys if key is not None))}
            places = np.full((len(fields), len(numbers)), -1, np.int64)
        mine = places[fields.index(field)]
        for key, row in zip(keys, rows.tolist(), strict=True):
            if key is None or (number := numbers.get(key)) is None:
                continue
            if mine[number] >= 0:
                both = [decode(found.table.keys[found.table.object(each)]) for each in (int(mine[number]), row)]
                raise Unusable(f"the key {key!r} occurs twice in {field!r}: {both[0]!r} and {both[1]!r}")
            mine[number] = row
    places = complete([*numbers], places, fields, missing)
    if numbers and not places.size:
        raise Unusable(
            f"no key of {fields[0]!r}, such as {next(iter(numbers))!r}, occurs in all other catalogs: pass another on="
        )
    parts = {name: FieldObjects(each.root, each.base, bare(each.table)) for name, each in catalogs.items()}
    rule = on[fields[0]]
    return _build_sample_table(
        catalogs[fields[0]].table, places, parts, rule if isinstance(rule, str) or callable(rule) else ""
    )


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
