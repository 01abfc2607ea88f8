"""Jobs that run again after their input changed, by processes that may die: the result is that of the input as it is.

Only the program itself writes to the trees of these operations.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import penstock as ps
from penstock.errors import Changed, Conflict, NotFound, PenstockError, Unusable
from penstock.jobs import tasks
from penstock.testing.faults import azure, dialect
from penstock.values import Span
from tests.simulation.durable import survives
from tests.simulation.scenario import LIES, Run, Wrong, unhurried, watched
from tests.simulation.world import _replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

_LIVES = 8
# Share of the steps that do nothing: a job takes as long as tens of other operations.
_IDLE = 0.5


@contextmanager
def inline() -> Iterator[None]:
    """Let jobs make their blocking calls on the thread that needs them."""

    def call(threads: Any, function: Callable[[], object]) -> Any:
        made = tasks._Call(function)
        threads.under_way += 1
        made.run(threads._stop)
        threads._inbox.finished(made)
        return made

    with _replace(tasks._Threads, "call", call):
        yield


class _Tree:
    """A prefix of objects that only the program changes."""

    def __init__(self, run: Run, prefix: str, dice: Random) -> None:
        self.run, self.prefix, self.dice = run, prefix, dice
        for number in range(dice.randint(1, 5)):
            self.write(f"{number:02d}.bin")

    @property
    def objects(self) -> dict[str, bytes]:
        return _below(self.run, self.prefix)

    def write(self, name: str, size: int = 0) -> None:
        self.run.made += 1
        word = f"<{name}:{self.run.made:05d}>".encode()
        size = size or self.dice.choice((30, 700, 5000, 40_000))
        self.run.world.store.put(self.prefix + name, (word * (size // len(word) + 1))[:size])

    def change(self) -> str:
        """Replace an object, often by one of equal size, add one, or delete one that is not the last."""
        names, kind = [*self.objects], self.dice.choice(("new", "same size", "same size", "add", "delete"))
        name = self.dice.choice(names)
        if kind == "delete" and len(names) > 1:
            del self.run.world.store.objects[self.prefix + name]
        elif kind == "add":
            self.write(f"{len(names) + self.dice.randrange(3):02d}.bin")
        else:
            self.write(name, len(self.objects[name]) if kind == "same size" else 0)
        self.run.world.trace(f"the program: {kind} {name}")
        self.run.world.clock.sleep(self.dice.choice((0.0, 0.0, 3.0)))
        return kind


def _attempt(run: Run, dice: Random, do: Callable[[], Any]) -> tuple[Any, PenstockError | None]:
    """Do something by processes that die, until one of them ends; return its result, or its error."""
    ended, found = False, None
    for _ in range(_LIVES):
        with inline(), unhurried(run) as seen:
            try:
                ended, found = survives(run, dice, do)
            except Unusable as error:
                # Another job, or a finished pack, is at the place of its records.
                if "job" not in str(error):
                    raise
                return None, error
        if seen.error is not None or ended:
            return found, seen.error
    return None, Changed("all processes died")


def _lied(run: Run) -> bool:
    return bool(run.world.store.happened & {*LIES, "truncate"})


class _Comparison:
    """A tree, and what it is compared with: a catalog, another tree, or the digests of its earlier states."""

    def __init__(self, run: Run, base: str, dice: Random) -> None:
        self.run, self.base = run, base
        self.tree, self.kind = _Tree(run, f"{base}from/", dice), dice.choice(("catalog", "catalog", "tree", "digest"))
        self.catalog: dict[str, bytes] = {}
        self.planned: dict[str, bytes] | None = None
        self._digests: dict[str, dict[str, bytes]] = {}

    @property
    def url(self) -> str:
        return self.run.url(self.tree.prefix)

    @property
    def against(self) -> str | None:
        return {"catalog": self.run.url(f"{self.base}index.catalog"), "tree": self.run.url(f"{self.base}to/")}.get(
            self.kind
        )

    @property
    def wanted(self) -> dict[str, bytes]:
        if self.kind == "catalog":
            return self.catalog
        return _below(self.run, f"{self.base}to/") if self.kind == "tree" else self.tree.objects

    @property
    def fits(self) -> bool:
        now = self.tree.objects
        return all(now.get(name) == data for name, data in self.wanted.items())

    def renew(self) -> bool:
        """Let the other side be what the tree is now; return whether it could be written."""
        if self.kind == "tree":
            for name, data in self.tree.objects.items():
                self.run.world.store.put(f"{self.base}to/{name}", data)
        if self.kind != "catalog":
            return True
        with unhurried(self.run) as seen:
            ps.Catalog.scan(self.url, progress=False, store=self.run.world.options).save(
                str(self.against), store=self.run.world.options
            )
            self.catalog = self.tree.objects
        return seen.error is None

    def check(self, digest: str, *, job: bool) -> None:
        """Require that a tree that was found to fit does; parts of a job are not looked at again."""
        if job:
            self.planned = self.planned or self.wanted
            if self.kind == "catalog" and self.planned != self.wanted:
                raise Wrong("a job that compared with another catalog was taken for this one")
            return
        if not self.fits:
            raise Wrong(f"a tree was verified against a {self.kind} that differs from it")
        if self.kind == "digest" and self._digests.setdefault(digest, self.tree.objects) != self.tree.objects:
            raise Wrong("two trees have one digest")


def _below(run: Run, prefix: str) -> dict[str, bytes]:
    there = run.world.store.objects
    return {key[len(prefix) :]: there[key].data for key in sorted(there) if key.startswith(prefix)}


def verifies(run: Run, dice: Random) -> None:
    """Compare a tree with a catalog, a tree or its digest, several times, while both change in between."""
    if dice.random() < _IDLE:
        return
    run.jobs += 1
    base = f"verify/{run.jobs}/"
    compared = _Comparison(run, base, dice)
    for number in range(dice.randint(2, 4)):
        if number and dice.random() < 0.6:
            compared.tree.change()
        if (not number or dice.random() < 0.5) and not compared.renew():
            return
        job: dict[str, Any] = {"job": run.url(f"{base}job/"), "part_objects": 2} if dice.random() < 0.3 else {}
        with unhurried(run) as seen, inline():
            try:
                found = ps.verify(compared.url, compared.against, progress=False, store=run.world.options, **job)
            except Unusable as error:
                if "has a different job" not in str(error):
                    raise
            else:
                compared.check(found.digest, job=bool(job))
        if isinstance(seen.error, (Conflict, NotFound)) and not _lied(run) and compared.fits:
            raise Wrong(f"a tree that fits its {compared.kind} was refused: {seen.error!r}") from seen.error


def _members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {each.name: tar.extractfile(each).read() for each in tar.getmembers()}  # type: ignore[union-attr]


@dataclass(slots=True)
class _Packed:
    """What is packed: objects below a URL, a catalog of them with labels, or a dataset with a transform."""

    run: Run
    tree: _Tree
    kind: str
    label: int = 0
    version: int = 0

    def source(self) -> Any:
        url, store = self.run.url(self.tree.prefix), self.run.world.options
        if self.kind == "labels":
            found = ps.Catalog.scan(url, progress=False, store=store)
            return found.with_labels([f"{self.label}"] * len(found))
        if self.kind == "transform":
            # Of equal length whatever the version is: only the bytes tell.
            return ps.MapDataset.from_prefix(url, transform=_transform(self.version), store=store)
        return url

    def pack(self, dest: str, how: dict[str, Any]) -> Any:
        # Each process may have other code: it writes all shards anew.
        self.version += how["overwrite"]
        return ps.pack(self.source(), dest, progress=False, store=self.run.world.options, **how)

    def check(self, base: str, catalog: Any) -> None:
        """Require that the shards hold what is packed as it is now, each sample once, with its label."""
        there = _below(self.run, f"{base}shard-")
        found = [pair for name in there if name.endswith(".tar") for pair in _members(there[name]).items()]
        wanted = self.tree.objects
        if self.kind == "transform":
            wanted = {name: bytes([65 + self.version]) + data[1:] for name, data in wanted.items()}
        if sorted(found) != sorted(wanted.items()):
            stale = sorted(name for name, data in found if wanted.get(name) != data)
            names = sorted(name for name, _ in found)
            raise Wrong(f"a pack has ended, and its shards hold {names}, of {[*wanted]}; of other content: {stale}")
        if len(catalog) != len(wanted):
            raise Wrong(f"the catalog of a pack has {len(catalog)} samples, and there are {len(wanted)}")
        labels = {catalog.label(row) for row in range(len(catalog))} if self.kind == "labels" else set[Any]()
        if catalog.classes:
            labels = {catalog.classes[each] for each in labels}
        if labels - {f"{self.label}"}:
            raise Wrong(f"a pack has ended, and its catalog has the labels {labels}, of before")


def packs(run: Run, dice: Random) -> None:
    """Pack a tree, again after objects, labels or the transform changed, by processes that may die."""
    if dice.random() < _IDLE:
        return
    run.jobs += 1
    base, most = f"packs/{run.jobs}/", 2
    packed = _Packed(run, _Tree(run, f"{base}from/", dice), dice.choice(("url", "labels", "labels", "transform")))
    job = {"job": run.url(f"{base}job/")} if packed.kind == "labels" and dice.random() < 0.3 else {}
    for number in range(dice.randint(2, 3)):
        changed = dice.choice(("", "tree", "other")) if number else ""
        overwrite = dice.random() < 0.5 or bool(job)
        if changed == "tree":
            packed.tree.change()
        elif changed == "other":
            packed.label += 1
        most = most if job else dice.choice((2, 2, 100))
        how = {**job, "samples": most, "overwrite": overwrite}
        found, error = _attempt(run, dice, partial(packed.pack, run.url(f"{base}to/"), how))
        if error is None:
            packed.check(f"{base}to/", found)
        elif packed.kind == "transform":
            # Which version its shards hold is not known then.
            return


def _transform(version: int) -> Callable[[Any], Any]:
    def changed(sample: Any) -> Any:
        data = bytes([65 + version]) + bytes(sample.data)[1:]
        return ps.Sample(sample.url.removesuffix(sample.key), Span(sample.key, 0, len(data), sample.etag), data)

    return changed


def syncs(run: Run, dice: Random) -> None:
    """Sync or copy a tree again after objects changed on either side, by processes that may die."""
    if dice.random() < _IDLE:
        return
    run.jobs += 1
    base, options, store = f"syncs/{run.jobs}/", run.world.options, run.world.store
    tree, dest = _Tree(run, f"{base}from/", dice), f"{base}to/"
    for _ in range(dice.randint(2, 3)):
        how: dict[str, Any] = {"checksum": dice.random() < 0.5, "delete": dice.random() < 0.5}
        do = partial(ps.sync, run.url(tree.prefix), run.url(dest), progress=False, store=options, **how)
        surplus = _below(run, dest).keys() - tree.objects.keys()
        _, error = _attempt(run, dice, do)
        there = _below(run, dest)
        if error is None:
            _check_synced(there, tree.objects, delete=how["delete"])
        elif not surplus <= there.keys() and not tree.objects.keys() <= there.keys():
            raise Wrong(f"a sync has failed to copy, and has deleted {sorted(surplus - there.keys())}")
        elif isinstance(error, (Conflict, NotFound)) and not _lied(run) and str(error) != "all processes died":
            raise Wrong(f"a sync of our own trees failed: {error!r}") from error
        # An object that is replaced twice within a second counts as the same without ``checksum`` (docs/sync.md).
        run.world.clock.sleep(2.0)
        for _ in range(dice.randint(0, 2)):
            tree.change()
        if dice.random() < 0.2 and there:
            store.put(dest + dice.choice(sorted(there)), b"another")


def _check_synced(there: dict[str, bytes], wanted: dict[str, bytes], *, delete: bool) -> None:
    for name, data in wanted.items():
        if there.get(name) != data:
            raise Wrong(f"a sync has ended, and {name} is {'missing' if name not in there else 'another'}")
    if delete and there.keys() - wanted.keys():
        raise Wrong(f"a sync has ended, and {sorted(there.keys() - wanted.keys())} is there")


def indexes(run: Run, dice: Random) -> None:
    """Index a tree into a catalog, again after it changed, by processes that may die and go on with what was found."""
    if dice.random() < _IDLE:
        return
    run.jobs += 1
    base, options = f"indexes/{run.jobs}/", run.world.options
    tree, to = _Tree(run, f"{base}from/", dice), run.url(f"{base}index.catalog")
    url, began = run.url(tree.prefix), run.world.clock.now
    size = dice.randint(1, 3)
    with tempfile.TemporaryDirectory() as folder, _replace_cache(folder):
        for _ in range(2):
            how = {"include": dice.choice(((), (), ("*0*",), ("*1*",))), "restart": dice.random() < 0.2}
            ended, since = False, began
            for _ in range(3):
                # A restart that is killed at its first request leaves the journal of the listing before.
                since = run.world.clock.now if how["restart"] else began
                with _replace(dialect, "_MOST_KEYS", size), _replace(azure, "_MOST_KEYS", size), unhurried(run) as seen:
                    ended, _found = survives(
                        run, dice, lambda how=how: ps.index(url, to, progress=False, store=options, **how)
                    )
                if seen.error is not None or ended:
                    break
                if dice.random() < 0.3:
                    tree.change()
            if ended and seen.error is None:
                _check_index(run, tree, to, how["include"], since)
                began = run.world.clock.now
            elif isinstance(seen.error, Conflict) and not _lied(run):
                raise Wrong(f"a catalog of our own could not be written: {seen.error!r}") from seen.error
            if dice.random() < 0.6:
                tree.change()


@contextmanager
def _replace_cache(folder: str) -> Iterator[None]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


def _check_index(run: Run, tree: _Tree, to: str, include: tuple[str, ...], began: float) -> None:
    store, until = run.world.store, run.world.clock.now
    with watched(run):
        catalog = ps.Catalog.open(to, store=run.world.options)
        spans = {span.key: span for span in catalog.spans(range(len(catalog)))}
        for key in [key for key in store.history if key.startswith(tree.prefix)]:
            alive = store.alive(key, began, until)
            chosen = not include or include[0].strip("*") in key[len(tree.prefix) :].removesuffix(".bin")
            span = spans.pop(key, None)
            if span is None:
                if chosen and None not in alive:
                    raise Wrong(f"{key} was there all the time, and is not in the catalog")
            elif not chosen:
                raise Wrong(f"{key} is in the catalog, and was not chosen")
            elif not any(each and (len(each.data), store.version(each)) == (span.stop, span.etag) for each in alive):
                raise Wrong(f"{key} is in the catalog as what it never was since the listing began")
        if spans:
            raise Wrong(f"{sorted(spans)} are in the catalog, and never were there")


OPERATIONS: dict[str, Callable[[Run, Random], None]] = {
    each.__name__: each for each in (verifies, packs, syncs, indexes)
}
