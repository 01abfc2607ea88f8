"""Operations of datasets: each sample is of the version that was listed or indexed, once an epoch, or an error."""

from __future__ import annotations

import io
import tarfile
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock as ps
from penstock.errors import Conflict, Damaged, NotFound
from tests.simulation.scenario import KEYS, LIES, Run, Wrong, watched

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

MEMBERS = 5
SHARDS = 2


def whole(sample: Any) -> bytes:
    """Return a sample's bytes."""
    return bytes(sample.data)


def member(sample: Any) -> tuple[str, bytes]:
    """Return a member of a shard: its key and bytes."""
    return sample.key, bytes(sample["bin"].data)


@dataclass(frozen=True, slots=True)
class Opened:
    """A dataset, and what its samples may be: by key, one of these."""

    dataset: Any
    allowed: dict[str, set[bytes]]
    versions: list[dict[str, bytes]]
    since: float


def make_tar(items: list[tuple[str, bytes]]) -> bytes:
    """Return a tar file of members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in items:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def make_zip(items: list[tuple[str, bytes]]) -> bytes:
    """Return a zip file of members, not compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in items:
            archive.writestr(zipfile.ZipInfo(name, (2027, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


_MAKERS: dict[str, Callable[[list[tuple[str, bytes]]], bytes]] = {"tar": make_tar, "zip": make_zip}


def fill_shard(run: Run, key: str, dice: Random) -> None:
    """Write a shard: members of the same names as ever, with new content, often of other lengths."""
    kind = key.rpartition(".")[2]
    shard = key.rpartition("/")[2].partition(".")[0]
    same = dice.random() < 0.5
    items = []
    for number in range(MEMBERS):
        run.made += 1
        size = 700 if same else dice.randrange(1, 3000)
        word = f"<{shard}.{number}:{run.made:05d}>".encode()
        items.append((f"{shard}-{number}.bin", (word * (size // len(word) + 1))[:size]))
    make = _MAKERS[kind]
    stored = run.world.store.put(key, make(items))
    run.shards.setdefault(key, {})[run.world.store.version(stored)] = {
        name.removesuffix(".bin"): data for name, data in items
    }


def _disturb_shards(run: Run, keys: list[str], dice: Random) -> None:
    for _ in range(dice.choice((0, 1, 2)) if run.writer else 0):
        key = dice.choice(keys)

        def rewrite(key: str = key) -> None:
            fill_shard(run, key, dice)
            run.world.trace(f"another writer: new {key}")

        delay_s = run.world.store.weather.usual_s * dice.choice((2, 5, 10, 100)) * dice.random()
        run.world.wire.at(run.world.clock.now + delay_s, rewrite)


def _check(found: list[tuple[str, bytes]], opened: Opened) -> None:
    """Require that samples are of the version of their shard that was there when the index was made."""
    for key, data in found:
        if not any(version.get(key) == data for version in opened.versions):
            raise Wrong(f"sample {key} holds {data[:24]!r}, of no version that was there when it was indexed")
    # Samples of one shard are of one version of it.
    for prefix in {key.rpartition("-")[0] for key, _ in found}:
        its = [(key, data) for key, data in found if key.rpartition("-")[0] == prefix]
        if not any(all(version.get(key) == data for key, data in its) for version in opened.versions):
            raise Wrong(f"samples of shard {prefix} are of several versions of it")


def _honest(run: Run, seen: watched, keys: list[str], since: float) -> None:
    if seen.error is None or seen.world.store.happened & {*LIES}:
        return
    changed = any(len(run.world.store.alive(key, since, seen.until)) > 1 for key in keys)
    if isinstance(seen.error, (Conflict, NotFound)) and not changed:
        raise Wrong(f"nothing had changed: {seen.error!r}") from seen.error


def _index(run: Run, kind: str, keys: list[str]) -> None:
    """Index the shards, and keep the dataset; its samples are of versions that are there meanwhile."""
    with watched(run) as seen:
        seen.reads = tuple(keys)
        since = run.world.clock.now
        url = run.url(f"shards/{kind}/")
        made = ps.MapDataset.from_shards(url, transform=member, store=run.world.options)
        store = run.world.store
        alive = [each for key in keys for each in store.alive(key, since, run.world.clock.now) if each is not None]
        named = {store.version(each) for each in alive}
        versions = [items for key in keys for version, items in run.shards[key].items() if version in named]
        run.kept[kind] = Opened(made, {}, versions, since)
        if len(made) != SHARDS * MEMBERS:
            raise Wrong(f"{len(made)} samples are indexed, and there are {SHARDS * MEMBERS}")
    _honest(run, seen, keys, since)


def _opened(run: Run, dice: Random) -> tuple[Opened | None, list[str]]:
    """Index shards, or take the index of an earlier step; return it with the keys of the shards."""
    kind = dice.choice(tuple(_MAKERS))
    keys = [f"shards/{kind}/{number}.{kind}" for number in range(SHARDS)]
    for key in keys:
        if key not in run.world.store.objects:
            fill_shard(run, key, dice)
    _disturb_shards(run, keys, dice)
    if kind not in run.kept or dice.random() < 0.3:
        _index(run, kind, keys)
    return run.kept.get(kind), keys


def shards(run: Run, dice: Random) -> None:
    """Index shards, or use the index of an earlier step; read some samples, or an epoch, in some order."""
    kept, keys = _opened(run, dice)
    if kept is None:
        return
    found: list[tuple[str, bytes]] = []
    order = dice.choice((False, True, ps.order.Lanes(2), ps.order.BlockShuffle(block_bytes=3000, window_blocks=2)))
    with watched(run) as seen:
        seen.reads = tuple(keys)
        if dice.random() < 0.5:
            found = kept.dataset.__getitems__([dice.randrange(len(kept.dataset)) for _ in range(dice.randint(1, 6))])
            _check(found, kept)
        else:
            catalog = kept.dataset.catalog
            epoch = ps.IterableDataset(
                catalog, transform=member, shuffle=order, seed=dice.randrange(99), store=run.world.options
            )
            for sample in epoch:
                found.append(sample)
                if dice.random() < 0.1:
                    _disturb_shards(run, keys, dice)
            _check(found, kept)
            names = sorted(key for key, _ in found)
            if names != sorted(f"{shard}-{number}" for shard in range(SHARDS) for number in range(MEMBERS)):
                raise Wrong(f"an epoch gave {names}")
    if seen.error is not None:
        _check(found, kept)
    _honest(run, seen, keys, kept.since)


def skips(run: Run, dice: Random) -> None:
    """Load an epoch that leaves out what cannot be read: each sample comes once, or is counted as left out."""
    kept, keys = _opened(run, dice)
    if kept is None:
        return
    order = dice.choice((False, True, ps.order.Lanes(2), ps.order.BlockShuffle(block_bytes=3000, window_blocks=2)))
    batched = kept.dataset.batched(dice.randint(1, 4), shuffle=order, collate_fn=list)
    found: list[tuple[str, bytes]] = []
    left: list[str] = []
    with watched(run) as seen:
        seen.reads = tuple(keys)
        # The loader's threads would have no part in the virtual time.
        try:
            for delivery in batched.deliveries("skip")[0]:
                found += delivery.batch
                left += [repr(each) for each in delivery.skipped]
        except Damaged as error:
            # Ranks need a batch each, so an empty one ends the epoch.
            if "no sample of a batch" not in str(error):
                raise
            return
        if len(found) + len(left) != SHARDS * MEMBERS:
            raise Wrong(f"an epoch gave {len(found)} samples and left out {left}")
    _check(found, kept)
    names = [key for key, _ in found]
    if len(set(names)) < len(names):
        raise Wrong(f"an epoch gave samples twice: {sorted(names)}")
    store = run.world.store
    changed = any(len(store.alive(key, kept.since, run.world.clock.now)) > 1 for key in keys)
    if left and not (store.happened or store.weather.unconnected or store.down_until > seen.since or changed):
        raise Wrong(f"the store gave no cause, and samples were left out: {left}")


def objects(run: Run, dice: Random) -> None:
    """Read samples of listed objects, some time after they were listed."""
    run.disturb(dice, [key for key in KEYS if key.startswith("data/")])
    kept: Opened | None = run.kept.get("objects")
    store = run.world.store
    if kept is None or dice.random() < 0.3:
        with watched(run) as seen:
            since = run.world.clock.now
            made = ps.MapDataset.from_prefix(
                run.url("data/"), transform=lambda each: (each.key, whole(each)), store=run.world.options
            )
            until = run.world.clock.now
            allowed = {
                key: {each.data for each in store.alive(key, since, until) if each is not None} for key in store.history
            }
            kept = run.kept["objects"] = Opened(made, allowed, [], since)
        # Without an object there is no dataset.
        if seen.error is not None and not isinstance(seen.error, NotFound):
            _honest(run, seen, list(store.history), since)
    if kept is None or not len(kept.dataset):
        return
    with watched(run) as seen:
        seen.reads = tuple(store.history)
        rows = [dice.randrange(len(kept.dataset)) for _ in range(dice.randint(1, 4))]
        for key, data in kept.dataset.__getitems__(rows):
            if data not in kept.allowed.get(key, ()):
                raise Wrong(f"sample {key} holds {data[:24]!r}, and was not listed so")
    _honest(run, seen, list(store.history), kept.since)


def tokens(run: Run, dice: Random) -> None:
    """Read windows of token files that may be written anew."""
    key = "tokens/0.bin"

    def write() -> None:
        run.made += 1
        run.world.store.put(key, np.full(4000, run.made, "<u2").tobytes())
        run.tokens.append((run.world.clock.now, run.made))

    if key not in run.world.store.objects:
        write()
    if run.writer and dice.random() < 0.5:
        run.world.wire.at(run.world.clock.now + dice.random() * 0.1, write)
    since = run.world.clock.now
    with watched(run) as seen:
        seen.reads = (key,)
        dataset = run.kept.get("tokens")
        if dataset is None or dice.random() < 0.3:
            dataset = run.kept["tokens"] = (
                ps.TokenDataset.from_shards(run.url("tokens/"), dtype="uint16", length=64, store=run.world.options),
                since,
                [],
            )
        made, _, had = dataset
        rows = [dice.randrange(len(made)) for _ in range(dice.randint(1, 5))]
        for window in made.__getitems__(rows):
            text = str(np.unique(np.concatenate([np.asarray(each).ravel() for each in _arrays(window)])).tolist())
            had.append(text)
        values = set(had)
        if len(values) > 1:
            raise Wrong(f"windows of one token file hold tokens of several versions: {sorted(values)}")
    if seen.error is not None and run.kept.get("tokens"):
        _honest(run, seen, [key], run.kept["tokens"][1])


def _arrays(window: Any) -> list[Any]:
    return list(window.values()) if isinstance(window, dict) else [window]
