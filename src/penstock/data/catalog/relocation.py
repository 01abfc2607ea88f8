"""Relocation of an opened catalog: the same names, sizes and labels below another URL, where a copy of them is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.data.catalog.groups import FieldObjects
from penstock.data.catalog.rows import build_table, entry_of
from penstock.errors import ManifestError
from penstock.stores.urls import parse
from penstock.values import as_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from penstock.data.catalog.rows import Entry
    from penstock.data.catalog.saved import Saved
    from penstock.stores.urls import Location


def check_home(saved: Saved, file: Location) -> None:
    """Raise ``ManifestError`` if objects lie in another bucket than the catalog's file, which names them."""
    places = _places(saved)
    if any(root != file.root for root, _ in places.values()):
        urls = {field: root + base for field, (root, base) in places.items()}
        told = urls if len({*urls.values()}) > 1 else saved.root + saved.base
        raise ManifestError(f"its objects lie elsewhere: if you mean to read them, pass root={told!r}")


def relocate_catalog(saved: Saved, root: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]) -> Saved:
    """Return the catalog of the same names below ``root``, a URL or one for each field."""
    group, places = saved.table.group, _places(saved)
    if isinstance(root, Mapping):
        fields = () if group is None else group.fields
        if not fields or {*root} != {*fields}:
            raise ManifestError(f"root= must have a URL for each field: {', '.join(fields) or 'there are none'}")
    elif len({*places.values()}) > 1:
        raise ManifestError(f"the fields {', '.join(places)} lie at different places: pass root={{field: URL}}")
    else:
        root = dict.fromkeys(places, root)
    urls = {field: parse(url) for field, url in root.items()}
    # Without a field that leads, the rows repeat objects of other fields.
    lead = ("" if group is None else group.lead) or next(iter(urls))
    found = _move_part(FieldObjects(saved.root, saved.base, saved.table), urls[lead])
    table = found.table
    if group is not None:
        parts = {field: _move_part(part, urls[field]) for field, part in group.parts.items()}
        table = table.having(group=replace(group, parts=parts))
    return saved._replace(root=found.root, base=found.base, table=table)


def _places(saved: Saved) -> dict[str, tuple[str, str]]:
    """Return the bucket's URL and the prefix of each field's objects; without fields, the catalog's own as ""."""
    group = saved.table.group
    if group is None:
        return {"": (saved.root, saved.base)}
    parts = group.all(saved.root, saved.base, saved.table)
    return {field: (part.root, part.base) for field, part in zip(group.fields, parts, strict=True)}


def _move_part(part: FieldObjects, place: Location) -> FieldObjects:
    """Return the part with the same names below ``place``; the same part if that is where its objects were listed."""
    below, table = as_folder(place.key), part.table
    if (place.root, below) == (part.root, part.base):
        return part
    entries = (entry_of(table, row) for row in range(table.rows))
    base, copied = build_table(below, rename_entries(entries, part.base, place, labelled=table.classes is None))
    kept = {"classes": table.classes, "columns": table.columns, "format": table.format, "units": table.units}
    return part._replace(root=place.root, base=base, table=copied.having(**kept))


def rename_entries(entries: Iterable[Entry], base: str, place: Location, *, labelled: bool) -> Iterator[Entry]:
    """Yield the entries with the key prefix ``base`` replaced by that of ``place``, and without ETags.

    Names must not lead out of a local directory: the entries may come from another user's file.
    """
    below, skip = as_folder(place.key), len(base)
    for entry in entries:
        key = below + entry.key[skip:]
        if place.local and ".." in key.split("/"):
            raise ManifestError(f"{key[:200]!r} leads out of its directory")
        yield entry._replace(key=key, etag="", label=entry.label if labelled else None)
