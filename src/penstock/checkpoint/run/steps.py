"""A run's checkpoints: save by step, restore the newest complete step, delete superseded steps and orphans."""

from __future__ import annotations

import os
import random
import warnings
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, Self

import numpy as np

from penstock.checkpoint.commit import CommittedCheckpoint, Saving
from penstock.checkpoint.integrity import Manifest, step_name
from penstock.checkpoint.run.restore import FOLDER, ONE, STATE, Restore
from penstock.checkpoint.run.store import StepDescription, StepEntry, StepStore, checked_step, upload_folder
from penstock.checkpoint.staging import torch_module
from penstock.checkpoint.torchfile.encoding import encode_value, readable
from penstock.checkpoint.torchfile.verbs import dump
from penstock.errors import CheckpointError, Unusable, kind_of
from penstock.events import operation
from penstock.options.typed import explain_attribute
from penstock.progress import bar
from penstock.source import open_source
from penstock.values import as_folder, check_choice, switch, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.distributed import ProcessGroup

    from penstock.checkpoint.run.ranks import Ranks
    from penstock.options import StoreOptions

_DAY_S = 86_400.0


class Loader(Protocol):
    """Object with a position in the data, such as a ``penstock.DataLoader``."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the position after the batches that the training loop has received."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Resume at the position in ``state``."""


# What other libraries call on a manager.
_ELSEWHERE = {
    "load": "write restore()",
    "load_state_dict": "write restore()",
    "latest_step": "write latest()",
    "all_steps": "write steps()",
    "save_checkpoint": "write save(step, state)",
    "wait_until_finished": "a save is finished when it returns; ps.AsyncCheckpointer saves in the background",
}


class CheckpointManager:
    """Checkpoints below ``url``, one per step: written atomically, verified on read.

    Model, optimizer, position in the data and random generator states are one object under one commit: a restore never
    mixes two saves. A save that is interrupted (an exception, Ctrl-C, SIGKILL, a failing server) leaves older steps
    unchanged, and objects without a manifest, which ``clean`` deletes.

    One process saves and restores; with ``across`` all ranks of a group do, each its part of the state.

    All steps are kept if none of the ``keep_`` rules is set. The newest step is always kept, and so is the step that
    was saved last: an older step that is saved again, as after a restore, is deleted by the next save at the earliest.

    Args:
        url: The run's folder; a missing ``/`` at its end is added.
        keep_last: Keep this number of the newest steps.
        keep_every: Keep steps that are a multiple of this number.
        keep_best: Keep this number of steps with the best ``metric``.
        mode: Whether the smallest (``min``) or the largest (``max``) metric is the best.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        Unusable: A rule or ``mode`` is invalid.

    Example:
        >>> run = ps.CheckpointManager("s3://bucket/run/", keep_last=2)
        >>> run.save(100, {"weight": torch.zeros(2)})
        >>> run.latest(), run.restore()
        (100, {'weight': tensor([0., 0.])})
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep_best: int | None = None,
        mode: Literal["min", "max"] = "min",
        store: StoreOptions | str | None = None,
    ) -> None:
        self._source, prefix = open_source(url, store)
        folder = as_folder(prefix)
        self._url = os.fspath(url) + folder[len(prefix) :]
        self._steps = StepStore(self._source, folder)
        self._ranks: Ranks | None = None
        self._retention = Retention(last=keep_last, every=keep_every, best=keep_best, mode=mode)
        self._mine: set[str] = set()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            explain_attribute(self, name, _ELSEWHERE)

    def across(self, group: ProcessGroup) -> Self:
        """Return this manager for the ranks of ``group`` (that of sharded or replicated models): all save, all restore.

        The state must then be a dict, with torch's own tensors, DTensors or sharded tensors. Each rank sends its part,
        parts that all ranks hold are sent once, and any number of ranks can restore it. Any single rank may call the
        other methods.

        Args:
            group: A process group of any backend that can send objects, such as ``torch.distributed.group.WORLD``.
        """
        torch_module()
        from penstock.checkpoint.run.ranks import Ranks

        result = copy(self)
        result._ranks = Ranks(group)  # noqa: SLF001  the same class
        return result

    @property
    def url(self) -> str:
        """The folder of the run."""
        return self._url

    def save(
        self,
        step: int,
        state: object,
        *,
        loader: Loader | None = None,
        metric: float | None = None,
        overwrite: bool = False,
        weights_only: bool = True,
    ) -> None:
        """Save ``state`` as ``step``, then delete superseded steps.

        Costs at most ten requests besides those for the data, with any retention rules. The random generators' states
        are saved too. On return the step is complete in the store, and its sizes and ETags were compared.

        Args:
            step: Number of the step, at least 0.
            state: Anything that ``torch.save`` accepts. NumPy scalars and arrays, dates, paths, enumerations, ranges
                and sets are encoded as plain values.
            loader: A loader or dataset whose position in the data is saved, by its ``state_dict``.
            metric: Number that ``keep_best`` compares.
            overwrite: Replace an existing step, as after a restore of an older one; a concurrent reader gets either the
                old or the new one, complete.
            weights_only: Refuse, before anything is sent, a value that only code can make, and ``restore`` would
                refuse; default: True. False saves it anyway, as ``torch.save`` does, for
                ``restore(weights_only=False)``.

        Raises:
            Unusable: The state contains more than weights; the message names the value by its path.
            AlreadyExists: The step is already committed, and ``overwrite`` is False.
            PreconditionFailed: Another process replaced or deleted the step meanwhile; its result stays.
            PenstockError: The step could not be written; older steps are unchanged.
        """
        switch(overwrite, "overwrite")
        everything = self._gather(state, loader, weights_only=weights_only)
        self._save(step, everything, metric, overwrite=overwrite)

    def _gather(self, state: object, loader: Loader | None, *, weights_only: bool) -> dict[str, Any]:
        """Return the contents of one checkpoint: ``state``, the position in the data, the random generators' states."""

        def gather() -> dict[str, Any]:
            switch(weights_only, "weights_only")
            position = None if loader is None else dict(_checked_loader(loader).state_dict())
            parts = {"state": state, "loader": position, "rng": generator_states()}
            if self._ranks is not None:
                return self._ranks.plain(parts, weights_only=weights_only)
            return {name: encode_value(part, name) for name, part in parts.items()} if weights_only else parts

        return gather() if self._ranks is None else self._ranks.everywhere(gather)

    def _save(self, step: int, everything: dict[str, Any], metric: float | None, *, overwrite: bool) -> None:
        """Save the result of ``_gather``. Not safe for concurrent calls."""
        if self._ranks is not None:
            step, metric = self._ranks.everywhere(lambda: (checked_step(step), checked_metric(metric)))
            extra = {"step": step, "metric": metric, "ranks": self._ranks.size}
            url = f"{self._url}{step_name(step)}/"
            with operation("save", self._steps.url, step):
                where = self._ranks.save(url, everything, extra, overwrite=overwrite, store=self._source.options)
                self._ranks.agreed(lambda: self._supersede(step, where.manifest, where.etag))
            return

        def fill(saving: Saving) -> None:
            with saving.open(STATE) as writer:
                dump(everything, writer)
            saving.add(STATE, writer.checksums())

        self._put(step, ONE, fill, metric, overwrite=overwrite)

    def save_folder(
        self, step: int, folder: str | os.PathLike[str], *, metric: float | None = None, overwrite: bool = False
    ) -> None:
        """Save the files below ``folder``, which another library wrote, as ``step``; otherwise like ``save``.

        Names and bytes are kept; times, modes and empty folders are not.

        Args:
            step: As for ``save``.
            folder: A folder on this machine.
            metric: As for ``save``.
            overwrite: As for ``save``.

        Raises:
            NotFound: The folder does not exist.
            Unusable: The folder contains no file, or an entry that cannot be kept; the message names it, and nothing
                was sent.
        """
        switch(overwrite, "overwrite")
        self._put(step, FOLDER, partial(upload_folder, folder), metric, overwrite=overwrite)

    def _put(
        self, step: int, kind: str, fill: Callable[[Saving], None], metric: float | None, *, overwrite: bool
    ) -> None:
        step, metric = checked_step(step), checked_metric(metric)
        saving = Saving(self._source, self._steps.folder(step), kind)
        self._mine.add(saving.id)
        with operation("save", self._steps.url, step):
            if not overwrite:
                saving.refuse_existing()
            current = saving.current_etag() if overwrite else ""
            old = self._steps.readable(step) if current else None
            with bar(f"saving {self._steps.url(step)}", 1, None):
                fill(saving)
            manifest = saving.commit({"step": step, "metric": metric}, current)
            if old is not None:
                old.delete_objects()
            self._supersede(step, manifest, saving.etag)

    def steps(self) -> list[int]:
        """Return the committed steps, oldest first: a listing of folders, and one request per step, in parallel."""
        return self._steps.steps()

    def latest(self) -> int | None:
        """Return the newest committed step, or None: a listing of folders, and a request or two."""
        return self._steps.latest()

    def restore(  # noqa: PLR0913  each is named in the call
        self,
        step: int | None = None,
        *,
        into: dict[str, Any] | None = None,
        loader: Loader | None = None,
        allow_new_global_batch: bool = False,
        allow_rereads: bool = False,
        new_weights: object = None,
        map_location: object = None,
        weights_only: bool = True,
    ) -> Any:  # noqa: ANN401  any saved value
        """Return the state of ``step``, every byte verified.

        This process's random generators resume at their saved states. A rank that did not take part in the save keeps
        its generators' states.

        Args:
            step: Number of the step; default: the newest.
            into: A state with the same keys, or some of them: its tensors are filled in place, its other values
                replaced, and it is returned. Plain values that it lacks below its keys are added. Required for a
                checkpoint of several ranks: its tensors define the part that each rank holds now.
            loader: A loader or dataset that resumes at the saved position in the data.
            allow_new_global_batch: As for ``ps.DataLoader.load_state_dict``, as are the next two; they need ``loader``.
            allow_rereads: Accept that ranks read the same blocks until the epoch ends.
            new_weights: Weights of a ``ps.Mix`` from here on.
            map_location: As for ``torch.load``; default: the devices of the saved tensors.
            weights_only: False runs any code that the checkpoint names: use it only for checkpoints you trust.

        Raises:
            NotFound: The step does not exist, or no step exists.
            ChecksumMismatch: An object's bytes do not match its digests; the message names it. ``Truncated``,
                ``CheckpointError``: the same.
            StateMismatch: The saved position does not fit ``loader``.
            Unusable: Several ranks saved it, and ``into`` is None; or ``into`` lacks tensors of it, such as the moments
                of an optimizer before its first step, or does not fit it otherwise.
        """
        switch(weights_only, "weights_only")
        allowed = {"allow_new_global_batch": allow_new_global_batch, "allow_rereads": allow_rereads}
        resume: dict[str, Any] = {name: value for name, value in allowed.items() if switch(value, name)}
        if new_weights is not None:
            resume["new_weights"] = new_weights
        if loader is not None:
            _checked_loader(loader)
        if resume and loader is None:
            raise Unusable(f"{next(iter(resume))}= is for the loader: pass loader= with it")
        if not isinstance(into, dict | None):
            raise Unusable(f'into must be a dict such as {{"model": model.state_dict()}}, got {kind_of(into)}')
        with operation("restore", str, self._url):
            chosen, found = self._restore(self._ranks).state(
                step, into, map_location=map_location, weights_only=weights_only
            )
        if loader is not None:
            if found["loader"] is None:
                raise CheckpointError(
                    "cannot restore loader: the checkpoint has no position in the data",
                    url=self._steps.url(chosen),
                )
            position = readable(found["loader"], "the data's position", self._steps.url(chosen))
            loader.load_state_dict(position, **resume)
        if isinstance(found["rng"], Exception):
            warnings.warn("states of random generators are not restored with weights_only=True", stacklevel=2)
        elif found["rng"] is not None:
            set_generator_states(found["rng"])
        return found["state"]

    def position(self, step: int | None = None) -> dict[str, Any]:
        """Return the position in the data that was saved with a step, for ``DataLoader.seen``; reads no tensor.

        Costs some requests for the ends of the file, whatever its size.

        Args:
            step: Number of the step; default: the newest.

        Raises:
            NotFound: The step does not exist, or no step exists.
            CheckpointError: The step was saved without ``loader``.

        Example:
            >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=8)
            >>> run = ps.CheckpointManager("s3://bucket/seen/")
            >>> run.save(0, {"weight": torch.zeros(2)}, loader=loader)
            >>> run.position()["global_batch"]
            8
        """
        torch_module()
        with operation("restore", str, self._url):
            found = self._restore(None).position(step)
        if found is None:
            raise CheckpointError("the checkpoint has no position in the data: save it with loader=", url=self._url)
        position: dict[str, Any] = readable(found, "the data's position", self._url)
        return position

    def restore_folder(self, folder: str | os.PathLike[str], step: int | None = None) -> None:
        """Write the files of a step that ``save_folder`` saved to ``folder``, atomically.

        Args:
            folder: A folder on this machine, empty or missing.
            step: Number of the step; default: the newest.

        Raises:
            AlreadyExists: ``folder`` is not empty. Other errors are those of ``restore``.
        """
        with operation("restore", str, self._url):
            self._restore(None).files(step, folder)

    def describe(self, step: int) -> StepDescription:
        """Return a committed step's number, size in bytes, number of objects, and metric: two requests.

        Args:
            step: Number of the step.

        Raises:
            NotFound: The step is not committed.
        """
        return self._steps.describe(checked_step(step))

    def verify(self, step: int) -> Iterator[str]:
        """Read a whole step, and yield each object's URL after it is verified, like ``CommittedCheckpoint.verify``.

        Args:
            step: Number of the step.

        Yields:
            The URL of a verified object.
        """
        return CommittedCheckpoint(self._source, self._steps.folder(checked_step(step))).verify()

    def delete(self, *steps: int) -> None:
        """Delete committed steps, in parallel; ``clean`` deletes the objects of a step with a damaged manifest.

        Args:
            *steps: Numbers of the steps.

        Raises:
            NotFound: A step is not committed; the message names it, and nothing was deleted.
        """
        self._steps.delete([checked_step(step) for step in steps])

    def clean(self, older_than_s: float = _DAY_S) -> list[str]:
        """Delete objects that no committed step names, and abort unfinished uploads.

        A save that runs in another process cannot be detected. Objects that this manager saved itself stay. Lists all
        objects below the URL.

        Args:
            older_than_s: Least age of deleted objects, in seconds by the store's clock; it must exceed the duration of
                any save. Default: one day.

        Returns:
            URLs of the deleted objects.
        """
        return self._steps.clean(older_than_s, self._mine)

    def _restore(self, ranks: Ranks | None) -> Restore:
        return Restore(self._source, self._steps, self._url, ranks)

    def _supersede(self, step: int, manifest: Manifest | None, etag: str) -> None:
        if self._retention == Retention():
            return
        committed = self._steps.survey({step: StepEntry.of(manifest, etag)})
        metrics = {number: entry.metric for number, entry in committed.items()}
        superseded = self._retention.superseded(metrics, saved=step)
        self._steps.drop({number: committed.pop(number) for number in superseded})
        self._steps.note(committed)


def describe_steps(run: CheckpointManager) -> Iterator[tuple[int, StepDescription | None]]:
    """Yield each committed step, oldest first, and its description (None if damaged): two requests per step."""
    return run._steps.described()  # noqa: SLF001  its own module


def is_across_ranks(run: CheckpointManager) -> bool:
    """Say whether all ranks of a group save and restore together."""
    return run._ranks is not None  # noqa: SLF001  its own module


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Retention rules: a step that any rule matches is kept; without rules all are kept, and always the newest."""

    last: int | None = None
    every: int | None = None
    best: int | None = None  # steps without a metric, or with NaN, never count
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        for name in ("last", "every", "best"):
            if (number := getattr(self, name)) is not None:
                object.__setattr__(self, name, whole(number, f"keep_{name}", 1))
        check_choice(self.mode, ("min", "max"), "mode")

    def superseded(self, steps: Mapping[int, float | None], saved: int | None = None) -> list[int]:
        """Return the ``steps`` (with metrics) that may be deleted, oldest first; never the step ``saved`` now."""
        if (self.last, self.every, self.best) == (None, None, None):
            return []
        newest_first = sorted(steps, reverse=True)
        kept = {*newest_first[: self.last or 1], saved}
        kept.update(step for step in steps if self.every and step % self.every == 0)
        kept.update(self._best(steps))
        return sorted(steps.keys() - kept)

    def _best(self, steps: Mapping[int, float | None]) -> list[int]:
        sign = 1 if self.mode == "min" else -1
        ranked = [(sign * metric, -step) for step, metric in steps.items() if metric is not None and metric == metric]  # noqa: PLR0124  not NaN
        return [-step for _, step in sorted(ranked)[: self.best or 0]]


def generator_states() -> dict[str, Any]:
    """Return the states of all random generators, as bytes: ``map_location`` would move tensors."""
    torch = torch_module()

    name, keys, *rest = np.random.get_state()  # noqa: NPY002  the generator that libraries share
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": random.getstate(),
        "numpy": (name, np.asarray(keys, dtype="<u4").tobytes(), *rest),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "cuda": [each.numpy().tobytes() for each in gpus],
    }


def set_generator_states(state: dict[str, Any]) -> None:
    """Restore the generators to a result of ``generator_states``; CUDA's only for the same number of devices."""
    torch = torch_module()

    def tensor(data: bytes) -> Any:  # noqa: ANN401  torch is not imported where this is read
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    name, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((name, np.frombuffer(keys, "<u4"), *rest))  # noqa: NPY002  see generator_states
    torch.set_rng_state(tensor(state["torch"]))
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(list(map(tensor, state["cuda"])))


def _checked_loader(loader: Any) -> Any:  # noqa: ANN401  checked here
    if isinstance(loader, type) or not all(hasattr(loader, name) for name in ("state_dict", "load_state_dict")):
        raise Unusable(f"loader must have state_dict() and load_state_dict(), got {kind_of(loader)}")
    return loader


def checked_metric(metric: Any) -> float | None:  # noqa: ANN401  a tensor of one element, a number of NumPy's
    try:
        if isinstance(metric, str | bytes):
            raise TypeError
        return None if metric is None else float(metric)
    except (TypeError, ValueError, RuntimeError):
        raise Unusable(f"metric must be one number, got {kind_of(metric)}") from None
