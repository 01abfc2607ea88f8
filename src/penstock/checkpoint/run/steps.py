"""The checkpoints of a run: saves by step, restores the newest complete step, deletes superseded steps and orphans."""

from __future__ import annotations

import os
import warnings
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.checkpoint.commit.saving import CommittedCheckpoint, Saving
from penstock.checkpoint.integrity.manifest import step_name
from penstock.checkpoint.run.arguments import checked_metric, checked_step
from penstock.checkpoint.run.folder import upload_folder
from penstock.checkpoint.run.restore import FOLDER, ONE, STATE, Restore
from penstock.checkpoint.run.retention import Retention
from penstock.checkpoint.run.rng import generator_states, set_generator_states
from penstock.checkpoint.run.stepindex import StepEntry
from penstock.checkpoint.run.store import StepDescription, StepStore
from penstock.checkpoint.torchfile.decoding import readable
from penstock.checkpoint.torchfile.encoding import encoded
from penstock.checkpoint.torchfile.verbs import dump
from penstock.checkpoint.transfer.tensors import torch_module
from penstock.errors import CheckpointError
from penstock.events import operation
from penstock.progress import bar
from penstock.source import open_source
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.distributed import ProcessGroup

    from penstock.checkpoint.integrity.manifest import Manifest
    from penstock.checkpoint.run.arguments import Loader
    from penstock.checkpoint.run.ranks import Ranks
    from penstock.options import StoreOptions

__all__ = ["CheckpointManager", "StepDescription"]

_DAY_S = 86_400.0


class CheckpointManager:
    """Checkpoints below ``url``, one for each step: there once it is whole, and verified when it is read.

    Model, optimizer, the data's position and the generators' states are one object under one commit: a restore never
    pairs one with another's. Whatever interrupts a save (an exception, Ctrl-C, SIGKILL, a server that fails) leaves the
    older steps as they were, and objects without a manifest, which ``clean`` frees.

    One process saves and restores; ``across`` a group all of its ranks do, each its part of the state.
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
        """Open nothing yet; a missing ``/`` at the end of ``url`` is added.

        A step stays if it is among the newest ``keep_last``, a multiple of ``keep_every`` or, by the ``metric`` it was
        saved with, among the ``keep_best``; all stay where none is set. The newest always does, and so does the step
        that was saved last: an older step that is saved again, as after a restore, goes with the next save at the
        earliest.
        """
        self._source, prefix = open_source(url, store)
        folder = as_folder(prefix)
        self._url = os.fspath(url) + folder[len(prefix) :]
        self._steps = StepStore(self._source, folder)
        self._ranks: Ranks | None = None
        self._retention = Retention(last=keep_last, every=keep_every, best=keep_best, mode=mode)
        self._mine: set[str] = set()

    def across(self, group: ProcessGroup) -> Self:
        """Return the same for the ranks of ``group``, that of sharded or replicated models: all save, all restore.

        The state is a dict then, its tensors torch's own, DTensors or sharded: each rank sends what it holds, what all
        of them hold goes up once, and any number of ranks restores it. The other methods are for any one of them.
        """
        torch_module()
        from penstock.checkpoint.run.ranks import Ranks

        result = copy(self)
        result._ranks = Ranks(group)  # noqa: SLF001  the same class
        return result

    @property
    def together(self) -> bool:
        """Whether all ranks of a group save and restore together."""
        return self._ranks is not None

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
        """Save ``state`` (whatever ``torch.save`` takes) as ``step``, then remove what it supersedes.

        Beside the data's requests a save takes ten at most, with rules and whatever they keep.

        With ``loader``, its position goes along; the generators' states always do. When this returns, the step is
        whole, in the store, and its sizes and ETags were compared. With ``overwrite`` a step that is there is replaced,
        as after a restore of an older one: who reads it meanwhile gets the old one or the new one, whole.

        NumPy's scalars and arrays, dates, paths, enumerations, ranges and sets are carried as plain values. What only
        code can make, and ``restore`` would refuse, is refused before anything is sent; ``weights_only=False`` saves it
        all the same, as ``torch.save`` does, for ``restore(weights_only=False)``.

        Raises:
            Unusable: Something is more than weights; it is named by its path.
            AlreadyExists: The step is committed already, and not to be overwritten.
            PreconditionFailed: Another process replaced or deleted the step meanwhile; what it left stands.
            PenstockError: It could not be written; the older steps stand.

        """
        everything = self.gathered(state, loader, weights_only=weights_only)
        self.put(step, everything, metric, overwrite=overwrite)

    def gathered(self, state: object, loader: Loader | None, *, weights_only: bool = True) -> dict[str, Any]:
        """Return all that belongs into one checkpoint now: ``state``, the data's position, the generators' states.

        Raises:
            Unusable: Something is more than weights, and was not to be.

        """
        parts = {
            "state": state,
            "loader": None if loader is None else dict(loader.state_dict()),
            "rng": generator_states(),
        }
        if self._ranks is not None:
            return self._ranks.gathered(parts, weights_only=weights_only)
        return {name: encoded(part, name) for name, part in parts.items()} if weights_only else parts

    def put(self, step: int, everything: dict[str, Any], metric: float | None, *, overwrite: bool = False) -> None:
        """Save what ``gathered`` returned; see ``save``. For one thread at a time."""
        step, metric = checked_step(step), checked_metric(metric)
        if self._ranks is not None:
            extra = {"step": step, "metric": metric, "ranks": self._ranks.size}
            url = f"{self._url}{step_name(step)}/"
            with operation("save", self._steps.url, step):
                where = self._ranks.writer(url, extra, overwrite=overwrite, store=self._source.options)
                self._ranks.save(where, everything.pop("state"), everything)
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
        """Save the files below ``folder``, which another library wrote, as ``step``; else as ``save``.

        Names and bytes are kept; times, modes and empty folders are not.

        Raises:
            NotFound: There is no such folder.
            Unusable: It has no file, or something that cannot be kept; it is named, and nothing was sent.

        """
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
        """Return the committed steps, oldest first: a listing of folders, and one request for each, in parallel."""
        return self._steps.steps()

    def latest(self) -> int | None:
        """Return the newest committed step; None where there is none. A listing of folders, and a request or two."""
        return self._steps.latest()

    def restore(
        self,
        step: int | None = None,
        *,
        into: dict[str, Any] | None = None,
        loader: Loader | None = None,
        map_location: object = None,
        weights_only: bool = True,
    ) -> Any:  # noqa: ANN401  whatever was saved
        """Return what ``step`` (default: the newest) was saved with, every byte verified.

        ``loader`` resumes at the position of the data then, and this process's generators at their states.
        ``weights_only=False`` runs whatever code the checkpoint names: only for those you trust. What several ranks
        saved is read ``into`` a state of the same keys, whose tensors say which part each rank holds now; that is what
        is returned. The generators of a rank that there was not then stay as they are.

        Raises:
            NotFound: There is no such step, or none at all.
            ChecksumMismatch: An object is not what was written; it is named. ``Truncated``, ``CheckpointError``: the
                same.
            Unusable: Several ranks saved it, and there is no ``into``.

        """
        with operation("restore", str, self._url):
            chosen, found = self._restore(self._ranks).state(
                step, into, map_location=map_location, weights_only=weights_only
            )
        if loader is not None:
            if found["loader"] is None:
                raise CheckpointError("it was saved without the data's position", url=self._steps.url(chosen))
            loader.load_state_dict(readable(found["loader"], "the data's position", self._steps.url(chosen)))
        if isinstance(found["rng"], Exception):
            warnings.warn("the generators' states are more than weights: they stay as they are", stacklevel=2)
        elif found["rng"] is not None:
            set_generator_states(found["rng"])
        return found["state"]

    def restore_folder(self, folder: str | os.PathLike[str], step: int | None = None) -> None:
        """Write what ``save_folder`` saved as ``step`` (default: the newest) to ``folder``, atomically.

        Raises:
            AlreadyExists: There is something in ``folder`` already. Else as ``restore``.

        """
        with operation("restore", str, self._url):
            self._restore(None).files(step, folder)

    def describe(self, step: int) -> StepDescription:
        """Describe a committed step: two requests. Raises ``NotFound``."""
        return self._steps.describe(checked_step(step))

    def described(self) -> Iterator[tuple[int, StepDescription | None]]:
        """Yield each committed step and its description, oldest first; None for one whose manifest is damaged.

        A listing of folders, and two requests for each, in parallel.
        """
        return self._steps.described()

    def verify(self, step: int) -> Iterator[str]:
        """Read a step whole and yield each object's URL once it is verified, as ``CommittedCheckpoint.verify`` does."""
        return CommittedCheckpoint(self._source, self._steps.folder(checked_step(step))).verify()

    def delete(self, *steps: int) -> None:
        """Delete committed steps, in parallel; of one whose manifest is damaged the rest is ``clean``'s.

        Raises:
            NotFound: One of them is not committed; it is named, and nothing was deleted.

        """
        self._steps.delete([checked_step(step) for step in steps])

    def clean(self, older_than_s: float = _DAY_S) -> list[str]:
        """Delete what no committed step names, and abort unfinished uploads; return their URLs.

        Whether a save still runs elsewhere cannot be seen: ``older_than_s``, by the store's own clock, must be longer
        than any save takes. What this object has saved itself stays. Lists everything below the URL.
        """
        return self._steps.clean(older_than_s, self._mine)

    def _restore(self, ranks: Ranks | None) -> Restore:
        return Restore(self._source, self._steps, self._url, ranks)

    def _supersede(self, step: int, manifest: Manifest | None, etag: str) -> None:
        """Delete what the rules do not keep, now that ``step`` is committed by ``manifest``."""
        if self._retention == Retention():
            return
        committed = self._steps.survey({step: StepEntry.of(manifest, etag)})
        metrics = {number: entry.metric for number, entry in committed.items()}
        superseded = self._retention.superseded(metrics, saved=step)
        self._steps.drop({number: committed.pop(number) for number in superseded})
        self._steps.note(committed)
