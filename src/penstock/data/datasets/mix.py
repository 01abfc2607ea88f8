"""``ps.Mix``: several datasets as one stream: each has its share, and iterates over its own samples."""

from __future__ import annotations

import hashlib
import logging
import operator
import os
import struct
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Never, TypeVar, cast, get_args

import numpy as np
from torch.utils.data import IterableDataset as TorchIterableDataset

from penstock.data.datasets.batched import BatchableDataset, Batched, SourceShare
from penstock.data.datasets.concat import ConcatIterable, ConcatMap, JoinedDataset, unify_labels
from penstock.data.datasets.inspection import PlannedSample
from penstock.data.datasets.iterable import IterableDataset
from penstock.data.datasets.map import DatasetPart, MapDataset, part_of
from penstock.data.order.lanes import Lanes
from penstock.data.order.mixture import (
    Batches,
    Ends,
    MixedSource,
    Schedule,
    WeightCurve,
    by_repeats,
    by_temperature,
    steps_of,
)
from penstock.data.order.mixture_plan import LanedMixture, Mixture, MixturePlan
from penstock.data.order.orders import CatalogOrder, order_of
from penstock.data.order.protocol import has_lanes
from penstock.data.reading.iteration import Iterations
from penstock.data.reading.joint import MOST_SHARES
from penstock.data.reading.reading import OnError, in_lists, remaining
from penstock.data.reading.runs import classes_of
from penstock.data.reading.sample import Sample
from penstock.data.region import Slot
from penstock.display import counted, panel, table
from penstock.errors import Unusable, kind_of, public_url
from penstock.values import check_choice, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.data.order.mixture import Weights
    from penstock.data.order.protocol import Order
    from penstock.data.order.sampling import Cursor, Tail
    from penstock.data.reading.iteration import PlaceLike
    from penstock.engine.contracts.fetching import ReadCounts

F = TypeVar("F", bound="Callable[..., None]")

_LOG = logging.getLogger("penstock")
_LONGEST_NAME = 100
_MOST_PARTS = 256
_MOST_SAMPLES = 1 << 62
_WRITE_S = 0.1


def _take_one(init: F) -> F:
    """Refuse ``Mix(a, b)``, and show a mapping in its place."""

    @wraps(init)
    def checked(self: Mix, *sources: object, **options: object) -> None:
        if len(sources) > 1:
            raise Unusable(
                f'sources must be one mapping, such as Mix({{"a": a, "b": b}}), got {len(sources)} arguments'
            )
        init(self, *sources, **options)

    return cast("F", checked)


class Mix(BatchableDataset, TorchIterableDataset[Any]):
    """A mixture of datasets: each batch has its share of every source, and each source iterates over its own samples.

    A source is any dataset of Penstock: objects, shards, groups, token files, arrays, ``ps.concat`` of some; each with
    its own store and transform. The source of a position is computed, so a mixture of 64 sources of 10⁹ samples takes
    as little memory, and resumes as fast, as one of two small ones.

    Shares are exact. With ``batches="stratified"``, the number of samples of a source in a global batch (batch size
    times ranks) differs from its weight times the batch by less than one, and what rounding takes from one batch it
    gives to another. Each source has a separate endless order: its epochs, one after the other, each a permutation
    of all its samples. A run takes the next samples of each source in that order, none left out and none twice, also
    across stops, other numbers of ranks and workers, and changed weights.

    An epoch of a mixture is a number of samples: see ``ends``. The sources continue from one epoch to the next, except
    with ``ends="once"``. With ``tail="drop"`` an epoch ends with its last complete global batch, and the sources go on
    from there: what is dropped is no part of the run, except with ``ends="once"``, which drops it until the next epoch.

    To change the weights of a run, load its state with ``new_weights=``. Sources may be added and removed that way,
    too: give the ``Mix`` the new sources, and pass ``new_weights=True``. Remaining sources continue where they were.

    ``sample.source`` names the source of a ``ps.Sample``. The classes of all sources are one list, as in ``ps.concat``.

    Args:
        sources: The datasets by name. Map-style datasets and ``ps.TokenDataset`` are ordered by the loader's
            ``shuffle=``; iterable ones and ``ps.ZarrDataset`` keep the order that they have.
        weights: Weight of each source; only their proportion counts. Or a ``ps.order.Schedule``, with which they change
            during the run. Default: in proportion to the number of samples.
        temperature: Weights n ** temperature instead, for sources of n samples: 0 to 1.
        repeats: Number of times that sources come in an epoch instead, such as ``{"docs": 4}``; default: 1.
        epoch_samples: Samples of an epoch, over all ranks; default: as ``ends`` has it.
        ends: ``"longest"``: an epoch has as many samples as the source that takes longest needs by its weight to come
            once, and smaller ones repeat. ``"shortest"``: as many as the first source needs to be at its end. Both
            to within a few samples of a source by rounding; with ``batches="one-source"``, to within two batches. What
            a source lacks comes first in the next epoch. ``"once"``: each source exactly once, and as one ends the
            others go on with their weights. Default: ``"longest"``; with ``repeats``, as often as that says; without
            any weights, ``"once"``.
        batches: ``"stratified"``: exact shares in each global batch. ``"random"``: random ones, exact over 4,096
            samples. ``"one-source"``: each global batch from a single source.
        on_error: For some sources, ``"skip"`` or ``"raise"`` as for ``ps.DataLoader``, by name; default: as the loader
            has it. ``"raise"`` does not take back the ``on_error="skip"`` of a loader.

    Attributes:
        sources: The datasets by name.
        epoch_samples: Samples of an epoch, over all ranks.
        weights: Weight of each source at the beginning of a run; they sum up to 1.
        classes: The names of the classes of all sources, sorted.

    Raises:
        Unusable: There is no source, one is of another type or empty, or an argument is invalid.

    Example:
        >>> cats = ps.MapDataset.from_prefix("s3://bucket/train/3/", transform=lambda sample: sample.source)
        >>> dogs = ps.MapDataset.from_prefix("s3://bucket/train/5/", transform=lambda sample: sample.source)
        >>> mix = ps.Mix({"cats": cats, "dogs": dogs}, weights={"cats": 3, "dogs": 1})
        >>> loader = ps.DataLoader(mix, 8, shuffle=True)
        >>> sorted(next(iter(loader)))
        ['cats', 'cats', 'cats', 'cats', 'cats', 'cats', 'dogs', 'dogs']
    """

    takes_order = True

    @_take_one
    def __init__(  # noqa: PLR0913  see design/0089
        self,
        sources: Mapping[str, BatchableDataset],
        *,
        weights: Weights | None = None,
        temperature: float | None = None,
        repeats: Mapping[str, float] | None = None,
        epoch_samples: int | None = None,
        ends: Ends | None = None,
        batches: Batches = "stratified",
        on_error: Mapping[str, OnError] | None = None,
    ) -> None:
        if ends is not None:
            check_choice(ends, get_args(Ends), "ends")
        check_choice(batches, get_args(Batches), "batches")
        _check_sources(sources)
        self.classes, self.sources = _unify_classes(sources)
        self._on_error = _checked_errors(on_error, self.sources)
        self._ends, self._batches = ends, batches
        self._given = {"weights": weights, "temperature": temperature, "repeats": repeats}
        self._epoch_samples = None if epoch_samples is None else whole(epoch_samples, "epoch_samples", 1)
        # Refuses arguments that do not fit together.
        order = self._mixture(self._batched(1, shuffle=False, seed=0, place="unsharded"))
        if order.total > _MOST_SAMPLES:
            raise Unusable(
                "an epoch of this mixture would have more than 2^62 samples: pass a smaller epoch_samples=, or 0 for "
                "a tiny weight"
            )
        self.epoch_samples = order.total
        self._shares = dict(zip(self.sources, WeightCurve(order.steps[:1]).table[0].tolist(), strict=True))

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight of each source at the beginning of a run; they sum up to 1."""
        return MappingProxyType(self._shares)

    @weights.setter
    def weights(self, _: object) -> Never:
        raise Unusable(
            "cannot set the weights of an existing mixture: create a new one with weights=…; to change a run's, "
            "pass new_weights= to load_state_dict"
        )

    @classmethod
    def by(cls, column: str, dataset: MapDataset, **options: Any) -> Mix:  # noqa: ANN401  those of the class
        """Return a mixture of the parts of one dataset that have the same value in a column of its catalog, or label.

        ``Mix.by("aspect", images, batches="one-source")`` makes batches of images of one shape. Makes no request. The
        sources have the values as names, sorted.

        Args:
            column: Name of the column, or "label". At most 256 values; to give many classes weights of their own, pass
                ``shuffle=ps.order.WeightedShuffle(…)`` to the loader.
            dataset: The dataset.
            **options: Arguments of the class other than ``sources``; weights are by the values, as text.

        Raises:
            Unusable: There is no such column, it has too many values, or an argument is invalid.

        Example:
            >>> images = ps.MapDataset.from_prefix("s3://bucket/train/", labels="folder", transform=lambda s: s.label)
            >>> mix = ps.Mix.by("label", images, batches="one-source")
            >>> sorted(len(set(batch.tolist())) for batch in ps.DataLoader(mix, 20, shuffle=True))[-1]
            1
        """
        if not isinstance(dataset, MapDataset):
            raise Unusable(f"Mix.by takes a MapDataset, got {kind_of(dataset)}")
        if not isinstance(column, str):
            raise Unusable(f"Mix.by takes the name of a column, or 'label', got {column!r}")
        numbers, names = classes_of([dataset.catalog], column)
        there = np.unique(numbers).tolist()
        if len(there) > _MOST_PARTS:
            raise Unusable(
                f"{column!r} has {len(there)} values, and a mixture at most {_MOST_PARTS} such parts: for weights of "
                "classes, pass shuffle=ps.order.WeightedShuffle(…) to the loader"
            )
        parts = {names[number]: part_of(dataset, np.flatnonzero(numbers == number)) for number in there}
        return cls(parts, **options)

    @property
    def transforms(self) -> dict[str, Callable[[Any], Any] | None]:
        named = self.sources.items()
        return {f"{name} of {source}": each for source, data in named for name, each in data.transforms.items()}

    @property
    def decodes(self) -> bool:
        return any(source.decodes for source in self.sources.values())

    def batched(
        self,
        batch_size: int,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        shuffle: bool | Order = False,
        seed: int = 0,
        tail: Tail = "short",
        place: PlaceLike = None,
    ) -> Batched:
        """Return this mixture as batches, for ``DataLoader(batch_size=None)``: see ``IterableDataset.batched``.

        Args:
            batch_size: Samples per batch and rank.
            collate_fn: Function from a list of samples to a batch: see ``IterableDataset.batched``.
            shuffle: Permute the samples of each source in each of its epochs; or an order for each source, such
                as ``ps.order.Lanes(window_blocks=32)``: each source has a separate window in memory.
            seed: Seed of the order.
            tail: Controls the incomplete last batch: see ``IterableDataset.batched``.
            place: This process's rank, as for ``IterableDataset``.
        """
        prepared = self._batched(batch_size, shuffle=shuffle, seed=seed, place=place)
        for name, each in zip(self.sources, prepared, strict=True):
            each.check_replaced(place, f"source {name!r}", "pass it to the loader of the mixture, as place=")
        order = self._mixture(prepared)
        plan = MixturePlan(samples=order.samples, batch=batch_size, order=order, seed=seed, tail=tail)
        dataset = MixedDataset(self.sources, [each.dataset for each in prepared], order, self._on_error)
        if collate_fn is None:
            dataset, collate_fn = dataset.collated(batch_size)
        return MixedBatches(dataset, plan, Iterations(place), collate_fn)

    def __iter__(self) -> Never:
        """Raise ``Unusable``: shares are those of batches."""
        raise Unusable(
            "a Mix is read in batches: ps.DataLoader(mix, batch_size, …), or torch's DataLoader(mix.batched(…), "
            "batch_size=None)"
        )

    def _batched(self, batch_size: int, *, shuffle: bool | Order, seed: int, place: PlaceLike) -> list[Batched]:
        shuffled, found = not isinstance(order_of(shuffle), CatalogOrder), []
        for name, source in self.sources.items():
            own: dict[str, Any] = (
                {"shuffle": shuffle, "seed": _seed(seed, name), "place": place} if source.takes_order else {}
            )
            # A function of its own, so that each sample is made by itself.
            made = source.batched(batch_size, list, **own)
            order = made.plan.order
            in_order = isinstance(order, CatalogOrder) or (isinstance(order, Lanes) and not order.shuffle)
            if shuffled and not source.takes_order and in_order:
                raise Unusable(
                    f"shuffle= of the loader does not reach source {name!r}: {kind_of(source)} has a fixed "
                    "order; create it with shuffle=True, or take a MapDataset"
                )
            if not made.plan.total:
                raise Unusable(f"source {name!r} has no samples")
            found.append(made)
        return found

    def _mixture(self, prepared: Sequence[Batched]) -> Mixture:
        sources = []
        for (name, dataset), batched in zip(self.sources.items(), prepared, strict=True):
            plan = batched.plan
            known = "" if dataset.contents is None else dataset.contents.digest
            text = f"{known} {plan.samples} {plan.order.identity} {plan.seed}"
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            sources.append(MixedSource(name, plan.samples, plan.total, plan.order, plan.seed, digest))
        sizes = {source.name: source.positions for source in sources}
        steps = steps_of(self._weights(sizes), [*sizes])
        arguments: dict[str, Any] = {
            "sources": tuple(sources),
            "steps": steps,
            "ends": self._ends or self._default_end(),
            "batches": self._batches,
            "epoch_samples": self._epoch_samples,
        }
        repeats = self._given["repeats"]
        if repeats is not None:
            arguments["epoch_samples"] = self._epoch_samples or max(1, round(sum(by_repeats(repeats, sizes).values())))
        lanes = {source.order.lanes for source in sources if has_lanes(source.order)}
        if not lanes:
            return Mixture(**arguments)
        asked = lanes - {None}
        if len(asked) > 1:
            raise Unusable(f"sources must have the same number of lanes, got {sorted(asked)}")  # type: ignore[type-var]
        return LanedMixture(**arguments, lanes=next(iter(asked), None))

    def _default_end(self) -> Ends:
        """Return "once" without any weights: an epoch has each sample of each source."""
        given = [*self._given.values(), self._epoch_samples]
        plain = all(value is None for value in given) and self._batches != "one-source"
        return "once" if plain else "longest"

    def _weights(self, sizes: Mapping[str, int]) -> object:
        given = [name for name, value in self._given.items() if value is not None]
        if len(given) > 1:
            raise Unusable(f"weights, temperature and repeats exclude one another, got {' and '.join(given)}")
        weights, temperature, repeats = self._given.values()
        if repeats is not None and self._ends is not None:
            raise Unusable("ends= needs weights or temperature: repeats already sets the length of an epoch")
        if self._ends == "once" and (isinstance(weights, Schedule) or self._batches == "one-source"):
            what = "a ps.order.Schedule" if isinstance(weights, Schedule) else 'batches="one-source"'
            raise Unusable(f'ends="once" cannot be combined with {what}: an epoch could not have each sample once')
        if self._ends is not None and self._epoch_samples is not None:
            raise Unusable("epoch_samples is the length of an epoch, which ends would compute: pass one of the two")
        if isinstance(weights, Schedule) and self._epoch_samples is None:
            raise Unusable(
                "with a ps.order.Schedule, pass epoch_samples=, the number of samples of an epoch over all ranks"
            )
        if repeats is not None:
            return by_repeats(repeats, sizes)
        if weights is None:
            return by_temperature(1 if temperature is None else temperature, sizes)
        return weights

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {weight:.1%}" for name, weight in self.weights.items())
        return f"<Mix of {shares}; epochs of {counted(self.epoch_samples, 'sample')}>"

    def _repr_html_(self) -> str:
        rows = ((name, f"{weight:.1%}") for name, weight in self.weights.items())
        title = f"Mix; epochs of {self.epoch_samples:,} samples"
        return panel(title, table(rows, ("source", "weight"), align="lr"))


class MixedBatches(Batched):
    """The batches of a mixture."""

    plan: MixturePlan
    dataset: MixedDataset
    _new_weights = True

    def sources(self, begun: Cursor, received: int) -> tuple[SourceShare, ...]:
        world = self._iterations.rank().world
        weights = self.plan.weights_at(self.plan.after(begun, received, world), world)
        rows = zip(self.dataset.names, weights, self.dataset.counts.read(), strict=True)
        return tuple(SourceShare(name, weight, *counts) for name, weight, counts in rows)

    def _ordered(self) -> str:
        # Not the number of samples: ranks whose sources differ would compare nothing.
        return "mixture"


class MixedDataset(JoinedDataset):
    """The sources of a mixture, prepared for batches of some size."""

    def __init__(
        self,
        sources: Mapping[str, BatchableDataset],
        prepared: Sequence[BatchableDataset],
        order: Mixture,
        on_error: Mapping[str, OnError],
    ) -> None:
        """Join ``prepared``, the ``sources`` ready to read; ``order`` has their weights."""
        self.names = tuple(sources)
        # Of all processes.
        self.counts = SourceCounts(len(self.names))
        parts = [_tag_dataset(each, name) for each, name in zip(prepared, sources, strict=True)]
        self.join(parts, [source.samples for source in order.sources])
        self._decodes = any(source.decodes for source in sources.values())
        largest = WeightCurve(order.steps).table.max(axis=0).tolist()
        self._portions = [max(1, min(MOST_SHARES, int(1 / each))) if each else MOST_SHARES for each in largest]
        self._lenient = frozenset(number for number, name in enumerate(self.names) if on_error.get(name) == "skip")
        self._noted = self.counts.add

    def __repr__(self) -> str:
        return f"<Mix of {', '.join(self.names)}>"

    @property
    def contents(self) -> None:
        """None: a state holds the digest of each source."""
        return

    @property
    def decodes(self) -> bool:
        return self._decodes

    def lists(self, batches: Iterable[list[int]], workers: int) -> tuple[Iterator[list[Any]], ReadCounts]:
        """Return the base class's result; samples that are left out are logged."""
        reading = self.reading(batches, workers)
        return (_drop_skipped(made) for made in in_lists(reading)), reading.counts

    def planned(self, index: int, *, repeat: bool) -> PlannedSample:
        [number], [inner] = self.split([index])
        return PlannedSample(inner, self.parts[number].url_of(inner), repeat, self.names[number])


class SourceCounts:
    """Samples of each source, and seconds that reading waited for it, in memory that worker processes share.

    A worker writes there ten times a second, and at the end of an epoch: each lock of a file takes up to 0.2 ms.
    """

    def __init__(self, sources: int) -> None:
        self._adopt(Slot(struct.calcsize("qd" * sources)), sources, os.getpid())

    def _adopt(self, slot: Slot, sources: int, owner: int) -> None:
        self._slot, self._format = slot, struct.Struct("qd" * sources)
        # Of this process, and not yet in the shared memory.
        self._own: tuple[float, ...] = (0,) * (2 * sources)
        self._owner = self._process = owner
        self._written_s = 0.0

    def add(self, samples: Sequence[int], waited_s: Sequence[float], *, last: bool) -> None:
        """Add the samples of a batch, the last of an epoch or another, and the seconds since the batch before."""
        if self._process != (process := os.getpid()):
            # The parent counts its own.
            self._process, self._own = process, (0,) * len(self._own)
        self._own = tuple(map(operator.add, self._own, chain.from_iterable(zip(samples, waited_s, strict=True))))
        if process != self._owner and (last or monotonic() > self._written_s + _WRITE_S):
            with self._slot.locked():
                values = self._format.unpack_from(self._slot.view)
                self._format.pack_into(self._slot.view, 0, *map(operator.add, values, self._own))
            self._own, self._written_s = (0,) * len(self._own), monotonic()

    def read(self) -> list[tuple[int, float]]:
        """Return samples and seconds of each source, since the batches were made."""
        with self._slot.locked():
            values = self._format.unpack_from(self._slot.view)
        values = tuple(map(operator.add, values, self._own))
        return [*zip(values[::2], values[1::2], strict=True)]

    def __getstate__(self) -> tuple[Slot, int]:
        return self._slot, self._format.size // struct.calcsize("qd")

    def __setstate__(self, state: tuple[Slot, int]) -> None:
        self._adopt(*state, 0)


@dataclass(frozen=True, slots=True)
class _Tag:
    """A transform that names the source of a sample first."""

    name: str
    transform: Callable[[Any], Any] | None

    def __call__(self, sample: Any) -> Any:  # noqa: ANN401  the transform decides the type
        if isinstance(sample, Sample):
            sample.source = self.name
        return sample if self.transform is None else self.transform(sample)


def _tag_dataset(dataset: BatchableDataset, name: str) -> BatchableDataset:
    """Return ``dataset`` with samples that name their source; arrays and tensors cannot."""
    if isinstance(dataset, JoinedDataset):
        joined = copy(dataset)
        joined.parts = tuple(_tag_dataset(part, name) for part in dataset.parts)
        return joined
    if not isinstance(dataset, (MapDataset, IterableDataset)):
        return dataset
    tagged = copy(dataset)
    if isinstance(dataset, DatasetPart):
        vars(tagged)["whole"] = _tag_dataset(dataset.whole, name)
    tagged.transform = _Tag(name, dataset.transform)
    return tagged


def _drop_skipped(made: list[Any]) -> list[Any]:
    samples, skipped = remaining(made)
    for each in skipped:
        _LOG.warning("left out of its batch: %s (%s)", public_url(each.url), each.error)
    return samples


def _seed(seed: int, name: str) -> int:
    """Return the seed of a source's order, so that two sources of the same length have different ones."""
    seed = whole(seed, "seed")
    return int.from_bytes(
        hashlib.sha256(f"penstock mix 1: {seed} {name}".encode("utf-8", "surrogatepass")).digest()[:8]
    )


def _check_sources(sources: object) -> None:
    if not isinstance(sources, Mapping) or not sources:
        raise Unusable(
            f'sources must be a mapping from names to datasets, such as {{"web": web, "code": code}}, got {sources!r}'
        )
    for name, dataset in sources.items():
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            raise Unusable(f"the name of a source must be a str of 1 to {_LONGEST_NAME} characters, got {name!r}")
        if isinstance(dataset, Mix):
            raise Unusable(f"source {name!r} is a Mix: give its sources to this one, with the product of their weights")
        if not isinstance(dataset, BatchableDataset):
            raise Unusable(f"source {name!r} must be a dataset of Penstock, got {kind_of(dataset)}")


def _checked_errors(on_error: object, sources: Mapping[str, Any]) -> dict[str, OnError]:
    if on_error is None:
        return {}
    if not isinstance(on_error, Mapping):
        raise Unusable(f"on_error must be a mapping from sources to 'raise' or 'skip', got {on_error!r}")
    for name, value in on_error.items():
        if name not in sources:
            raise Unusable(f"on_error: unknown source {name!r}; sources are {', '.join(map(repr, sources))}")
        check_choice(value, get_args(OnError), f"on_error[{name!r}]")
    return dict(on_error)


def _unify_classes(sources: Mapping[str, BatchableDataset]) -> tuple[tuple[str, ...], dict[str, BatchableDataset]]:
    flat: list[Any] = []
    for dataset in sources.values():
        flat += dataset.parts if isinstance(dataset, JoinedDataset) else [dataset]
    catalogs = [each for each in flat if isinstance(each, (MapDataset, IterableDataset))]
    classes, named = unify_labels(catalogs)
    after = iter(named)
    found: dict[str, BatchableDataset] = {}
    for name, dataset in sources.items():
        if isinstance(dataset, (ConcatMap, ConcatIterable)):
            parts = [next(after) if isinstance(part, (MapDataset, IterableDataset)) else part for part in dataset.parts]
            found[name] = dataset.with_parts(classes, parts)
        else:
            found[name] = next(after) if isinstance(dataset, (MapDataset, IterableDataset)) else dataset
    return classes, found
