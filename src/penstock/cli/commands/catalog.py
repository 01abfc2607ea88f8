"""``penstock catalog``: describe saved catalogs, and compare two of them."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

import sys
from typing import Annotated

from typer import Argument, Option, Typer

from penstock.cli.commands.index import open_saved
from penstock.cli.options import JsonLines, JsonOne, Store, with_store
from penstock.cli.output import readable, write_row
from penstock.display import counted
from penstock.stores.urls import parse

app = Typer()
catalog = Typer(no_args_is_help=True, help="Describe and compare saved catalogs (penstock.Catalog.save).")
app.add_typer(catalog, name="catalog")
_MARKS = {"added": "+", "removed": "-", "changed": "~", "unproven": "?"}


@catalog.command()
@with_store
def show(
    url: Annotated[str, Argument(metavar="URL", help="A saved catalog.")],
    *,
    json: JsonOne = False,
    store: Store,
) -> None:
    """Print how many entries a catalog has, of how many bytes, and its identities.

    The digest is of names and sizes, as states of loaders have it. The fingerprint also counts ETags: it changes when
    an object is replaced, and says how many ETags are missing. With version ids, it counts these, too.
    """
    found = open_saved(url, None if parse(url).local else store)
    size, where = found.total_bytes, found.root + found.base
    record = {"url": where, "entries": len(found), "size": None if size < 0 else size, "digest": found.digest}
    lines = [f"{where}: {counted(len(found), 'entry' if len(found) == 1 else 'entrie')}"]
    lines[0] += "" if size < 0 else f", {readable(size)}"
    if json:
        write_row({**record, "fingerprint": found.fingerprint, "versions": found.versioned}, "", as_json=True)
        return
    lines += ["version ids are recorded: replaced objects are read as they were"] if found.versioned else []
    for line in (*lines, f"digest      {found.digest}", f"fingerprint {found.fingerprint}"):
        write_row({}, line, as_json=False)


@catalog.command(epilog="Example: penstock catalog diff monday.catalog tuesday.catalog")
@with_store
def diff(
    urls: Annotated[tuple[str, str], Argument(metavar="A B", help="The earlier and the later catalog.")],
    *,
    summary: Annotated[bool, Option("--summary", "-s", help="Only the numbers.")] = False,
    json: JsonLines = False,
    store: Store,
) -> None:
    """Print the entries that were added (+), removed (-) or changed (~) from A to B, and the numbers at the end.

    Changed entries have another size or ETag. Entries without an ETag or a size in one of the catalogs, which seem
    equal, have a question mark.
    """
    first, second = (open_saved(each, None if parse(each).local else store) for each in urls)
    found = first.diff(second)
    for name, mark in _MARKS.items() if not summary else ():
        of = first if name == "removed" else second
        for entry in getattr(found, name):
            record = {"change": name, "key": entry.key, "size": entry.size, "etag": entry.etag}
            record |= {"offset": entry.offset} if entry.offset >= 0 else {}
            write_row(record, f"{mark} {entry.key[len(of.base) :]}", as_json=json)
    print(repr(found)[1:-1].partition(": ")[2], file=sys.stderr)
