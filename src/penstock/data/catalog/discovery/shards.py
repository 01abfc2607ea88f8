"""Catalogs of the samples inside shards: the shards that URLs name, and the walks that find their samples."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections import deque
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from penstock.data.catalog.columns.column import Strings, encode
from penstock.data.catalog.columns.table import Table, gather_regions, ranges_of
from penstock.data.catalog.columns.units import units_of
from penstock.data.catalog.discovery.journal import Beyond, Walked
from penstock.data.catalog.discovery.scan import (
    ScanOptions,
    absent,
    listed,
    report_left_out,
    suggest_saving,
    warn_of_splits,
)
from penstock.data.catalog.discovery.stated import (
    INDEX,
    check_strays,
    named_files,
    read_described,
    read_stated,
    stated_files,
)
from penstock.data.catalog.labels import classify_rows
from penstock.data.shards.format import Extents, Units
from penstock.data.shards.keys import ArchiveFormat
from penstock.data.shards.litdata import HEAD_BYTES, form_of_rows, may_have_rows
from penstock.data.shards.registry import (
    MEDIA,
    MEDIA_ADVICE,
    TABLE_ADVICE,
    TABLES,
    format_by,
    is_shard,
    settle_format,
    suffixes,
)
from penstock.data.shards.side import check_counted, check_side, side_key, side_walk, wids_shards
from penstock.data.shards.tokens import TokenFile
from penstock.display import counted
from penstock.engine.listing.select import Leftovers, fixed_part, selector, split_of
from penstock.errors import Changed, Damaged, InvalidURL, NotFound, PenstockError, Unsupported, Unusable
from penstock.progress import bar
from penstock.source import open_source
from penstock.stores.urls import parse
from penstock.values import PAUSE, Span, as_folder, switch, tag_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from penstock.data.catalog.discovery.journal import ShardJournal
    from penstock.data.catalog.labels import Rule
    from penstock.data.shards.format import Ask, ShardFormat
    from penstock.data.shards.mds import ColumnFormat, MdsFormat, Stated
    from penstock.data.shards.side import Listed
    from penstock.data.shards.tar import TarFormat
    from penstock.engine.contracts.fetching import ReadOperation
    from penstock.options import StoreOptions
    from penstock.source import Source

    _Walk = Generator[Ask | Span, memoryview, Extents]

_MOST_URLS = 1 << 20
_BRACES = re.compile(r"\{([^{}]*)\}")
_NUMBERS = re.compile(r"(\d+)\.\.(\d+)")
_WILD = re.compile(r"[*?\[]")
# Logs of tables in Delta Lake, Hudi and Iceberg: the files beside them may hold rows that were deleted or written anew.
_TABLE_LOG = re.compile(r"(?:^|/)(?:(?:_delta_log|\.hoodie)/|metadata/[^/]+\.metadata\.json$)")
_SINGLE = "a list, and a pattern with braces, names shards one by one; a glob or a prefix is passed alone"
# Formats of chunks whose values only an index.json describes.
_LITDATA = ("litdata", "litdata.zst")


class Shard(NamedTuple):
    """An object that holds samples."""

    key: str
    size: int
    etag: str


class Shards(NamedTuple):
    """The shards of a dataset, in order.

    Attributes:
        source: Their store.
        base: The prefix of their keys that is not part of their names.
        found: The shards.
        format: Their format.
        side: Kind of the side indexes that are read in place of walks; empty: none.
        counts: Samples of each shard by its name, which an index states, and which are compared with those found; None:
            nothing is compared.
        stated: Entry of each shard in an index.json of MDS, by its key; None: no such file.
        whole: Whether they are all shards of a folder.
    """

    source: Source
    base: str
    found: list[Shard]
    format: ShardFormat
    side: str = ""
    counts: Mapping[str, int] | None = None
    stated: Mapping[str, Stated] | None = None
    whole: bool = False

    def pinned(self, *, versions: bool) -> Shards:
        """Return these shards, with ``versions`` with version ids, which all later reads ask for: a HEAD for each."""
        if not versions:
            return self
        source = self.source
        source.check_versioned(self.base)
        metas = source.stat_many([each.key for each in self.found], versions=True)
        found = [Shard(meta.key, meta.size, meta.etag) for meta in metas]
        for now, then in zip(found, self.found, strict=True):
            if now.size != then.size or then.etag not in ("", tag_of(now.etag)):
                raise Changed("the shard was replaced meanwhile: repeat the call", url=source.url(now.key))
        return self._replace(found=found)

    def sided(self, side: str | None, store: StoreOptions | str | None, *, labels: bool) -> Shards:
        """Return these shards with side indexes, or with the counts of a wids JSON file."""
        if side is None:
            return self
        if str(side).endswith(".json"):
            check_counted(self.format)
            source, key = open_source(side, store)
            try:
                return self._listed(wids_shards(source.read(Span(key))))
            except PenstockError as error:
                error.url = error.url or source.url(key)
                raise
        check_side(side, self.format, labels=labels)
        return self._replace(side=side)

    def _listed(self, listed: Mapping[str, Listed]) -> Shards:
        """Return these shards with the counts of wids; raise ``Damaged`` if it states another size or a lost shard."""
        sizes = {each.key.rpartition("/")[2]: each.size for each in self.found}
        for name, each in listed.items():
            if self.whole and name not in sizes:
                raise Damaged(f"the index lists {name!r}, which does not exist: pass a glob or list to read the rest")
            if each.size not in (None, sizes.get(name, each.size)):
                raise Damaged(f"the index declares {each.size} bytes for {name!r}, which has {sizes[name]}")
        return self._replace(counts={name: each.samples for name, each in listed.items()})

    def check_count(self, shard: Shard, samples: int) -> None:
        """Raise ``Damaged`` if a shard has another number of samples than its index says."""
        if self.stated is not None and self.stated[shard.key].samples != samples:
            raise Damaged(
                f"{INDEX} states {self.stated[shard.key].samples:,} samples, and the shard has {samples:,}: write the "
                "index again, or pass the URLs of the shards",
                url=self.source.url(shard.key),
            )
        if self.counts is None:
            return
        wanted = self.counts.get(shard.key.rpartition("/")[2])
        if wanted != samples:
            known = "does not name it" if wanted is None else f"says {wanted:,} samples"
            raise Damaged(
                f"the index {known}, and the shard has {samples:,}: write the index again; if it is one of wids, and "
                "the shard is right, pass index=None",
                url=self.source.url(shard.key),
            )

    def check_some(self, table: Table) -> None:
        """Raise ``NotFound`` if the table is empty; arguments such as ``skip`` may have left out every sample."""
        form, left = self.format, ""
        if table.rows:
            return
        if isinstance(form, ArchiveFormat) and (form.wanted or form.skip or callable(form.key)):
            left = f" with fields={form.fields}, missing={form.missing!r}, skip={form.skip} and key={form.key!r}"
        message = f"no sample was found in {counted(len(self.found), 'shard')}{left}"
        raise NotFound(message, url=self.source.url(self.base))

    def walk(self, shard: Shard) -> Generator[Ask | Span, memoryview, Extents]:
        """Find the samples of a shard: by its side index, or by a walk."""
        if self.side:
            data = yield Span(side_key(self.side, shard.key))
            return (yield from side_walk(self.side, cast("TarFormat", self.format), bytes(data), shard.size))
        if self.stated is not None:
            return (yield from cast("MdsFormat", self.format).stated_walk(shard.size, self.stated[shard.key]))
        return (yield from self.format.walk(shard.size))

    def named(self, folder: str, stated: Sequence[Stated]) -> Shards:
        """Return these shards, if listed in the index.json of a folder, in its order."""
        there = {each.key: each for each in self.found}
        files = stated_files(self.source, folder, stated, {each.key: each.size for each in self.found})
        found = [there[key] for key in files]
        return self._replace(found=found, stated=files, format=settle_format(self.format, [*files]))


def expand_braces(pattern: str) -> list[str]:
    """Return the texts that a pattern with braces stands for: ``{000..127}`` counts, ``{a,b}`` lists."""
    pieces: list[Sequence[str]] = []
    at, count = 0, 1
    for brace in _BRACES.finditer(pattern):
        choices = _choices(brace[1], pattern)
        count *= len(choices)
        if count > _MOST_URLS:
            raise InvalidURL(f"the braces stand for more than {_MOST_URLS} shards", url=pattern)
        pieces += [(pattern[at : brace.start()],), choices]
        at = brace.end()
    pieces.append((pattern[at:],))
    if any(each in text for text, *_ in pieces[::2] for each in "{}"):
        raise InvalidURL("the braces are not in pairs: {000..127} counts, {a,b} lists", url=pattern)
    return ["".join(each) for each in product(*pieces)]


def _choices(inside: str, pattern: str) -> Sequence[str]:
    found = _NUMBERS.fullmatch(inside)
    if found is None:
        choices = inside.split(",")
        if len(choices) == 1:
            raise InvalidURL(f"{{{inside}}} is neither numbers {{000..127}} nor a list {{a,b}}", url=pattern)
        return choices
    first, last = int(found[1]), int(found[2])
    if last < first or last - first >= _MOST_URLS:
        raise InvalidURL(f"{{{inside}}} must count upwards, to at most {_MOST_URLS} shards", url=pattern)
    # As in a shell: the longer of both has the width, if one is filled up with zeros.
    padded = any(len(each) > 1 and each.startswith("0") for each in found.groups())
    width = max(map(len, found.groups())) if padded else 0
    return [f"{number:0{width}d}" for number in range(first, last + 1)]


def find_shards(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    given: str | ShardFormat | None,
    arguments: Mapping[str, object],
    store: StoreOptions | str | None,
) -> Shards:
    """Return the shards that ``urls`` name: see ``Catalog.from_shards``.

    Costs the LIST requests of a prefix or glob, or a HEAD for each shard that is named.
    """
    # Arguments are checked before the first request.
    if isinstance(urls, (set, frozenset)):
        raise Unusable("a set of URLs has another order in each process, and ranks would differ: pass sorted(…)")
    form = None if given is None else format_by(given, (), arguments)
    single = isinstance(urls, str) or not hasattr(urls, "__iter__")
    patterns = [_pattern(urls)] if single else [_pattern(each) for each in urls]  # type: ignore[union-attr]
    if single and not _BRACES.search(patterns[0]):
        source, key = open_source(patterns[0], store)
        if form is not None and form.name in _LITDATA:
            return _read_litdata_index(source, key, cast("ColumnFormat", form))
        if (form is None or form.name == "mds") and f"/{key}".endswith(f"/{INDEX}"):
            return _read_mds_index(source, key, cast("MdsFormat", form or format_by("mds", (), arguments)))
        if _WILD.search(key) or not is_shard(key, form):
            try:
                base, found = _list_shards(source, key, form, os.fspath(urls))  # type: ignore[arg-type]
            except NotFound:
                if (empty := _empty(source, key, form)) is None:
                    raise
                return empty
            keys = [each.key for each in found]
            if not split_of(key[len(base) :])[0]:
                warn_of_splits(source, base, [each[len(base) :] for each in keys])
            suggest_saving(source, base, len(keys), form)
            form = form or format_by(None, keys, arguments)
            return _apply_mds_index(Shards(source, base, found, form, whole=not key or key.endswith("/")), key)
    if form is not None and form.name in _LITDATA:
        raise Unusable(f'format="litdata" takes the URL of one folder, or of its {INDEX}; join several with ps.concat')
    return _singly(patterns, form, arguments, store)


def _pattern(given: object) -> str:
    """Return a URL of shards in its usual form; refuse the commands that WebDataset takes in place of URLs."""
    if isinstance(given, str) and given.startswith("pipe:"):
        raise InvalidURL(f"cannot read ranges of the output of a command: pass the URL that it copies, got {given!r}")
    return parse(given).url  # type: ignore[arg-type]  # it refuses other types


def _singly(
    patterns: Sequence[str], form: ShardFormat | None, arguments: Mapping[str, object], store: StoreOptions | str | None
) -> Shards:
    """Return the shards that URLs with braces name one by one; a HEAD for each."""
    places = [parse(each) for pattern in patterns for each in expand_braces(pattern)]
    if not places:
        raise NotFound("the list of shards is empty")
    if stray := [place.url for place in places if place.root != places[0].root]:
        raise InvalidURL(f"not in {places[0].root}: join datasets of several buckets with ps.concat", url=stray[0])
    keys = [place.key for place in places]
    if folder := next((place.url for place in places if not place.key or place.key.endswith("/")), ""):
        raise InvalidURL(f"{_SINGLE}, and the URL is a prefix", url=folder)
    if len(set(keys)) < len(keys):
        twice = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise InvalidURL("the shard is named twice", url=places[0].at(twice).url)
    form = settle_format(form or format_by(None, keys, arguments), keys)
    for key in keys:
        is_shard(key, form)
    source, _ = open_source(places[0].root, store)
    try:
        found = [Shard(meta.key, meta.size, meta.etag) for meta in source.stat_many(keys)]
    except NotFound as error:
        if any(_WILD.search(key) or "::" in key for key in keys):
            error.message = f"{error.message}: {_SINGLE}"
        raise
    # Compare by character, not by path component: keys are not paths.
    shared = os.path.commonprefix(keys)  # noqa: RUF071
    return Shards(source, shared[: shared.rfind("/") + 1], found, form)


def added_shards(source: Source, key: str, form: ShardFormat, after: bytes) -> Shards:
    """Return the shards below the prefix ``key``, or that the glob ``key`` matches, whose keys sort after ``after``."""
    if form.name in _LITDATA:
        raise Unusable("a catalog of LitData's chunks cannot be refreshed: scan again", url=source.url(key))
    if _BRACES.search(key):
        raise Unusable("a refresh cannot find new shards by braces: pass their prefix, or a glob", url=source.url(key))
    base, _, found = _find_shards(source, key, form, after)
    return _apply_mds_index(Shards(source, base, found, form), key, after)


def _read_mds_index(source: Source, key: str, form: MdsFormat) -> Shards:
    """Return the shards that an index.json of MDS names: a HEAD for each."""
    stated = read_stated(source, key, empty=True)
    if stated is None:
        raise NotFound(f"this {INDEX} does not exist", url=source.url(key))
    folder = key.removesuffix(INDEX)
    names = dict.fromkeys((*named_files(folder, stated, packed=True), *named_files(folder, stated, packed=False)))
    found = [Shard(meta.key, meta.size, meta.etag) for meta in source.stat_existing([*names]) if meta is not None]
    return Shards(source, folder, found, form).named(folder, stated)


def _empty(source: Source, key: str, form: ShardFormat | None) -> Shards | None:
    """Return no shards if a folder's index.json of MDS has none, as after a writer without samples."""
    if (form is None or form.name == "mds") and not _WILD.search(key):
        with suppress(PenstockError):
            if read_stated(source, as_folder(key) + INDEX, empty=True) == []:
                return Shards(source, as_folder(key), [], form or format_by("mds", (), {}))
    return None


def _read_litdata_index(source: Source, key: str, form: ColumnFormat) -> Shards:
    """Return the chunks that the index.json of LitData in a folder names: a HEAD for each."""
    key = key if f"/{key}".endswith(f"/{INDEX}") else as_folder(key) + INDEX
    named, described = read_described(source, key, form)
    folder = key.removesuffix(INDEX)
    found = [Shard(meta.key, meta.size, meta.etag) for meta in source.stat_many([folder + each.name for each in named])]
    if read_described(source, key, form) != (named, described):
        raise Changed("the index was replaced while its chunks were looked up: repeat the call", url=source.url(key))
    form = described
    for shard, each in zip(found, named, strict=True):
        if each.size not in (-1, shard.size):
            raise Damaged(
                f"{INDEX} states {each.size} bytes, and the chunk has {shard.size}: one of them is older",
                url=source.url(shard.key),
            )
    if may_have_rows(form) and found[0].size >= HEAD_BYTES:
        form = form_of_rows(form, source.read(Span(found[0].key, 0, HEAD_BYTES, found[0].etag)))
    return Shards(source, folder, found, form, counts={each.name: each.samples for each in named})


def _apply_mds_index(shards: Shards, key: str, after: bytes = b"") -> Shards:
    """Return the shards below the prefix ``key`` that its index.json names, if they are MDS and there is one.

    A glob needs none. Only shards whose keys sort after ``after`` were listed.
    """
    if shards.format.name not in ("mds", "mds.zst"):
        return shards
    folder, keys = as_folder(key), [each.key for each in shards.found]
    if not _WILD.search(key) and any(each.startswith(folder) for each in keys):
        stated = read_stated(shards.source, folder + INDEX)
        if stated is not None:
            check_strays(shards.source, folder, stated, keys)
            files = zip(stated, named_files(folder, stated, packed=False), strict=True)
            return shards.named(folder, [each for each, name in files if encode(name) > after])
    return shards._replace(format=settle_format(shards.format, keys))


def _list_shards(source: Source, key: str, form: ShardFormat | None, given: str) -> tuple[str, list[Shard]]:
    """Return the shards below the prefix ``key``, or those that the glob ``key`` matches, and their base."""
    base, rows, found = _find_shards(source, key, form)
    if not found:
        if not rows:
            wild = bool(_WILD.search(key))
            advice = "in a glob, * stays in one folder, **/ does not, and [[] is a bracket" if wild else ""
            prefix, given = (fixed_part(key)[0], _WILD.split(given)[0]) if wild else (key, given)
            raise absent(source, prefix, given, chosen=False, instead=advice)
        ends = ", ".join(suffixes() if form is None else form.suffixes)
        raise NotFound(f"none of the {rows} objects is a shard ({ends}){_other(key, form)}", url=source.url(key))
    return base, found


def _other(key: str, form: ShardFormat | None) -> str:
    """Return advice for a single object whose name has another format; empty: no advice."""
    tokens = TokenFile.suffixes
    if form is None and key.endswith(tokens):
        return ": ps.TokenDataset.from_shards reads files of tokens"
    if key.endswith(TABLES):
        return f": {TABLE_ADVICE}"
    if form is not None and form.suffixes != tokens:
        return "; for files of other names, pass a glob"
    if form is None:
        return '; for shards of other names, pass a glob and format=, and for chunks of LitData format="litdata"'
    return (
        ": ps.MapDataset.from_shards reads it"
        if is_shard(key, None)
        else "; for tokens in a file of another name, pass a list of URLs"
    )


def _find_shards(
    source: Source, key: str, form: ShardFormat | None, after: bytes | None = None
) -> tuple[str, int, list[Shard]]:
    """Return the base of a prefix or glob, the number of objects there, and the shards among them."""
    prefix, wild = fixed_part(key) if _WILD.search(key) else (key, "")
    base, table = listed(source, prefix, ScanOptions(known=None if after is None else Beyond(after)))
    chosen = selector(key[len(base) :]) if wild else None
    left = Leftovers(prefix, [key[len(base) :]] if wild else (), shards=True)
    found, rows, log = [], 0, ""

    def takes(below: str) -> bool:
        name = base + below
        # A glob, and the whole name of an object, choose by themselves; of a prefix only shards are taken.
        exact = chosen is not None or (name == key and not isinstance(form, TokenFile))
        return (chosen is None or chosen(below, 1)) and (is_shard(name, form) or (exact and form is not None))

    for row in range(table.rows):
        name = table.keys.text(row)
        if chosen is None and not log and _TABLE_LOG.search(name, max(len(base) - 1, 0)):
            log = name
        below = name[len(base) :]
        rows += chosen is None or chosen(below, 1)
        if left.mark(below):
            with suppress(Unsupported):
                # Counted if it would be a shard by another name.
                _ = takes(below) and left.wanted(below)
        elif takes(below):
            found.append(Shard(name, table.sizes.view[row], table.etags.text(row)))
    report_left_out(source, prefix, takes, left)
    if not found and after is None:
        _explain_absence(source, key, left, map(table.keys.text, range(0 if form or chosen else table.rows)))
    if log and any(each.key.lower().endswith(".parquet") for each in found):
        raise Unusable(
            "this is the log of a table, which says which files count, and other files hold rows that were "
            "deleted: pass the URLs of those that count as a list (Delta Lake: DeltaTable(…).file_uris())",
            url=source.url(log),
        )
    if any(each.size < 0 for each in found):
        found = [Shard(meta.key, meta.size, meta.etag) for meta in source.stat_many([each.key for each in found])]
    return base, rows, found


def _explain_absence(source: Source, key: str, left: Leftovers, names: Iterable[str]) -> None:
    """Raise ``NotFound`` that names the objects found in place of shards: leftovers, or files of frames or sound."""
    if len(left):
        raise NotFound(f"found no shard, only leftovers: {left}", url=source.url(key))
    if media := next((name for name in names if name.endswith(MEDIA)), ""):
        raise NotFound(f"found no shard: {MEDIA_ADVICE}", url=source.url(media))


def read_shard_indexes(
    shards: Shards,
    labels: Rule | None,
    *,
    progress: bool | None,
    journal: ShardJournal | None = None,
    allow_empty: bool = False,
) -> Table:
    """Return ``index_shards``, with a bar of the shards and their bytes."""
    size_bytes = sum(each.size for each in shards.found)
    with bar("indexing shards", len(shards.found), size_bytes, shown=progress) as count:
        table = index_shards(shards, labels, KeptWalks(count, journal))
    if not (switch(allow_empty, "allow_empty") or table.rows):
        shards.check_some(table)
    return table


def index_shards(shards: Shards, labels: Rule | None, walks: KeptWalks) -> Table:
    """Return the table of the samples of ``shards``, in order: shard by shard, each in the order of its bytes."""
    found = [walks.known(shard) for shard in shards.found]
    coming = []
    for number, (shard, extents) in enumerate(zip(shards.found, found, strict=True)):
        if extents is None:
            coming.append(number)
        else:
            shards.check_count(shard, len(extents.offsets))
            walks.count(1, shard.size)
    for number, extents in walked(shards, coming):
        shard = shards.found[number]
        if labels is None:
            extents = extents._replace(keys=())  # noqa: PLW2901  keys are needed for labels alone
        shards.check_count(shard, len(extents.offsets))
        found[number] = extents
        walks.add(shard, extents)
        walks.count(1, shard.size)
    every = cast("list[Extents]", found)
    table = table_of_extents(shards, every)
    if labels is None:
        return gather_regions(table)
    base = len(shards.base)
    blocks = (
        [f"{shard.key[base:]}/{key}" for key in each.keys or [""] * len(each.offsets)]
        for shard, each in zip(shards.found, every, strict=True)
    )
    return gather_regions(table.having(classes=classify_rows(labels, blocks, table.rows, None)))


class KeptWalks:
    """Walks of an earlier process, if there is a journal of them, and the count of shards and their bytes."""

    def __init__(self, count: Callable[[int, int], None], journal: ShardJournal | None = None) -> None:
        self.count = count
        self._journal = journal

    def known(self, shard: Shard) -> Extents | None:
        """Return the samples found in this version of a shard; None if it must be walked."""
        found = self._journal and self._journal.known.get(shard.key)
        if not found or not shard.etag or (found.size, found.etag) != (shard.size, shard.etag):
            return None
        offsets, sizes = (np.array(each, np.int64) for each in (found.offsets, found.sizes))
        units = found.units and Units(*(np.array(each, np.int64) for each in found.units))
        return Extents(offsets, sizes, found.keys, found.schema, units or None)

    def add(self, shard: Shard, extents: Extents) -> None:
        if self._journal is not None:
            offsets, sizes, keys, schema, found = extents
            units = None if found is None else [each.tolist() for each in found]
            walked = Walked(shard.size, shard.etag, offsets.tolist(), sizes.tolist(), [*keys], schema, units)
            self._journal.add(shard.key, walked)


def table_of_extents(shards: Shards, found: Sequence[Extents], labels: Sequence[bytes] | None = None) -> Table:
    """Return the table of samples, given the extents of each shard, and the label of each sample as JSON."""
    form = shards.format
    for shard, each in zip(shards.found, found, strict=True):
        try:
            form = form.having(each.schema)
        except PenstockError as error:
            error.url = shards.source.url(shard.key)
            raise
    # A shard without samples has no row, and a table has no key without one.
    held = [(shard, each) for shard, each in zip(shards.found, found, strict=True) if len(each.offsets)]
    found = [each for _, each in held]
    counts = np.array([len(each.offsets) for each in found], dtype=np.int64)
    objects = np.repeat(np.arange(len(found), dtype=np.int64), counts)
    offsets = np.concatenate([np.zeros(0, np.int64), *(each.offsets for each in found)])
    sizes = np.concatenate([np.zeros(0, np.int64), *(each.sizes for each in found)])
    units = None
    if form.in_units:
        units = units_of([cast("Units", each.units) for each in found], [each.offsets for each in found])
    none = Strings(memoryview(b""), memoryview(np.zeros(len(sizes) + 1, np.uint64)))  # type: ignore[arg-type]
    return Table.of(
        sizes,
        _strings([encode(shard.key) for shard, _ in held]),
        _strings([shard.etag.encode() for shard, _ in held]),
        none if labels is None else _strings(labels),
        ranges_of(objects, offsets),
    ).having(format=form, units=units)


def _strings(texts: Sequence[bytes]) -> Strings:
    ends = np.cumsum([0, *map(len, texts)], dtype=np.uint64)
    return Strings(memoryview(b"".join(texts)), memoryview(ends))  # type: ignore[arg-type]  # an array is a buffer


def walked(shards: Shards, numbers: Iterable[int]) -> Iterator[tuple[int, Extents]]:
    """Yield the number and the extents of each of these shards, as its walk ends.

    A shard of ``shards.found`` whose listing named no version gets that of its first bytes: the rest of the walk, and
    later its samples, are read in it.
    """
    walks = _ShardWalks(shards, numbers)
    with shards.source.lookahead(walks.spans()) as reads, suppress(StopIteration):
        while True:
            walks.take(reads.advance())
            yield from walks.ended()
    yield from walks.ended()


class _ShardWalks:
    """Walks through shards, each waiting for requested bytes; as many as the format allows at once."""

    def __init__(self, shards: Shards, numbers: Iterable[int]) -> None:
        self._shards, self._source = shards, shards.source
        self._coming = iter(numbers)
        self._most = shards.format.most_walks
        self._asking: deque[tuple[int, _Walk, Span]] = deque()  # whose bytes were not requested yet
        self._waiting: deque[tuple[int, _Walk]] = deque()  # in the order of their requests
        self._ended: deque[tuple[int, Extents]] = deque()

    def spans(self) -> Iterator[Span]:
        """Yield the requests of walks, and begin further walks."""
        while True:
            while (
                len(self._asking) + len(self._waiting) < self._most and (each := next(self._coming, None)) is not None
            ):
                self._step(each, self._shards.walk(self._shards.found[each]), None)
            if self._asking:
                number, walk, span = self._asking.popleft()
                self._waiting.append((number, walk))
                yield span
            elif self._waiting:
                yield PAUSE
            else:
                return

    def take(self, read: ReadOperation) -> None:
        """Give the bytes of the first request to its walk."""
        number, walk = self._waiting.popleft()
        data, shard = read.take(), self._shards.found[number]
        if not shard.etag and read.span.key == shard.key:
            self._shards.found[number] = shard._replace(etag=read.version)
        self._step(number, walk, memoryview(data))

    def ended(self) -> Iterator[tuple[int, Extents]]:
        while self._ended:
            yield self._ended.popleft()

    def _step(self, number: int, walk: _Walk, data: memoryview | None) -> None:
        shard = self._shards.found[number]
        try:
            ask = next(walk) if data is None else walk.send(data)
        except StopIteration as end:
            self._ended.append((number, end.value))
        except PenstockError as error:
            error.url = self._source.url(shard.key)
            raise
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, zlib.error) as error:
            message = f"cannot read the {self._shards.format.name} file: {error!r}"
            raise Damaged(message, url=self._source.url(shard.key)) from error
        else:
            span = ask if isinstance(ask, Span) else Span(shard.key, *ask, shard.etag, most=shard.size)
            self._asking.append((number, walk, span))
