"""Operations of a scenario, each with what must hold after it, whatever the network and other writers do."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import penstock as ps
from penstock import source
from penstock.copies import move_object
from penstock.errors import (
    AlreadyExists,
    Bug,
    Changed,
    Conflict,
    Damaged,
    Denied,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Transient,
    Unusable,
)
from penstock.values import Span
from tests.simulation.plan import LATER, LIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from penstock.testing.faults.dialect import Stored
    from tests.simulation.world import World

KEYS = ("a", "b", "data/c", "data/d", "data/e é", "f")
TTL_S = 3.0
PATIENCE_S = 60.0
GRACE = 1.25
_UNIQUE_BYTES = 30


class Wrong(AssertionError):
    """A promise that was broken."""


@dataclass
class Run:
    """A scenario under way.

    Attributes:
        world: Its world.
        cache: Mode of the cache; empty without one.
        writer: Whether another process writes to the bucket meanwhile.
        crowded: Whether other processes under test run at the same time.
        forbidden: Contents that must never be seen at a key.

    """

    world: World
    cache: str = ""
    writer: bool = False
    crowded: bool = False
    forbidden: list[tuple[str, bytes]] = field(default_factory=list)
    made: int = 0
    # What the process under test keeps in memory, by name.
    kept: dict[str, Any] = field(default_factory=dict)
    shards: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    tokens: list[tuple[float, int]] = field(default_factory=list)
    saved: dict[int, str] = field(default_factory=dict)
    saved_by_ranks: dict[int, str] = field(default_factory=dict)
    step: int = 0
    jobs: int = 0

    @property
    def bucket(self) -> source.Source:
        return source.open_source(self.world.url, self.world.options)[0]

    def url(self, key: str) -> str:
        return self.world.url + key

    def content(self, key: str, dice: Random) -> bytes:
        """Return new content: each part of it tells which one it is of."""
        self.made += 1
        word = f"<{key}:{self.made:05d}>".encode()
        size = dice.choice((0, 1, 100, 5_000, 20_000, dice.randrange(70_000), dice.randrange(300_000)))
        return (word * (size // len(word) + 1))[:size]

    def disturb(self, dice: Random, keys: Sequence[str] = KEYS) -> None:
        """Let another writer change a few objects soon: mostly the given ones, while their answers are on the way."""
        for _ in range(dice.choice((0, 1, 1, 2)) if self.writer else 0):
            key = dice.choice(keys if dice.random() < 0.8 else KEYS)
            delay_s = self.world.store.weather.usual_s * dice.choice((2, 5, 10, 100)) * dice.random()
            self.world.wire.at(self.world.clock.now + delay_s, lambda key=key: self.change(key, dice))

    def change(self, key: str, dice: Random) -> None:
        """Replace, delete or recreate an object, as another writer."""
        store, before = self.world.store, self.world.store.objects.get(key)
        kind = dice.choice(("new", "same size", "delete", "again"))
        if kind == "delete":
            store.objects.pop(key, None)
        elif kind == "again" and before is not None:
            store.put(key, before.data)
        else:
            data = self.content(key, dice)
            if kind == "same size" and before is not None:
                size = len(before.data)
                data = (data * (size // max(1, len(data)) + 1))[:size] if data else before.data
            store.put(key, data)
        self.world.trace(f"another writer: {kind} {key}")


class watched:  # noqa: N801  a context manager
    """The time and the faults of one operation, and which of its errors are honest."""

    def __init__(self, run: Run) -> None:
        self.run, self.world = run, run.world
        self.error: PenstockError | None = None
        self.reach: dict[str, int] = {}
        self.written: tuple[str, ...] = ()
        self.reads: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        self.since = self.world.clock.now
        if not self.run.crowded:
            self.world.store.happened.clear()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> bool:
        self.until = self.world.clock.now
        took_s = self.until - self.since
        if took_s > PATIENCE_S * GRACE * 4:
            raise Wrong(f"an operation took {took_s:.1f} s with a patience of {PATIENCE_S} s") from error
        if not isinstance(error, PenstockError):
            return False
        self.error = error
        happened = self.world.store.happened
        if isinstance(error, Bug):
            raise Wrong(f"a bug: {error!r}") from error
        # Refused credentials are renewed; when patience ends meanwhile, the refusal is the last error.
        refused = self.world.store.tokens is not None and (isinstance(error, Denied) or type(error) is Unusable)
        in_vain = refused and self.world.store.tokens.renewed_in_vain(self.since)
        in_vain = in_vain or LATER in happened
        if (isinstance(error, Transient) or refused) and not in_vain and took_s < PATIENCE_S * 0.5:
            raise Wrong(f"given up after {took_s:.1f} s: {error!r}") from error
        if isinstance(error, Damaged) and not happened & {*LIES, "truncate"} and not self.explained():
            raise Wrong(f"damage where nothing lied: {error!r}") from error
        if not refused and not isinstance(error, (Transient, Damaged, Conflict, NotFound)):
            raise Wrong(f"an error that nothing here explains: {error!r}") from error
        return True

    def explained(self) -> bool:
        """Return whether other writers explain damage: an object that ended early, or replaced what was written."""
        if self.run.world.store.deaf and any(
            len(self.world.store.alive(key, 0.0, self.until)) > 1 for key in self.reads or KEYS
        ):
            return True
        return self.short() or any(len(self.world.store.alive(key, self.since, self.until)) > 2 for key in self.written)

    def short(self) -> bool:
        """Return whether an object may have ended before the bytes that were asked for."""
        found = [(each, stop) for key, stop in self.reach.items() for each in self.alive(key)]
        return any(each is not None and len(each.data) < stop for each, stop in found)

    def alive(self, key: str) -> list[Stored | None]:
        since = self.since - (TTL_S if self.run.cache == "ttl" else 0.0)
        return self.world.store.alive(key, since, self.until)

    def honest(self, keys: tuple[str, ...], *, pinned: bool = False) -> None:
        """Refuse an error that the store gave no cause for."""
        error = self.error
        versions = [self.alive(key) for key in keys]
        if isinstance(error, NotFound) and not any(None in each for each in versions):
            raise Wrong(f"missing, and it was there: {error!r}") from error
        changed = pinned or any(len(each) > 1 for each in versions) or self.world.store.happened & {*LIES}
        if isinstance(error, Changed) and not changed:
            raise Wrong(f"changed, and it was not: {error!r}") from error


class unhurried(watched):  # noqa: N801  a context manager
    """A job of many requests, each of which may take as long as others: only that it ends is required."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        began, self.since = self.since, max(self.since, self.world.clock.now - PATIENCE_S)
        try:
            return super().__exit__(kind, error, trace)
        finally:
            self.since = began


def check_bytes(seen: watched, key: str, data: bytes, span: slice, version: str) -> None:
    """Require that bytes are of one version of an object that was there meanwhile, and that it is the one named."""
    store, versions = seen.world.store, seen.alive(key)
    fits = [each for each in versions if each is not None and each.data[span] == data]
    if not fits:
        raise Wrong(
            f"{len(data)} bytes of {key}[{span.start}:{span.stop}] are of no version that was there: {data[:30]!r}"
        )
    if not version:
        raise Wrong(f"bytes of {key} come without their version")
    if "etag" not in store.ever and version not in [store.version(each) for each in fits]:
        raise Wrong(f"bytes of {key} come with version {version}, which is of others")


def _some(dice: Random, size: int) -> tuple[int, int]:
    start = dice.randrange(max(1, size))
    return start, dice.randrange(start, size + 1) if dice.random() < 0.9 else size


# -- operations ------------------------------------------------------------------------------------------------------


def read_span(run: Run, dice: Random) -> None:
    """Read a span, or the end, of an object as it is now."""
    key = dice.choice(KEYS)
    run.disturb(dice, (key,))
    stored = run.world.store.objects.get(key)
    size = len(stored.data) if stored is not None else 100
    if dice.random() < 0.4:
        count = dice.choice((1, 20, size + 10, max(1, size // 2)))
        span, cut = Span(key, -count), slice(-count, None)
    else:
        start, stop = _some(dice, size)
        span, cut = Span(key, start, max(stop, start + 1)), slice(start, max(stop, start + 1))
    with watched(run) as seen:
        seen.reach[key] = cut.stop or 1
        data, version = run.bucket.read_version(span)
        seen.until = run.world.clock.now
        check_bytes(seen, key, data, cut, version)
    if seen.error is not None and not seen.short():
        seen.honest((key,))


def read_many(run: Run, dice: Random) -> None:
    """Read several spans at once, some of one object: they are of one version, or the read fails."""
    keys = [dice.choice(KEYS) for _ in range(dice.randint(2, 6))]
    run.disturb(dice, keys)
    spans = []
    for key in keys:
        stored = run.world.store.objects.get(key)
        start, stop = _some(dice, len(stored.data) if stored is not None else 100)
        spans.append(Span(key, start, max(stop, start + 1)))
    with watched(run) as seen:
        seen.reach = {span.key: span.stop or 1 for span in sorted(spans, key=lambda each: each.stop or 1)}
        found = run.bucket.read_versions(spans)
        seen.until = run.world.clock.now
        for span, (data, version) in zip(spans, found, strict=True):
            check_bytes(seen, span.key, data, slice(span.start, span.stop), version)
        for key in set(keys):
            of_key = [(span, data) for span, (data, _) in zip(spans, found, strict=True) if span.key == key]
            versions = [each for each in seen.alive(key) if each is not None]
            if not any(all(each.data[span.start : span.stop] == data for span, data in of_key) for each in versions):
                raise Wrong(f"spans of {key} are of more than one version")


def read_file(run: Run, dice: Random) -> None:
    """Open an object as a file and read here and there: all of it is of the version that was opened."""
    key, pieces = dice.choice(KEYS), []
    run.disturb(dice, (key,))
    with watched(run) as seen:
        with ps.open(run.url(key), store=run.world.options) as file:
            seen.until = run.world.clock.now
            opened = [each for each in seen.alive(key) if each is not None]
            size = file.seek(0, io.SEEK_END)
            for _ in range(dice.randint(1, 6)):
                at = file.seek(dice.choice((0, dice.randrange(size + 1), max(0, size - 10))))
                count = dice.choice((-1, 1, 100, 10_000))
                pieces.append((at, file.read(count), count))
                run.disturb(dice, (key,))
        for at, data, count in pieces:
            opened = [each for each in opened if each.data[at : None if count < 0 else at + count] == data]
        if not opened:
            raise Wrong(f"reads of one file of {key} are not of the version that was opened")
    if seen.error is not None:
        seen.honest((key,), pinned=run.writer)


def stat(run: Run, dice: Random) -> None:
    """Look at an object."""
    key = dice.choice(KEYS)
    run.disturb(dice, (key,))
    with watched(run) as seen:
        meta = ps.stat(run.url(key), store=run.world.options)
        seen.until = run.world.clock.now
        versions = [each for each in seen.alive(key) if each is not None]
        if (meta.size, meta.etag) not in [(len(each.data), run.world.store.version(each)) for each in versions]:
            raise Wrong(f"no version of {key} has {meta.size} bytes and version {meta.etag}")
    if seen.error is not None:
        seen.honest((key,))


def list_keys(run: Run, dice: Random) -> None:
    """List a prefix: each object that is there all the time comes once, and none that never was."""
    prefix = dice.choice(("", "data/", "a", "none/"))
    run.disturb(dice)
    with watched(run) as seen:
        metas = list(ps.list(run.url(prefix), store=run.world.options))
        seen.until = run.world.clock.now
        keys = [meta.key for meta in metas]
        if keys != sorted(set(keys), key=str.encode):
            raise Wrong(f"keys are listed twice, or out of order: {keys}")
        for key in KEYS:
            versions = seen.world.store.alive(key, seen.since, seen.until)
            if key.startswith(prefix) and None not in versions and key not in keys:
                raise Wrong(f"{key} was there all the time, and is not listed")
        for meta in metas:
            alive = [each for each in seen.alive(meta.key) if each is not None]
            if (meta.size, meta.etag) not in [(len(each.data), run.world.store.version(each)) for each in alive]:
                raise Wrong(f"{meta.key} is listed as what it never was meanwhile")


def write(run: Run, dice: Random) -> None:
    """Write an object, in one request or in parts, perhaps on a condition, perhaps given up."""
    key = dice.choice(KEYS)
    run.disturb(dice, (key,))
    data = run.content(key, dice) + b"!"
    condition = dice.choice(("", "", "create", "replace"))
    gives_up = dice.random() < 0.2
    now = run.world.store.objects.get(key)
    replaces = run.world.store.version(now) if condition == "replace" and now is not None else ""
    with watched(run) as seen:
        seen.written = (key,)
        try:
            with run.bucket.open_write(key, create_only=condition == "create", replaces=replaces) as file:
                for at in range(0, len(data), 40_000):
                    file.write(data[at : at + 40_000])
                if gives_up:
                    # A shorter text may be that of another write.
                    run.forbidden += [(key, data)] if len(data) > _UNIQUE_BYTES else []
                    raise _GaveUp
        except _GaveUp:
            return
        seen.until = run.world.clock.now
        _check_written(seen, key, data, condition, replaces)
    if isinstance(seen.error, NotFound):
        raise Wrong(f"a write of {key} misses something: {seen.error!r}") from seen.error
    if isinstance(seen.error, (AlreadyExists, PreconditionFailed)):
        if not condition:
            raise Wrong(f"a write without a condition failed for one: {seen.error!r}") from seen.error
        if condition == "create" and seen.alive(key) == [None]:
            raise Wrong(f"{key} was never there, and exists already: {seen.error!r}") from seen.error


def _check_written(seen: watched, key: str, data: bytes, condition: str, replaces: str) -> None:
    """Require that an acknowledged write took effect, and only where its condition held."""
    store = seen.world.store
    ours = _ours(seen.run, key, data, seen.since, seen.until)
    if not ours:
        raise Wrong(f"a write of {key} was acknowledged, and never was there")
    # OSS has no condition on a version.
    heeded = store.settings.conditions == "heeded" and store.settings.dialect != "oss"
    if heeded and condition == "create" and all(before is not None for before in ours):
        raise Wrong(f"a create-only write replaced {key}")
    if heeded and replaces and all(before is None or store.version(before) != replaces for before in ours):
        raise Wrong(f"a write that replaces {replaces} replaced another version of {key}")


class _GaveUp(Exception):
    """The user's error within a ``with`` block of a file."""


def _ours(run: Run, key: str, data: bytes, since: float, until: float) -> list[Stored | None]:
    """Return what our writes replaced, for each time that ours took effect."""
    history = run.world.store.history.get(key, [])
    return [
        history[at - 1].stored if at else None
        for at, version in enumerate(history)
        if version.stored is not None and version.stored.data == data and since <= version.since <= until
    ]


def delete(run: Run, dice: Random) -> None:
    """Delete an object."""
    key = dice.choice(KEYS)
    run.disturb(dice, (key,))
    with watched(run) as seen:
        ps.delete(run.url(key), store=run.world.options)
        seen.until = run.world.clock.now
        if None not in run.world.store.alive(key, seen.since, seen.until):
            raise Wrong(f"{key} was deleted, and was there all the time")


def copy(run: Run, dice: Random) -> None:
    """Copy an object within the bucket."""
    key, dest = dice.sample(KEYS, 2)
    run.disturb(dice, (key, dest))
    with watched(run) as seen:
        seen.written = (dest,)
        ps.copy(run.url(key), run.url(dest), store=run.world.options)
        seen.until = run.world.clock.now
        versions = [each.data for each in run.world.store.alive(key, seen.since, seen.until) if each is not None]
        if not any(_ours(run, dest, data, seen.since, seen.until) for data in versions):
            raise Wrong(f"{dest} never was a copy of {key}")
    if seen.error is not None:
        seen.honest((key,), pinned=run.writer)


def move(run: Run, dice: Random) -> None:
    """Move an object within the bucket: its content is never lost, nor that of another writer deleted unseen."""
    key, dest = dice.sample(KEYS, 2)
    run.disturb(dice, (key,))
    store, before = run.world.store, run.world.store.objects.get(key)
    with watched(run) as seen:
        seen.written = (dest,)
        move_object(run.bucket, key, run.bucket, dest)
        seen.until = run.world.clock.now
        versions = [each.data for each in store.alive(key, seen.since, seen.until) if each is not None]
        if not any(_ours(run, dest, data, seen.since, seen.until) for data in versions):
            raise Wrong(f"{dest} never was a copy of {key}")
        if None not in store.alive(key, seen.since, seen.until):
            raise Wrong(f"{key} was moved, and was there all the time")
    if before is not None and not run.writer:
        here = [store.objects[each].data for each in (key, dest) if each in store.objects]
        if before.data not in here:
            raise Wrong(f"{key} was moved to {dest}, and its content is at neither")
    if seen.error is not None:
        seen.honest((key,), pinned=run.writer)


OPERATIONS: dict[str, Callable[[Run, Random], None]] = {
    each.__name__: each for each in (read_span, read_many, read_file, stat, list_keys, write, delete, copy, move)
}
