"""``penstock index``: write the catalog of a prefix, and continue an interrupted run."""
# No `from __future__ import annotations`: typer evaluates annotations, and must find its own names in them.

from typing import Annotated, Any

from typer import Argument, Option, Typer

import penstock as ps
from penstock.cli.options import (
    Exclude,
    IncludeUrl,
    JobFolder,
    JsonOne,
    OnRay,
    Part,
    PartProcesses,
    Store,
    in_job,
    with_store,
)
from penstock.cli.output import aside, readable, write_row
from penstock.display import counted
from penstock.errors import Damaged, Unusable
from penstock.stores.urls import parse

app = Typer()

_OF_SAMPLES = ("fields", "key", "missing", "skip", "index")


@app.command(
    "index",
    epilog="Examples: penstock index s3://bucket/train/ train.catalog; penstock index --format tar "
    "s3://bucket/shards/ shards.catalog",
)
@with_store
def write_index(
    url: Annotated[str, Argument(metavar="URL", help="A prefix or a bucket; of shards also a glob.")],
    to: Annotated[str, Argument(metavar="FILE", help="The catalog to write: a path, or an object's URL.")],
    *,
    job: JobFolder = None,
    part: Part = None,
    ray: OnRay = None,
    processes: PartProcesses = None,
    json: JsonOne = False,
    kind: Annotated[
        str | None, Option("--format", metavar="tar|…", help="Index the samples inside shards of this format.")
    ] = None,
    fields: Annotated[str | None, Option(metavar="NAMES", help="Fields to take, as png,cls.")] = None,
    key: Annotated[str | None, Option(metavar="RULE", help="first-dot, last-dot, or a regular expression.")] = None,
    missing: Annotated[
        str | None, Option(metavar="error|drop|none", help="What becomes of a sample without one of the fields.")
    ] = None,
    skip: Annotated[list[str] | None, Option(metavar="GLOB", help="No members like this.")] = None,
    side: Annotated[
        str | None,
        Option("--index", metavar="energon|wds2idx|URL", help="Side indexes to read, or wids' JSON to compare with."),
    ] = None,
    length: Annotated[int | None, Option(metavar="TOKENS", help="Tokens of a row, for --format packing.")] = None,
    pack: Annotated[str | None, Option(metavar="best-fit|cut", help="How documents fill rows.")] = None,
    longer: Annotated[str | None, Option(metavar="cut|leave-out|refuse", help="Documents longer than a row.")] = None,
    dtype: Annotated[str | None, Option(metavar="uint16|…", help="Type of the tokens of --format packing.")] = None,
    track: Annotated[
        int | None, Option(metavar="ID", help="Track, for --format mp4 and audio; default: the first.")
    ] = None,
    include: IncludeUrl = None,
    exclude: Exclude = None,
    labels: Annotated[str | None, Option(metavar="folder|PATTERN", help="A class for each object.")] = None,
    versions: Annotated[bool, Option("--versions", help="Record the version id of each object.")] = False,
    restart: Annotated[bool, Option("--restart", help="Forget what an interrupted run has listed.")] = False,
    refresh: Annotated[
        bool, Option("--refresh", help="Read FILE, and list only what sorts after its last key.")
    ] = False,
    store: Store,
) -> None:
    """List the objects below URL in parallel and write a catalog, which datasets open without listing.

    With --format, the catalog is of the samples inside the shards there. Repeat an interrupted command to continue it.
    With --format packing, FILE is a plan of rows of --length tokens, for TokenDataset.from_shards(plan=FILE).
    With --format mp4 or audio, FILE is an index of the files, for VideoDataset.from_shards(index=FILE) or AudioDataset;
    repeated, the command reads only files that are new or were replaced.
    Exit code 1 if there are no objects.
    """
    if refresh and restart:
        raise Unusable("--restart starts over, and --refresh continues from a saved catalog: leave one out")
    names = None if fields is None else tuple(each.strip() for each in fields.split(","))
    given: dict[str, Any] = {"fields": names, "key": key, "missing": missing, "skip": skip, "index": side}
    given |= {"length": length, "pack": pack, "longer": longer, "dtype": dtype, "track": track, "format": kind}
    given["versions"] = versions or None
    how: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    how |= {"include": include or [], "exclude": exclude or [], "labels": labels}
    parts = in_job(job, part, ray, processes)
    if parts and refresh:
        raise Unusable("--job and --refresh exclude one another: leave out --refresh")
    if refresh:
        catalog: ps.Catalog | None = _refresh_catalog(url, to, how, store)
    else:
        with aside(parts.get("on")):
            catalog = ps.index(url, to, store=store, restart=restart, **how, **parts)
    show = {"packing": _show_plan, "mp4": _show_videos, "audio": _show_videos}.get(kind or "", show_index)
    show(catalog, as_json=json, url=url, to=to)


def show_index(catalog: "ps.Catalog | None", *, as_json: bool, url: str = "", to: str = "") -> None:
    """Write the indexed entries; None: other processes have parts left."""
    if catalog is None:
        write_row({"catalog": None}, "the parts of this process are done, and others are left", as_json=as_json)
        return
    url = url or catalog.root + catalog.base
    to = to or url
    size = catalog.total_bytes
    record = {"url": url, "catalog": to, "objects": len(catalog), "size": None if size < 0 else size}
    much = "" if size < 0 else f", {readable(size)}"
    text = f"{to}: {counted(len(catalog), 'object' if catalog.format is None else 'sample')}{much}"
    write_row({**record, "digest": catalog.digest}, text, as_json=as_json)


def _show_plan(rows: Any, *, as_json: bool, url: str, to: str) -> None:  # noqa: ANN401  a TokenDataset, which needs torch
    """Write what a plan of packed rows has."""
    record = {"url": url, "plan": to, "rows": len(rows), "tokens": rows.tokens, "padding": rows.padding}
    write_row({**record, "cut": rows.cut, "left_out": rows.left_out}, f"{to}: {rows!r}", as_json=as_json)


def _show_videos(counts: Any, *, as_json: bool, url: str, to: str) -> None:  # noqa: ANN401  as the others
    """Write the numbers of indexed videos and of their frames."""
    text = f"{to}: {counted(counts['files'], 'file')}, {counted(counts['frames'], 'frame')}"
    write_row({"url": url, "index": to, **counts}, text, as_json=as_json)


def _refresh_catalog(url: str, to: str, how: dict[str, Any], store: Store) -> "ps.Catalog":
    """Bring the catalog in ``to`` up to date; only keys that sort after its last key are listed."""
    if how.get("format") in ("packing", "mp4", "audio"):
        raise Unusable(f"--refresh is for catalogs: repeat the command without it for --format {how['format']}")
    its = None if parse(to).local else store
    known = open_saved(to, its)
    if given := [
        name for name in (*_OF_SAMPLES, "versions", "length", "pack", "longer", "dtype", "track") if name in how
    ]:
        raise Unusable(f"--{given[0]} cannot be changed by --refresh: index again without it")
    mine = None if known.format is None else known.format.name
    if how.get("format", mine) != mine:
        raise Unusable(f"the catalog is of {mine or 'objects'}, not of {how['format']} shards", url=parse(to).url)
    include, exclude, labels = how["include"], how["exclude"], how["labels"]
    catalog = known.refresh(url, include=include, exclude=exclude, labels=labels, store=store)
    if catalog is not known:
        catalog.save(to, store=its)
    return catalog


def open_saved(to: str, store: Store | None) -> "ps.Catalog":
    """Return a saved catalog with the URL where its objects were listed, wherever the file is."""
    # Imported late: it needs numpy, and the help of all commands does not.
    from penstock.data.catalog.catalog import make_catalog
    from penstock.data.catalog.saved import load

    try:
        with ps.open(to, "rb", store=store) as file:
            found = load(file)
    except Damaged as error:
        error.url = parse(to).url
        raise
    return make_catalog(found.root, found.base, found.table)
