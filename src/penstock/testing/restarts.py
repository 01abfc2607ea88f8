"""A check of exact resumption: restart after every batch, and compare all that follows."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest

from penstock.errors import StateMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Counted", "Resumes", "check_restarts", "shown"]


class Resumes(Protocol):
    """A loader or a dataset: each iteration is an epoch, or the rest of one.

    Example:
        >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=8)
        >>> state = loader.state_dict()  # ps.DataLoader has both methods
        >>> loader.load_state_dict(state)
    """

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, or continue where the last loaded state was taken."""

    def state_dict(self) -> Any:  # noqa: ANN401  any type that it can load
        """Return the state after the batches received so far."""

    def load_state_dict(self, state: Any) -> object:  # noqa: ANN401  from ``state_dict``, or foreign
        """Make the next iteration continue where ``state`` was taken; the result is not used.

        Args:
            state: The result of ``state_dict``, or a foreign state, to be refused with ``StateMismatch``.

        Returns:
            Anything.
        """


class _StateAt(Protocol):
    def state_at(self, batches: int) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Counted:
    """State for a stateless loader, from batches that return their state by the number received (``state_at``).

    Args:
        loader: A loader of ``batches``, such as torch's.
        batches: ``batched(B)`` of a dataset, or a ``BatchSampler``.

    Example:
        >>> from penstock.testing.restarts import Counted
        >>> batches = ps.IterableDataset.from_prefix("s3://bucket/train/3/").batched(8)
        >>> counted = Counted(torch.utils.data.DataLoader(batches, batch_size=None), batches)
        >>> batch = next(iter(counted))
        >>> counted.state_dict()["position"]
        8
    """

    def __init__(self, loader: Iterable[Any], batches: _StateAt) -> None:
        self._loader = loader
        self._batches = batches
        self._state = batches.state_at(0)

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self._loader, 1):
            self._state = self._batches.state_at(number)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch."""
        return self._state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``.

        Args:
            state: The result of ``state_dict``.
        """
        self._batches.load_state_dict(state)
        self._state = self._batches.state_at(0)


class _ExpectedRest(NamedTuple):
    """A state and its expected continuation: the rest of its epoch, a state with each batch, and the next epoch."""

    where: str
    state: Any
    rest: list[Any]
    later: list[Any]
    following: list[Any]


def check_restarts(
    make: Callable[[], Resumes],
    *,
    epochs: int = 2,
    alike: Sequence[Callable[[], Resumes]] = (),
    foreign: Sequence[Callable[[], Resumes]] = (),
    limit_bytes: int | None = 1024,
    view: Callable[[Any], Any] | None = None,
) -> None:
    """Run some epochs, then restart from every state on the way; an AssertionError names the difference.

    A state is taken before the first batch, after each batch, and after the end. These are the checks of each state:

    - It survives JSON and has less than ``limit_bytes`` as JSON.
    - A fresh loader that loads it, once or twice, yields the rest of that epoch and the next one, batch for batch and
      with the same states. (For a state at an epoch's end, the rest may be an iteration without a batch, or nothing at
      all.)
    - A loader that has been used before continues in the same way.
    - ``alike`` loaders have the same batches and states, however far they read ahead; each continues from the others'
      states.
    - ``foreign`` loaders refuse it with ``StateMismatch`` and remain unchanged. If there are any, ``make``'s loader
      must also refuse a state that has lost any of its entries.

    The check takes about (batches of all epochs)^2 * (2 + len(alike)) batches: keep the set small, some ten batches.

    Args:
        make: Returns a fresh loader: any object with the three methods of ``Resumes`` (``Counted`` adds them to a
            loader over batches with ``state_at``).
        epochs: Number of epochs.
        alike: Functions that return loaders which differ only in workers, threads or prefetching.
        foreign: Functions that return loaders with a different catalog, order, version or global batch.
        limit_bytes: Limit of a state as JSON; None: states need not be JSON and may be larger.
        view: Function from a batch to a value that is compared; default: ``shown``.

    Example:
        >>> from penstock.testing.restarts import check_restarts
        >>> dataset = ps.MapDataset.from_prefix("s3://bucket/train/3/", include="000*")
        >>> check_restarts(lambda: ps.DataLoader(dataset, batch_size=4, shuffle=True))
    """
    view = view or shown
    steps = _steps(make(), epochs, view)
    for step in steps:
        _check_size(step, limit_bytes)
    for other in alike:
        assert _steps(other(), epochs, view) == steps, "another layout has other batches or states"
    for maker in (make, *alike):
        for number, step in enumerate(steps):
            _check_restart(maker(), step, 1 + number % 2, view)
        used = maker()
        for step in reversed(steps):
            next(iter(used), None)
            _check_restart(used, step, 1, view)
    for each in foreign:
        _check_refusals(each, [step.state for step in steps], view)
    if foreign:
        _check_refusals(make, list(_incomplete(steps[len(steps) // 2].state)), view)


def shown(batch: object) -> object:
    """Return a batch as plain values that can be compared: tensors and arrays with dtype, samples with their bytes.

    Args:
        batch: A batch of any type.

    Example:
        >>> from penstock.testing.restarts import shown
        >>> shown({"image": torch.ones(2)}) == shown({"image": torch.ones(2)})
        True
    """
    if hasattr(batch, "tolist"):
        return str(getattr(batch, "dtype", "")), batch.tolist()
    if hasattr(batch, "data") and hasattr(batch, "url"):
        return batch.url, bytes(batch.data), getattr(batch, "repeat", False)
    if isinstance(batch, Mapping):
        return {key: shown(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [shown(value) for value in batch]
    return batch


def _steps(loader: Resumes, epochs: int, view: Callable[[Any], Any]) -> list[_ExpectedRest]:
    """Run one epoch more than ``epochs``, and return the steps of the first ``epochs``."""
    run = [_epoch(loader, view) for _ in range(epochs + 1)]
    steps = []
    for number, ((batches, states), (following, _)) in enumerate(pairwise(run)):
        for at, state in enumerate(states):
            # Before a later epoch's first batch, the state is still that of the previous epoch's end.
            if at or not number:
                where = f"epoch {number}, step {at} of {len(batches)}"
                steps.append(_ExpectedRest(where, state, batches[at:], states[at + 1 : -1], following))
    return steps


def _epoch(loader: Resumes, view: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
    """Return an epoch's batches, and the states before the first, after each, and after the end."""
    batches, states = [], [_copy_state(loader.state_dict())]
    for batch in loader:
        batches.append(view(batch))
        states.append(_copy_state(loader.state_dict()))
    return batches, [*states, _copy_state(loader.state_dict())]


def _copy_state(state: Any) -> Any:  # noqa: ANN401  a state
    # A later change to the state then fails here, not in the training that saved it.
    return copy.deepcopy(state)


def _check_size(step: _ExpectedRest, limit_bytes: int | None) -> None:
    if limit_bytes is not None:
        text = json.dumps(step.state, allow_nan=False)
        assert json.loads(text) == step.state, f"{step.where}: JSON makes another state of it"
        assert len(text) < limit_bytes, f"{step.where}: a state of {len(text)} bytes"


def _check_restart(loader: Resumes, step: _ExpectedRest, times: int, view: Callable[[Any], Any]) -> None:
    for _ in range(times):
        loader.load_state_dict(_copy_state(step.state))
    (rest, states), (following, _) = _epoch(loader, view), _epoch(loader, view)
    if rest and not step.rest:
        # The loader continued with the next epoch at once.
        rest, states, following = [], [], rest
    assert rest == step.rest, f"{step.where}: what was left of the epoch came differently"
    assert states[1:-1] == step.later, f"{step.where}: what was left of the epoch has other states"
    assert following == step.following, f"{step.where}: the epoch after it came differently"


def _check_refusals(make: Callable[[], Resumes], states: Iterable[Any], view: Callable[[Any], Any]) -> None:
    loader = make()
    for state in states:
        with pytest.raises(StateMismatch):
            loader.load_state_dict(_copy_state(state))
    assert [view(batch) for batch in loader] == [view(batch) for batch in make()], "a refused state changed something"


def _incomplete(state: Any) -> Iterator[Any]:  # noqa: ANN401  a state
    yield {}
    if isinstance(state, Mapping):
        for lost in state:
            yield {name: value for name, value in state.items() if name != lost}
