"""Labels derived from names by folder, by a pattern with one group, or by a function, as codes of sorted classes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.data.catalog.columns.column import Column, blocks, check_column, code_texts, decode, taken
from penstock.errors import ManifestError, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.catalog.columns.column import Rows
    from penstock.data.catalog.columns.table import Table

    Rule = str | re.Pattern[str] | Callable[[str], str | None]
    Labels = Rule | Sequence[str] | Sequence[int]

_QUOTED = 3  # names in an error
_KNOWN = 10  # labels in an error
_NAMES = 1 << 12  # names that are texts at once


def label_of(table: Table, row: int) -> object:
    """Return one row's label: the class number, or the JSON value from the manifest."""
    if table.classes is not None:
        return table.classes.numbers.view[row]
    label = table.labels[row]
    try:
        return json.loads(label) if label else None
    except (ValueError, RecursionError) as error:
        # Only possible in a catalog that another program wrote.
        raise ManifestError(f"the label of {table.keys.text(table.object(row))!r} is not JSON") from error


def number_labels(table: Table, rows: Rows) -> tuple[NDArray[Any], Sequence[object]]:
    """Return a number for each row's label, and the labels that the numbers stand for."""
    if table.classes is not None:
        return taken(table.classes.numbers.values, rows), table.classes.categories
    found: dict[bytes, int] = {}
    texts = table.labels
    codes = np.fromiter((found.setdefault(texts[row], len(found)) for row in rows), np.int64, len(rows))
    if b"" in found:
        raise Unusable('some objects have no label: use scan(…, labels="folder"), or with_labels(…)')
    _, firsts = np.unique(codes, return_index=True)
    return codes, [label_of(table, int(rows[first])) for first in firsts.tolist()]


def mask_labels(table: Table, rows: Rows, labels: object) -> NDArray[np.bool_]:
    """Return a mask of the rows that have one of these labels.

    ``labels`` is one label or several: class names, class numbers, or labels from a manifest.
    """
    wanted = list(labels) if isinstance(labels, (list, tuple, set, frozenset, range, np.ndarray)) else [labels]
    codes, known = number_labels(table, rows)
    numbers: list[int] = []
    for each in wanted:
        if each in known:
            numbers.append(known.index(each))
        elif table.classes is not None and isinstance(each, (int, np.integer)) and 0 <= each < len(known):
            numbers.append(int(each))
        else:
            few = ", ".join(map(repr, known[:_KNOWN])) + (", …" if len(known) > _KNOWN else "")
            raise Unusable(f"unknown label {each!r}; labels are {few}")
    found: NDArray[np.bool_] = np.isin(codes, numbers)
    return found


def names(table: Table, rows: Rows, skip: int) -> Iterator[list[str]]:
    """Yield the keys of ``rows`` without their first ``skip`` bytes, block by block."""
    for block in blocks(rows, _NAMES):
        ends, data = table.keys.joined(table.objects(block))
        raw = data.tobytes()
        if raw.isascii():
            text = raw.decode()
            yield [text[start + skip : stop] for start, stop in pairwise(ends.tolist())]
        else:
            yield [decode(raw[start + skip : stop]) for start, stop in pairwise(ends.tolist())]


def check_rule(labels: object) -> None:
    """Check that ``labels`` is a valid rule, or None, before names are listed."""
    if labels is None:
        return
    if not (isinstance(labels, (str, re.Pattern)) or callable(labels)):
        raise Unusable(f'labels= must be "folder", a pattern with one group, or a function of the key, got {labels!r}')
    _rule(labels)


def classify_rows(
    labels: Labels,
    blocks_of_names: Iterator[list[str]],
    rows: int,
    classes: Sequence[str] | None,
) -> Column:
    """Return the labels of ``rows`` entries as a column of class names: see ``Catalog.with_labels``.

    The names are read only where ``labels`` is a rule.
    """
    given = None if classes is None else _classes(classes)
    if isinstance(labels, (str, re.Pattern)) or callable(labels):
        codes, names = code_texts(_extract_labels(labels, blocks_of_names))
        try:
            return _renumber_codes(Column.of(codes, names), given)
        except UnicodeEncodeError as error:
            raise Unusable(f"labels must be valid UTF-8, got {error.object!r} ({error.reason})") from error
    if isinstance(labels, (bytes, dict, set, type(None))):
        raise Unusable(
            f'labels must be "folder", a pattern with one group, a function or one label each, got {labels!r}'
        )
    column = check_column("label", labels, rows)
    if column.texts is not None:
        return _renumber_codes(column, given)
    if given is None:
        raise Unusable("labels that are numbers need classes=[…], the name of each number; or pass the names as labels")
    codes = column.numbers.values
    if codes.dtype.kind not in "iu" or (len(codes) and not 0 <= codes.min() <= codes.max() < len(given)):
        raise Unusable(f"labels that are numbers must be between 0 and {len(given) - 1}, one for each of classes")
    return Column.of(codes, given)


def _classes(classes: Sequence[str]) -> list[str]:
    found = [] if isinstance(classes, str) or not isinstance(classes, Iterable) else list(classes)
    if not found or len(set(found)) < len(found) or not all(isinstance(each, str) for each in found):
        raise Unusable(f"classes must be a list of different names, in the order of their numbers, got {classes!r}")
    return found


def _renumber_codes(column: Column, classes: Sequence[str] | None) -> Column:
    if classes is None:
        return column
    place = {name: number for number, name in enumerate(classes)}
    if strange := [name for name in column.categories if name not in place]:
        raise Unusable(
            f"labels that are not in classes=: {quote_some(strange)}; classes= has {len(classes)}: "
            f"{quote_some(classes)}"
        )
    codes = np.array([place[name] for name in column.categories] or [0])[column.numbers.values]
    return Column.of(codes, classes)


def _extract_labels(labels: Rule, blocks_of_names: Iterator[list[str]]) -> Iterator[str]:
    """Yield each entry's label."""
    rule, lack = _rule(labels)
    without, missing = 0, list[str]()
    depths: dict[int, str] = {}  # an example name for each depth
    for block in blocks_of_names:
        for name in block:
            label = rule(name)
            if isinstance(label, str) and label:
                yield label
                continue
            if label is not None and not isinstance(label, str):
                raise Unusable(f"labels= must return a str, or None for no class, got {label!r} for {name!r}")
            without += 1
            missing += [name] if len(missing) < _QUOTED else []
        if lack is _FOLDER and len(depths) <= 1:
            depths |= {name.count("/"): name for name in block}
    if without:
        found = quote_some(missing, without)
        advice = f"leave them out, e.g. with exclude={missing[:1]}; members of shards with skip="
        raise Unusable(f"{without} objects {lack}: {found}; {advice}")
    if len(depths) > 1:
        first, second = list(depths.values())[:2]
        raise Unusable(
            f'labels="folder" takes the last folder, but {first!r} and {second!r} are at different depths: choose the '
            r"folder by a pattern: labels=r'^([^/]+)/' is the first one"
        )


_FOLDER = "have no folder below the prefix"


def _rule(labels: Rule) -> tuple[Callable[[str], Any], str]:
    """Return the function from a name to its label, and the error text for entries without a label."""
    if labels == "folder":
        return _find_parent_name, _FOLDER
    if not isinstance(labels, (str, re.Pattern)):
        return labels, "have no label by the function given"
    try:
        pattern = re.compile(labels)
    except re.error as error:
        raise Unusable(
            f'labels={labels!r} is not a valid pattern ({error}); "folder" takes the folder\'s name'
        ) from error
    if pattern.groups != 1 or not isinstance(pattern.pattern, str):
        message = f"labels={pattern.pattern!r} has {pattern.groups} groups: the pattern must have one, the label"
        raise Unusable(rf'{message}: r"_(\w+)\.jpg$"; "folder" takes the folder\'s name')
    search = pattern.search

    def matched(name: str) -> str | None:
        match = search(name)
        return match[1] if match else None

    return matched, f"do not match {pattern.pattern!r}"


def _find_parent_name(name: str) -> str | None:
    parts = name.rsplit("/", 2)
    return parts[-2] if len(parts) > 1 else None


def quote_some(texts: Sequence[str], total: int | None = None) -> str:
    more = ", …" if (len(texts) if total is None else total) > _QUOTED else ""
    return ", ".join(f"{each[:100]!r}" for each in texts[:_QUOTED]) + more
