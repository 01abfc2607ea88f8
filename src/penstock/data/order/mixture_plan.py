"""The sampling plan of a mixture: its state, and resumption with other weights, sources or batches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from penstock.data.order.draws import Draws, drawn_positions
from penstock.data.order.mixture import MixtureSpec, MixtureStage, Schedule, WeightCurve, steps_of
from penstock.data.order.protocol import has_lanes
from penstock.data.order.sampling import Cursor, SamplingPlan
from penstock.errors import Bug, StateMismatch, Unusable

if TYPE_CHECKING:
    from penstock.data.order.protocol import Lookup

_MOST = 1 << 62
# Positions of each source that are looked up together, on average: a call of a laned source takes some 0.3 ms.
_OF_SOURCE = 256
_PAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture(MixtureSpec):
    """A mixture as an order; its plan says where global batches end."""

    def epoch(self, samples: int, seed: int, epoch: int) -> Lookup:
        """Return the order of an epoch whose global batches are one sample each."""
        if samples != self.samples:
            raise Bug(f"the mixture has {self.samples} samples, but {samples} were requested")
        return Draws(self, 1, 1, seed).lookup(epoch)

    def begun(self, stage: MixtureStage) -> Self:
        return replace(self, stage=stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanedMixture(Mixture):
    """A mixture of sources whose orders have lanes: ``lanes`` neighbouring positions are draws of the same source."""

    lanes: int | None = None  # number of lanes; None: one for each rank of the first run

    def with_lanes(self, lanes: int) -> LanedMixture:
        return replace(self, lanes=lanes)


class MixturePlan(SamplingPlan):
    """The sampling plan of a mixture.

    A state has, in addition to that of any plan, under ``"mixture"``: ``"weights"``, the digest of sources and weights;
    ``"start"``, where the stage began (epoch, position, samples delivered before); ``"at"``, the epoch and position of
    the counts; ``"tail"``, if incomplete last batches are not drawn; and with a value for each source ``"names"``,
    ``"digests"``, ``"draws"`` before ``"at"``, and those ``"before"`` the stage, if there are any. ``"parked"`` has
    digest and draws of sources that left the mixture. With the same weights, global batch and tail, a run continues in
    its stage unchanged. With others, a stage begins.
    """

    order: Mixture

    @cached_property
    def stage(self) -> int:
        """A number that identifies the stage; 0: the run's first."""
        if self.order.stage == MixtureStage():
            return 0
        text = f"{self.order.digest} {self.order.stage}"
        return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:7], "big") or 1

    @cached_property
    def _digest(self) -> str:
        return self.order.digest

    @cached_property
    def _curve(self) -> WeightCurve:
        return WeightCurve(self.order.steps)

    @cached_property
    def _made(self) -> dict[tuple[int, int], Draws]:
        return {}

    def draws(self, batch: int, lanes: int) -> Draws:
        """Return the positions of draws for global batches of ``batch`` samples."""
        key = batch, max(lanes, 1)
        if key not in self._made:
            self._made[key] = Draws(self.order, *key, self.seed, drop=self._drop)
        return self._made[key]

    @property
    def at_once(self) -> int:
        return max(super().at_once, _OF_SOURCE * len(self.order.sources))

    @property
    def _drop(self) -> bool:
        """Whether an incomplete last batch is not drawn; with ``once``, the next epoch starts over anyway."""
        return self.tail == "drop" and not self.order.once

    def weights_at(self, cursor: Cursor, world: int) -> tuple[float, ...]:
        """Return the weight of each source at a position; they sum up to 1."""
        draws = self.draws(self.batch * world, self.lanes(cursor, world))
        delivered = draws.delivered(cursor.epoch, cursor.position)
        return tuple(self._curve.at([delivered])[0].tolist())

    def indices(self, cursor: Cursor, world: int) -> Lookup:
        return self.draws(self.batch * world, self.lanes(cursor, world)).lookup(cursor.epoch)

    def first(self, epoch: int) -> int:
        """Return the first position of an epoch that this plan knows: that of the stage, if that begins within it."""
        stage = self.order.stage
        return stage.position if epoch == stage.epoch else 0

    @property
    def begins(self) -> tuple[int, int]:
        return self.order.stage[:2]

    def lanes(self, cursor: Cursor, world: int) -> int:
        """Return the number of lanes, which a run keeps: sources are in the middle of their epochs at any time."""
        if not has_lanes(self.order):
            return 0
        return cursor.lanes or self.order.lanes or world

    def rereads(self, cursor: Cursor, world: int) -> str:
        lanes = self.lanes(cursor, world)
        if not lanes or self.shared(lanes, world):
            return ""
        return (
            f"{world} ranks with batches of {self.batch} cannot share the {lanes} lanes of this mixture, which a run "
            f"keeps: several read the same blocks (the ranks would have to divide {lanes}, and {lanes} the global "
            f"batch of {self.batch * world})"
        )

    def state(self, cursor: Cursor, world: int, catalog: str) -> dict[str, Any]:
        """Return the state at ``cursor``: below 4 KB for 64 sources with names of ten characters."""
        state, order = super().state(cursor, world, catalog), self.order
        now = self.draws(self.batch * world, self.lanes(cursor, world)).at(cursor.epoch, cursor.position)
        names, digests = self._named
        mixture: dict[str, Any] = {
            "weights": self._digest,
            "start": [*order.stage[:3]],
            "at": [int(cursor.epoch), int(cursor.position)],
            "names": [*names],
            "digests": digests,
            "draws": [*now],
        }
        mixture |= {"before": [*order.stage.draws]} if order.stage.draws else {}
        mixture |= {"parked": {name: [*values] for name, *values in order.stage.parked}} if order.stage.parked else {}
        return state | {"mixture": mixture | ({"tail": self.tail} if self._drop else {})}

    @cached_property
    def _named(self) -> tuple[tuple[str, ...], str]:
        """The names of the sources, and their digests as one text."""
        sources = self.order.sources
        return tuple(source.name for source in sources), " ".join(source.digest for source in sources)

    def arguments(self) -> dict[str, object]:
        """Return the arguments that the plans of all ranks have in common: also sources and weights."""
        order = self.order
        first = dict(zip([source.name for source in order.sources], self._curve.table[0].tolist(), strict=True))
        own: dict[str, object] = {"sources": [*first], "weights": first}
        # The names tell which source has other samples; the digest, whether a schedule goes on in another way.
        own |= {f"samples of {source.name!r}": source.digest for source in order.sources}
        return super().arguments() | own | {"sources and weights": self._digest, "stage": self.stage}

    def adopted(self, state: object, world: int, new_weights: object = None) -> tuple[MixturePlan, object]:
        """Return the plan that resumes from ``state``, and the state as its ``resume`` expects it.

        ``new_weights`` are weights from here on, as ``ps.Mix`` takes them, or True for those of this plan. Raises
        ``StateMismatch`` for other samples of a source, and for other weights or sources without ``new_weights``.
        """
        plan = self if new_weights is None or new_weights is True else self._weighted(new_weights)
        if not isinstance(state, Mapping):
            return plan, state
        if not isinstance(state.get("mixture"), Mapping):
            raise StateMismatch("this state is of one dataset, not of a ps.Mix: it lacks the draws of each source")
        if state.get("order") != self.order.identity:
            raise StateMismatch(
                'batches= and ends="once" of a mixture cannot change during a run: the state has '
                f"{state.get('order')!r}, here it is {self.order.identity!r}"
            )
        found = _Found(state)
        order = plan.order
        for source in order.sources:
            if source.name in found.sources and found.sources[source.name][0] != source.digest:
                raise StateMismatch(
                    f"source {source.name!r} differs from the state in samples or order: pass the same "
                    "catalog and shuffle=, or a new name to start it from its beginning"
                )
        plain = {name: value for name, value in state.items() if name != "mixture"}
        plain["catalog"] = plain["samples"] = None
        same = state.get("global_batch") == self.batch * world and found.drop == self._drop
        if found.weights == order.digest and same:
            stage = MixtureStage(*found.start, draws=plan._base(found, 1), parked=found.parked(order))  # noqa: SLF001  itself
            if stage.draws == (0,) * len(stage.draws) and stage[:3] == (0, 0, 0):
                stage = stage._replace(draws=())
            return plan._at(stage), plain  # noqa: SLF001  itself
        if new_weights is None and found.weights != order.digest:
            raise StateMismatch(_difference(found, order))
        stage = self._now(found, order)
        plain |= {"epoch": stage.epoch, "position": stage.position}
        return plan._at(stage), plain  # noqa: SLF001  itself

    def resume(self, state: object, world: int, catalog: str, **allowed: bool) -> Cursor:
        """Return the cursor of a state that ``adopted`` returned."""
        if isinstance(state, Mapping) and "catalog" in state and state["catalog"] is None:
            # Sources were compared one by one.
            state = {**state, "catalog": catalog, "samples": self.total}
        return super().resume(state, world, catalog, **allowed)

    def _weighted(self, weights: object) -> MixturePlan:
        if isinstance(weights, Schedule) and not self.order.epoch_samples:
            raise Unusable(
                "new_weights= must be a mapping: a ps.order.Schedule is for a mixture with epoch_samples=, whose "
                "epochs have the same length with all weights"
            )
        steps = steps_of(weights, [source.name for source in self.order.sources])
        return replace(self, order=replace(self.order, steps=steps))

    def _at(self, stage: MixtureStage) -> MixturePlan:
        return replace(self, order=self.order.begun(stage))

    def _base(self, found: _Found, which: int) -> tuple[int, ...]:
        """Return the draws of each source before the stage (1) or before the counts (2) of a state."""
        return tuple(found.draws(source.name, which) for source in self.order.sources)

    def _now(self, found: _Found, order: Mixture) -> MixtureStage:
        """Return the stage that begins where a state was taken, for the sources of ``order``."""
        epoch, position, total = found.epoch, found.position, found.total
        delivered = found.delivered()
        counts = {name: found.draws(name, 2) for name in found.sources}
        if (epoch, position) != found.at:
            old = self.order
            if found.weights != old.digest:
                raise StateMismatch(
                    "this state was moved to another position after it was taken (elastic_state), so that the draws of "
                    "each source are known to the old weights only: give ps.Mix those, and load_state_dict "
                    "new_weights="
                )
            stage = MixtureStage(*found.start, draws=self._base(found, 1))
            made = Draws(old.begun(stage), found.batch, found.lanes, self.seed, drop=found.drop)
            draws = made.at(epoch, position)
            counts |= dict(zip([source.name for source in old.sources], draws, strict=True))
        if order.once:
            pairs = zip(order.sources, order.steps[0].weights, strict=True)
            if 0 < position < total and position != sum(counts.get(each.name, 0) for each, weight in pairs if weight):
                raise StateMismatch(
                    'with ends="once", sources are removed (also by a weight of 0) between epochs only: this state is '
                    f"in the middle of epoch {epoch}"
                )
            if position == total:
                epoch, position = epoch + 1, 0
            if position == 0:
                counts = dict.fromkeys(counts, 0)
        elif position >= order.total:
            epoch, position = epoch + 1, 0
        draws = tuple(counts.get(source.name, 0) for source in order.sources)
        parked = tuple((name, found.sources[name][0], counts[name]) for name in found.missing(order))
        return MixtureStage(epoch, position, delivered, draws, parked)


class _Found:
    """The values of a state of a mixture, checked."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        given = state["mixture"]
        self.weights, names = given.get("weights"), given.get("names")
        epoch, position, delivered = _numbers(given.get("start"), 3)
        # Epoch and position of the stage, with the samples delivered before it; epoch and position of the counts.
        self.start, self.at = (epoch, position, delivered), _numbers(given.get("at"), 2)
        numbers = [state.get(name) for name in ("epoch", "position", "samples", "global_batch")]
        self.epoch, self.position, self.total, self.batch = _numbers(numbers, len(numbers))
        [self.lanes] = _numbers([state.get("lanes", 1)], 1)
        self.drop = given.get("tail") == "drop"
        valid = isinstance(self.weights, str) and self.position <= self.total
        if not (valid and self.lanes and self.batch and self.total and (self.epoch, self.position) >= self.start[:2]):
            raise _invalid()
        digests, parked = given.get("digests"), given.get("parked", {})
        if not (isinstance(names, (list, tuple)) and isinstance(digests, str) and isinstance(parked, Mapping)):
            raise _invalid()
        count, each = len(names), digests.split(" ")
        draws, before = (_numbers(given.get(name, [0] * count), count) for name in ("draws", "before"))
        if len(each) != count or not all(isinstance(name, str) for name in (*names, *parked)):
            raise _invalid()
        self.here: list[str] = [*names]
        # Digest of each source, the draws before the stage, and those before the counts.
        self.sources = dict(zip(names, zip(each, before, draws, strict=True), strict=True))
        for name, values in parked.items():
            if not (isinstance(values, (list, tuple)) and len(values) == _PAIR and isinstance(values[0], str)):
                raise _invalid()
            [drawn] = _numbers(values[1:], 1)
            self.sources[name] = values[0], drawn, drawn

    def delivered(self) -> int:
        begun, at, delivered = self.start
        if self.epoch == begun:
            return delivered + self.position - at
        own, whole = (drawn_positions(each, self.batch, drop=self.drop) for each in (self.total - at, self.total))
        return delivered + own + (self.epoch - begun - 1) * whole + self.position

    def draws(self, name: str, which: int) -> int:
        """Return the draws of a source before the stage (1) or before the counts (2)."""
        return self.sources[name][which] if name in self.sources else 0

    def missing(self, order: Mixture) -> list[str]:
        names = {source.name for source in order.sources}
        return [name for name in self.sources if name not in names]

    def parked(self, order: Mixture) -> tuple[tuple[str, str, int], ...]:
        return tuple((name, self.sources[name][0], self.sources[name][-1]) for name in self.missing(order))


def _numbers(values: object, count: int) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)) or len(values) != count:
        raise _invalid()
    if not all(type(each) is int and 0 <= each < _MOST for each in values):
        raise _invalid()
    return tuple(values)


def _invalid() -> StateMismatch:
    return StateMismatch("this state has a mixture with invalid values")


def _difference(found: _Found, order: Mixture) -> str:
    names = {source.name for source in order.sources}
    added, removed = [*names - {*found.here}], [*{*found.here} - names]
    what = "the weights, the order of the sources, or the length of an epoch differ"
    if added or removed:
        told = [f"added {name!r}" for name in sorted(added)] + [f"removed {name!r}" for name in sorted(removed)]
        what = f"the sources differ ({', '.join(told)})"
    return (
        f"{what}: pass new_weights={{…}} to go on with others from here, or new_weights=True for those of this mixture"
    )
