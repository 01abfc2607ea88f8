"""Members of archives that form one sample: the key and the field in a member's name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from penstock.data.shards.format import Extents, Fields, FieldsFormat, extents_of
from penstock.engine.listing.select import globs, selector
from penstock.errors import Damaged, PenstockError, Unsupported, Unusable
from penstock.values import check_choice

if TYPE_CHECKING:
    from collections.abc import Callable

KeyRule: TypeAlias = "str | Callable[[str], tuple[str, str] | None]"
Missing: TypeAlias = Literal["error", "drop", "none"]


# Members such as `__meta__/…`, which WebDataset leaves out.
_new = tuple.__new__
_META = re.compile(r"__[^/]*__(/|$)")


@lru_cache(maxsize=64)
def rule_of(key: KeyRule) -> Callable[[str], tuple[str, str] | None]:
    """Return the function from a member's name to the key and the field that it stands for; None: no rule matches.

    ``key`` is ``"first-dot"``, ``"last-dot"``, a regular expression with the groups ``key`` and ``field`` that matches
    a whole name, or the function itself.
    """
    if callable(key):
        return key
    if key == "first-dot":
        return _first_dot
    if key == "last-dot":
        return _last_dot
    try:
        pattern = re.compile(key)
    except (re.error, TypeError) as error:
        raise Unusable(f"key must be a rule or a regular expression, got {key!r} ({error})") from None
    if not {"key", "field"} <= pattern.groupindex.keys():
        raise Unusable(
            f'key must be "first-dot", "last-dot", a function, or a regular expression with the groups (?P<key>…) and '
            f"(?P<field>…), got {key!r}"
        )

    def matched(name: str) -> tuple[str, str] | None:
        found = pattern.fullmatch(name)
        return None if found is None else (found["key"] or "", found["field"] or "")

    return matched


def called(rule: Callable[[str], Any], name: str, argument: str) -> tuple[str, str] | None:
    """Return the key and the field that the user's function derives from a name; None leaves it out."""
    try:
        pair = rule(name)
    except PenstockError:
        raise
    except Exception as error:
        raise Unusable(f"the function {argument}= fails for {name!r}: {error!r}") from error
    if pair is None or (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(each, str) for each in pair)):  # noqa: PLR2004
        return pair
    raise Unusable(f"{argument}= must return (key, field), two str, or None for no sample, got {pair!r} for {name!r}")


@lru_cache(maxsize=64)
def _selector(skip: tuple[str, ...]) -> Callable[[str, int], bool]:
    return selector(skip, markers=True)


def _first_dot(name: str) -> tuple[str, str] | None:
    """Split as WebDataset, energon, Ray and Hugging Face do: at the first dot of the last component."""
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    return (name[:dot], name[dot + 1 :].lower()) if dot > base else None


def _last_dot(name: str) -> tuple[str, str] | None:
    base, dot = name.rfind("/") + 1, name.rfind(".")
    return (name[:dot], name[dot + 1 :].lower()) if dot > base else None


@dataclass(frozen=True, slots=True)
class ArchiveFormat(FieldsFormat):
    """A format of shards with named members; members with the same key form one sample.

    Attributes:
        key: Rule of keys: see ``rule_of``.
        missing: Treatment of a sample that lacks one of ``fields``: see ``Grouping``.
        skip: Globs of the names of members that are left out.
    """

    key: KeyRule = "first-dot"
    missing: Missing = "error"
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        FieldsFormat.__post_init__(self)
        check_choice(self.missing, get_args(Missing), "missing")
        if self.missing != "error" and not self.fields:
            raise Unusable(f"missing={self.missing!r} needs fields=: pass both")
        object.__setattr__(self, "skip", globs(self.skip, "skip"))
        if not (isinstance(self.key, str) or callable(self.key)):
            raise Unusable(f"key must be a rule, the text of a regular expression, or a function, got {self.key!r}")
        rule_of(self.key)

    def split(self, name: str, offset: int) -> tuple[str, str] | None:
        """Return the key and the field of the member at byte ``offset``; None for one that is left out."""
        if (name[:2] == "__" and _META.match(name)) or (self.skip and _selector(self.skip)(name, 1)):
            return None
        if callable(self.key):
            return called(self.key, name, "key")
        found = rule_of(self.key)(name)
        if found is None:
            raise Damaged(
                f"the member {name!r} at byte {offset} has no key and field by key={self.key!r}: leave it out "
                "(skip=…), or pass another key="
            )
        return found

    def made(self, key: str, values: dict[str, Any]) -> Fields | memoryview:
        """Return the sample of these values, in the order of ``fields``."""
        if isinstance(self.fields, str):
            if self.fields not in values:
                raise Damaged(f"the sample {key!r} has no field {self.fields!r} any more")
            return cast("memoryview", values[self.fields])
        if self.fields:
            if self.missing != "none" and (absent := [each for each in self.fields if each not in values]):
                raise Damaged(f"the sample {key!r} has no field {absent[0]!r} any more")
            values = {each: values.get(each) for each in self.fields}
        return _new(Fields, (key, values))


@dataclass
class Grouping:
    """Groups the members of one shard, in the order of their bytes, into extents of samples.

    Members of a sample are neighbours, so that one range holds them all.
    """

    format: ArchiveFormat
    _starts: list[int] = field(default_factory=list)
    _stops: list[int] = field(default_factory=list)
    _keys: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _key: str | None = None
    _fields: dict[str, int] = field(default_factory=dict)  # offset of each field of the sample
    _span: tuple[int, int] = (0, 0)

    @cached_property
    def _wanted(self) -> frozenset[str]:
        return frozenset(self.format.wanted)

    def add(self, name: str, start: int, stop: int) -> None:
        """Add a member; with its headers it occupies [start, stop)."""
        found = self.format.split(name, start)
        if found is None:
            return
        key, kind = found
        if key != self._key:
            self._close()
            if key in self._seen:
                raise Unsupported(
                    f"the members of the sample {key!r} are not adjacent: another precedes {name!r} at "
                    f"byte {start}; write the archive with its members in the order of their names (find … -type f | "
                    "LC_ALL=C sort, into zip -@ or tar --no-recursion -T -), or copy the samples with ps.pack; or pass "
                    "another key="
                )
            self._seen.add(key)
            self._key, self._fields, self._span = key, {}, (start, start)
        if kind in self._fields:
            raise Damaged(
                f"the sample {key!r} has the field {kind!r} twice, at bytes {self._fields[kind]} and {start}: leave "
                "one out (skip=…), or pass another key="
            )
        self._fields[kind] = start
        if not self._wanted or kind in self._wanted:
            first, last = self._span
            self._span = (start if first == last else first, stop)

    def _close(self) -> None:
        key, (start, stop) = self._key, self._span
        if key is None:
            return
        if self._wanted and not self._wanted <= self._fields.keys():
            absent = next(each for each in self.format.wanted if each not in self._fields)
            if self.format.missing == "error":
                known = ", ".join(self._fields)
                raise Damaged(
                    f'the sample {key!r} has no field {absent!r}, only {known}: pass missing="drop" or missing="none"'
                )
            if self.format.missing == "drop" or start == stop:
                return
        self._starts.append(start)
        self._stops.append(stop)
        self._keys.append(key)

    def extents(self) -> Extents:
        """Return the extents of the samples, after the last member."""
        self._close()
        self._key = None
        return extents_of(self._starts, self._stops, self._keys)
