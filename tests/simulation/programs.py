"""Files written as programs do, with mistakes, errors and Ctrl-C; listings in small pages.

Only the program itself writes to the keys of its files. So it is known, at each step, what must be there.
"""

from __future__ import annotations

import contextlib
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import penstock as ps
from penstock.errors import Conflict, NotFound
from penstock.testing.faults import azure, dialect
from penstock.testing.faults.script import FAULTS
from penstock.values import Span
from tests.simulation.scenario import LIES, Run, Wrong, watched
from tests.simulation.store import BUCKET
from tests.simulation.world import _replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from penstock.testing.faults.message import Request
    from penstock.testing.faults.script import Fault

_SETTLED_S = 60.0


@contextmanager
def punctual(run: Run) -> Iterator[None]:
    """Let no request of a sender that has gone reach the store: then only the program decides what is there."""
    weather = run.world.store.weather
    late, weather.late = weather.late, 0.0
    try:
        yield
    finally:
        weather.late = late


def _content(run: Run, key: str, dice: Random) -> bytes:
    """Return new text of any size, long enough to be told from all others."""
    run.made += 1
    word = f"<{key}:{run.made:05d}>\n"
    return (word * dice.choice((2, 100, 1000, 4000))).encode()


# -- files written by hand -------------------------------------------------------------------------------------------


class _Mistake(Exception):
    """An error of the user's own code."""


def _plain(run: Run, key: str, data: bytes, dice: Random) -> bool:
    with ps.open(run.url(key), "wb", store=run.world.options) as file:
        _fill(file, data, dice)
    return True


def _text(run: Run, key: str, data: bytes, _dice: Random) -> bool:
    with ps.open(run.url(key), "w", store=run.world.options) as file:
        for line in data.decode().splitlines(keepends=True):
            file.write(line)
    return True


def _put(run: Run, key: str, data: bytes, _dice: Random) -> bool:
    run.bucket.put(key, data)
    return True


def _closed_in_handler(run: Run, key: str, data: bytes, dice: Random) -> bool:
    """Close a file in a clause that handles an error: it is published."""
    file = ps.open(run.url(key), "wb", store=run.world.options)
    try:
        _fill(file, data, dice)
        raise _Mistake
    except _Mistake:
        file.close()
    return True


def _closed_by_callee(run: Run, key: str, data: bytes, dice: Random) -> bool:
    """Call a function that closes a file while the caller handles an error."""

    def end() -> None:
        if dice.random() < 0.5:
            file.close()
        else:
            with file:
                pass

    file = ps.open(run.url(key), "wb", store=run.world.options)
    _fill(file, data, dice)
    try:
        next(iter(()))
    except StopIteration:
        end()
    return True


def _opened_in_handler(run: Run, key: str, data: bytes, dice: Random) -> bool:
    try:
        raise _Mistake
    except _Mistake:
        file = ps.open(run.url(key), "wb", store=run.world.options)
        _fill(file, data, dice)
        file.close()
    return True


def _left(run: Run, key: str, data: bytes, dice: Random) -> bool:
    """Leave the block of a file by an error: nothing is published."""
    mode = dice.choice(("wb", "w"))
    with suppress(_Mistake), ps.open(run.url(key), mode, store=run.world.options) as file:
        _fill(file, data if mode == "wb" else data.decode(), dice)
        raise _Mistake
    return False


def _left_closing(run: Run, key: str, data: bytes, dice: Random) -> bool:
    with suppress(_Mistake), contextlib.closing(ps.open(run.url(key), "wb", store=run.world.options)) as file:
        _fill(file, data, dice)
        raise _Mistake
    return False


def _closed_at_last(run: Run, key: str, data: bytes, dice: Random) -> bool:
    """Close a file in a ``finally`` that an error runs through: nothing is published."""
    file = ps.open(run.url(key), "wb", store=run.world.options)
    try:
        try:
            _fill(file, data, dice)
            raise _Mistake
        finally:
            file.close()
    except _Mistake:
        return False
    return True


def _dropped(run: Run, key: str, data: bytes, dice: Random) -> bool:
    mode = dice.choice(("wb", "xb"))
    # Some stores refuse a second object at the first part.
    file = ps.open(run.url(key), "wb" if key in run.world.store.objects else mode, store=run.world.options)
    _fill(file, data, dice)
    del file
    return False


def _aborted(run: Run, key: str, data: bytes, dice: Random) -> bool:
    file = ps.open(run.url(key), "wb", store=run.world.options)
    _fill(file, data, dice)
    file.abort()
    if dice.random() < 0.5:
        file.close()
    return False


_WAYS = (_plain, _text, _put, _closed_in_handler, _closed_by_callee, _opened_in_handler)
_WAYS += (_left, _left_closing, _closed_at_last, _dropped, _aborted)


def _fill(file: Any, data: Any, dice: Random) -> None:
    at = 0
    while at < len(data):
        size = dice.choice((1000, 20_000, 70_000))
        file.write(data[at : at + size])
        at += size


def files(run: Run, dice: Random) -> None:
    """Write a file as programs do: closed at odd places, left by errors, dropped, interrupted and written anew."""
    key = f"files/{dice.randrange(2)}"
    with punctual(run):
        if dice.random() < 0.35:
            _interrupted(run, key, dice)
        else:
            _by_hand(run, key, dice)


def _by_hand(run: Run, key: str, dice: Random) -> None:
    store, way, data = run.world.store, dice.choice(_WAYS), _content(run, key, dice)
    before, published, uploads = store.objects.get(key), False, {*store.dialect.buckets[BUCKET].uploads}
    run.world.trace(f"{way.__name__} {key}")
    with watched(run) as seen:
        published = way(run, key, data, dice)
        seen.until = run.world.clock.now
        if published and (key not in store.objects or store.objects[key].data != data):
            raise Wrong(f"a file at {key} was closed by {way.__name__}, and is not there")
    if isinstance(seen.error, (Conflict, NotFound)) and not store.happened & {*LIES}:
        raise Wrong(f"a file of our own could not be written: {seen.error!r}") from seen.error
    run.world.clock.sleep(_SETTLED_S)
    now = store.objects.get(key)
    if not published and seen.error is None and now is not before:
        raise Wrong(f"a file at {key} was given up by {way.__name__}, and is there")
    if now is not before and (now is None or now.data != data):
        raise Wrong(f"{key} holds neither what was there nor what was written")
    if not published and seen.error is None:
        run.forbidden.append((key, data))
        _require_no_upload(run, key, seen, uploads)
    if published and dice.random() < 0.5:
        with watched(run), ps.open(run.url(key), "r", store=run.world.options) as file:
            if file.read() != data.decode():
                raise Wrong(f"{key} was read as something else than it was written")


def _require_no_upload(run: Run, key: str, seen: watched, before: set[str]) -> None:
    """Require that a file that was given up left no parts in a store that answered all requests."""
    store = run.world.store
    calm = not store.happened and not store.weather.unconnected and store.down_until <= seen.since
    left = store.dialect.buckets[BUCKET].uploads.keys() - before
    if calm and store.settings.dialect != "azure" and left:
        raise Wrong(f"a file at {key} was given up, and its parts are still in the store")


def _interrupted(run: Run, key: str, dice: Random) -> None:
    """Write a file, press Ctrl-C meanwhile, and write it anew: the first one never comes back."""
    store, world, way = run.world.store, run.world, dice.choice((_plain, _text, _put, _closed_in_handler))
    first, second = _content(run, key, dice), _content(run, key, dice)
    armed = True

    def press() -> None:
        if armed:
            world.trace("Ctrl-C")
            raise KeyboardInterrupt

    delay_s = world.store.weather.usual_s * dice.choice((2, 6, 20)) * dice.random()
    world.wire.at(world.clock.now + delay_s, press)
    with watched(run):
        with suppress(KeyboardInterrupt):
            way(run, key, first, dice)
        armed = False
        way = dice.choice((_plain, _text, _put))
        way(run, key, second, dice)
        world.trace(f"{key} was written anew")
        world.clock.sleep(_SETTLED_S)
        if store.objects[key].data != second:
            raise Wrong(f"{key} was written anew after Ctrl-C, and the interrupted write came later")
    armed = False
    world.clock.sleep(_SETTLED_S)


# -- reads -----------------------------------------------------------------------------------------------------------


class _Plot:
    """Faults of one read: it breaks off, its rest is slow and then comes without its range, and so on.

    By chance these meet once in millions of requests: a second request is sent only where nearly all others succeed.
    """

    def __init__(self, run: Run, key: str, start: int) -> None:
        self.store, self.key, self.start = run.world.store, key, start
        self.tail = self.store.weather.tail
        self.seen = {"first": 0, "rest": 0}

    def __call__(self, request: Request, dice: Random, **_how: object) -> Fault | None:
        """Return the fault of a request, and decide how long its answer is under way."""
        self.store.weather.tail = self.tail
        if request.key != self.key or request.verb != "get":
            return None
        which = "first" if f"={self.start}-" in request.headers.get("range", "") else "rest"
        self.seen[which] += 1
        self.store.weather.tail = 1.0 if which == "rest" or dice.random() < 0.5 else self.tail
        first = self.seen[which] == 1
        if which == "rest":
            return FAULTS["range-whole"] if first and dice.random() < 0.5 else None
        return FAULTS["reset-body"] if first else FAULTS["range-other"] if dice.random() < 0.3 else None


def pinned(run: Run, dice: Random) -> None:
    """Read spans of versions that are known; one of them breaks off, and is slow, until second requests win."""
    store = run.world.store
    if not run.world.options.read.hedge:
        return
    keys = [f"pinned/{number}" for number in range(4)]
    for key in keys:
        if key not in store.objects:
            # No two of its pieces are equal.
            store.put(key, dice.randbytes(60_000))
    # Long after others had to wait for their rate.
    run.world.clock.sleep(15.0)
    with _replace(store, "_fault", lambda *_how, **_more: None), watched(run):
        # The usual times have to be known before a request is late.
        run.bucket.read_many([Span(key, 0, 100) for key in keys for _ in range(3)])
    for _ in range(2):
        starts = [(key, dice.randrange(1, 20_000), dice.randrange(45_000, 60_000)) for key in keys]
        tail, plot = store.weather.tail, _Plot(run, *starts[0][:2])
        with _replace(store, "_fault", plot), watched(run) as seen:
            # The rest of a body is requested only of a version that is known.
            spans = [Span(key, low, high, store.version(store.objects[key])) for key, low, high in starts]
            for (key, low, high), data in zip(starts, run.bucket.read_many(spans), strict=True):
                if data != store.objects[key].data[low:high]:
                    raise Wrong(f"{key}[{low}:{high}] is not what the object holds")
        store.weather.tail = tail
        if isinstance(seen.error, (Conflict, NotFound)):
            raise Wrong(f"an object that nobody changed cannot be read: {seen.error!r}") from seen.error


# -- listings --------------------------------------------------------------------------------------------------------


def pages(run: Run, dice: Random) -> None:
    """List many keys in small pages, while others of them come and go."""
    store, prefix = run.world.store, "pages/"
    keys = [f"{prefix}{number:02d}" for number in range(12)]
    for key in keys:
        if key not in store.objects and dice.random() < 0.8:
            store.put(key, key.encode())
    if run.writer:
        for _ in range(dice.randint(0, 6)):
            key = dice.choice(keys)
            how = dice.choice((lambda key: store.objects.pop(key, None), lambda key: store.put(key, b"new")))
            delay_s = store.weather.usual_s * 20 * dice.random()
            run.world.wire.at(run.world.clock.now + delay_s, lambda key=key, how=how: how(key))
    size = dice.randint(1, 4)
    with _replace(dialect, "_MOST_KEYS", size), _replace(azure, "_MOST_KEYS", size), watched(run) as seen:
        metas = list(ps.list(run.url(prefix), store=run.world.options))
        seen.until = run.world.clock.now
        listed = [meta.key for meta in metas]
        if listed != sorted(set(listed)):
            raise Wrong(f"keys are listed twice, or out of order: {listed}")
        for key in keys:
            alive = store.alive(key, seen.since, seen.until)
            if None not in alive and key not in listed:
                raise Wrong(f"{key} was there all the time, and is not listed")
            if alive == [None] and key in listed:
                raise Wrong(f"{key} never was there meanwhile, and is listed")
    if isinstance(seen.error, (Conflict, NotFound)):
        raise Wrong(f"a listing failed: {seen.error!r}") from seen.error


OPERATIONS: dict[str, Callable[[Run, Random], None]] = {each.__name__: each for each in (files, pinned, pages)}
