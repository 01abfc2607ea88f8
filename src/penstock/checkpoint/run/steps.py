"""The checkpoints of a run: saved by step, the newest that is whole restored, superseded ones and orphans removed."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

from penstock.checkpoint.commit.saving import Committed, Saving
from penstock.checkpoint.integrity.manifest import step_name
from penstock.checkpoint.run.folder import fetch, send
from penstock.checkpoint.run.retention import Keep
from penstock.checkpoint.run.rng import draw_on, drawn
from penstock.checkpoint.run.stepindex import Entry
from penstock.checkpoint.run.store import Described, Shelf
from penstock.checkpoint.torchfile.encoding import decoded, encoded, readable
from penstock.checkpoint.torchfile.load import unpacked
from penstock.checkpoint.torchfile.verbs import dump
from penstock.checkpoint.transfer.tensors import torch_module
from penstock.errors import Changed, CheckpointError, NotFound, Unusable
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.distributed import ProcessGroup

    from penstock.checkpoint.integrity.manifest import Manifest
    from penstock.checkpoint.run.ranks import Ranks
    from penstock.options import StoreOptions

__all__ = ["CheckpointManager", "Described"]

_ONE, _SEVERAL = "state", "dcp"  # kinds of checkpoints: of one process, or of several ranks
_STATE = "state.pt"
_DAY_S = 86_400.0
_STEPS = 10**18  # more digits no folder of a step has
_LOOKS = 9  # for the newest step: while one is read, saves with keep_last=1 may supersede it

T = TypeVar("T")
_Read = Callable[[int, "Manifest", Committed | None], T]


class Loader(Protocol):
    """What knows where the data stands: a ``penstock.DataLoader``, for one."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return what the training loop has received."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Go on from there."""


class CheckpointManager:
    """Checkpoints below ``url``, one for each step: there once it is whole, and verified when it is read.

    Model, optimizer, the data's position and the generators' states are one object under one commit: a restore never
    pairs one with another's. Whatever interrupts a save (an exception, Ctrl-C, SIGKILL, a server that fails) leaves the
    older steps as they were, and objects that nobody reads, which ``clean`` frees.

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
        store: StoreOptions | None = None,
    ) -> None:
        """Open nothing yet; a missing ``/`` at the end of ``url`` is added.

        A step stays if it is among the newest ``keep_last``, a multiple of ``keep_every`` or, by the ``metric`` it was
        saved with, among the ``keep_best``; all stay where none is set. The newest always does.
        """
        self._source, prefix = open_source(url, store)
        missing = "" if prefix.endswith("/") or not prefix else "/"
        self._url = os.fspath(url) + missing
        self._shelf = Shelf(self._source, prefix + missing)
        self._ranks: Ranks | None = None
        self._keep = Keep(last=keep_last, every=keep_every, best=keep_best, mode=mode)
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
        """Whether saving and restoring is for all ranks of a group at once."""
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
        parts = {"state": state, "loader": None if loader is None else dict(loader.state_dict()), "rng": drawn()}
        if self._ranks is not None:
            return self._ranks.gathered(parts, weights_only=weights_only)
        return {name: encoded(part, name) for name, part in parts.items()} if weights_only else parts

    def put(self, step: int, everything: dict[str, Any], metric: float | None, *, overwrite: bool = False) -> None:
        """Save what ``gathered`` returned; see ``save``. For one thread at a time."""
        step, metric = _checked(step), _measured(metric)
        if self._ranks is not None:
            said = {"step": step, "metric": metric, "ranks": self._ranks.size}
            where = self._ranks.writer(self._at(step), said, overwrite=overwrite, store=self._source.options)
            self._ranks.save(where, everything.pop("state"), everything)
            self._ranks.agreed(lambda: self._supersede(step, where.manifest, where.etag))
            return

        def fill(saving: Saving) -> None:
            with saving.open(_STATE) as writer:
                dump(everything, writer)
            saving.add(_STATE, writer.sealed())

        self._put(step, _ONE, fill, metric, overwrite=overwrite)

    def save_folder(
        self, step: int, folder: str | os.PathLike[str], *, metric: float | None = None, overwrite: bool = False
    ) -> None:
        """Save the files below ``folder``, which another library wrote, as ``step``; else as ``save``.

        Names and bytes are kept; times, modes and empty folders are not.

        Raises:
            NotFound: There is no such folder.
            Unusable: It has no file, or something that cannot be kept; it is named, and nothing was sent.

        """
        self._put(step, "folder", partial(send, folder), metric, overwrite=overwrite)

    def _put(
        self, step: int, kind: str, fill: Callable[[Saving], None], metric: float | None, *, overwrite: bool
    ) -> None:
        step, metric = _checked(step), _measured(metric)
        saving = Saving(self._source, self._shelf.folder(step), kind)
        self._mine.add(saving.id)
        if not overwrite:
            saving.vacant()
        standing = saving.standing() if overwrite else ""
        old = self._shelf.readable(step) if standing else None
        fill(saving)
        manifest = saving.commit({"step": step, "metric": metric}, standing)
        if old is not None:
            old.delete_objects()
        self._supersede(step, manifest, saving.etag)

    def steps(self) -> list[int]:
        """Return the committed steps, oldest first: a listing of folders, and one request for each, side by side."""
        return self._shelf.steps()

    def latest(self) -> int | None:
        """Return the newest committed step; None where there is none. A listing of folders, and a request or two."""
        return self._shelf.latest()

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

        ``loader`` goes on from where the data stood then, and this process's generators from where they stood.
        ``weights_only=False`` runs whatever code the checkpoint names: only for those you trust. What several ranks
        saved is read ``into`` a state of the same keys, whose tensors say which part each rank holds now; that is what
        is returned. The generators of a rank that there was not then stay as they are.

        Raises:
            NotFound: There is no such step, or none at all.
            ChecksumMismatch: An object is not what was written; it is named. ``Truncated``, ``CheckpointError``: the
                same.
            Unusable: Several ranks saved it, and there is no ``into``.

        """

        def read(chosen: int, manifest: Manifest, committed: Committed | None) -> tuple[int, dict[str, Any]]:
            kind, content = manifest.kind, manifest.content
            if kind not in (_ONE, _SEVERAL) or content.get("step") != chosen:
                message = f"the checkpoint there is a {kind} of step {content.get('step')}"
                raise CheckpointError(message, url=self._shelf.url(chosen))
            if kind == _SEVERAL:
                return chosen, self._loaded_across(chosen, into, content.get("ranks"), weights_only=weights_only)
            committed = committed or self._look(chosen)[1]
            return chosen, self._loaded(chosen, committed, map_location=map_location, weights_only=weights_only)

        chosen, found = self._current(step, read, self._ranks)
        if loader is not None:
            if found["loader"] is None:
                raise CheckpointError("it was saved without the data's position", url=self._shelf.url(chosen))
            loader.load_state_dict(readable(found["loader"], "the data's position", self._shelf.url(chosen)))
        if isinstance(found["rng"], Exception):
            warnings.warn("the generators' states are more than weights: they stay as they are", stacklevel=2)
        elif found["rng"] is not None:
            draw_on(found["rng"])
        return found["state"]

    def restore_folder(self, folder: str | os.PathLike[str], step: int | None = None) -> None:
        """Write what ``save_folder`` saved as ``step`` (default: the newest) to ``folder``: whole or not at all.

        Raises:
            AlreadyExists: There is something in ``folder`` already. Else as ``restore``.

        """

        def read(chosen: int, manifest: Manifest, committed: Committed | None) -> None:
            if manifest.kind != "folder" or committed is None:
                raise CheckpointError(f"the checkpoint there is a {manifest.kind}", url=self._shelf.url(chosen))
            fetch(committed, folder)

        self._current(step, read, None)

    def describe(self, step: int) -> Described:
        """Describe a committed step: two requests. Raises ``NotFound``."""
        return self._shelf.describe(_checked(step))

    def described(self) -> Iterator[tuple[int, Described | None]]:
        """Yield each committed step and its description, oldest first; None for one whose manifest is damaged.

        A listing of folders, and two requests for each, side by side.
        """
        return self._shelf.described()

    def verify(self, step: int) -> Iterator[str]:
        """Read a step whole and yield the URL of each object that is what was written; see ``Committed.verify``."""
        return Committed(self._source, self._shelf.folder(_checked(step))).verify()

    def delete(self, *steps: int) -> None:
        """Delete committed steps, side by side; of one whose manifest is damaged the rest is ``clean``'s.

        Raises:
            NotFound: One of them is not committed; it is named, and nothing was deleted.

        """
        self._shelf.delete([_checked(step) for step in steps])

    def clean(self, older_than_s: float = _DAY_S) -> list[str]:
        """Delete what no committed step names, and abort uploads that never ended; return their URLs.

        Nobody can see whether a save still runs elsewhere: ``older_than_s``, by the store's own clock, must be longer
        than any save takes. What this object has saved itself stays. Lists everything below the URL.
        """
        return self._shelf.clean(older_than_s, self._mine)

    def _current(
        self, step: int | None, read: Callable[[int, Manifest, Committed | None], T], ranks: Ranks | None
    ) -> T:
        """Read a step, by default the newest: that one again where it is superseded, or replaced, meanwhile.

        With ``ranks`` the first one looks for all, and all look again where it was superseded for any.
        """
        for left in reversed(range(_LOOKS if step is None else 1)):
            committed = None
            if ranks is None:
                chosen, committed = self._look(step)
                manifest = committed.manifest
            else:  # one that failed alone would leave the others waiting
                chosen, manifest = ranks.agreed(lambda: self._said(step))
            failure: Exception | None = None
            try:
                result = read(chosen, manifest, committed)
            except Exception as error:  # noqa: BLE001  raised below, unless all look again
                failure = error
            gone = isinstance(failure, (NotFound, Changed, AssertionError))  # the last: torch's, where metadata is gone
            if left and (gone if ranks is None else ranks.any(gone)):
                newest, now = self._said(None) if ranks is None else ranks.agreed(lambda: self._said(None))
                if (newest, now.save) != (chosen, manifest.save):
                    continue
            break
        if failure is not None:
            raise failure
        return result

    def _look(self, step: int | None) -> tuple[int, Committed]:
        """Return a step, by default the newest, and what makes it one. Raises ``NotFound``."""
        for left in reversed(range(_LOOKS)):
            chosen = self._shelf.latest() if step is None else _checked(step)
            if chosen is None:
                break
            try:
                return chosen, Committed(self._source, self._shelf.folder(chosen))
            except NotFound:
                if step is not None or not left:
                    raise
        raise NotFound("no checkpoint is committed there", url=self._url)

    def _said(self, step: int | None) -> tuple[int, Manifest]:
        """Return the same as what may travel: the way to a store may hold secrets."""
        chosen, committed = self._look(step)
        return chosen, committed.manifest

    def _loaded(self, step: int, committed: Committed, *, map_location: object, weights_only: bool) -> dict[str, Any]:
        names = [name for name in committed.manifest.objects if name.endswith(f"/{_STATE}")]
        if len(names) != 1:
            raise CheckpointError(f"it holds {len(names)} states", url=self._shelf.url(step))
        try:
            (of,) = committed.objects(names).values()
            found: dict[str, Any] = unpacked(self._source, of, map_location=map_location, weights_only=weights_only)
        except (NotFound, Changed):
            now = Committed(self._source, self._shelf.folder(step))
            if now.etag == committed.etag:
                raise
            return self._loaded(step, now, map_location=map_location, weights_only=weights_only)  # it was replaced
        return {name: decoded(part, name) for name, part in found.items()}

    def _loaded_across(
        self, step: int, into: dict[str, Any] | None, saved_by: object, *, weights_only: bool
    ) -> dict[str, Any]:
        torch_module()
        from penstock.checkpoint.run.ranks import Ranks

        if into is None:
            raise Unusable("several ranks saved it: say with into= what state to read it into", url=self._at(step))
        if not isinstance(saved_by, int):
            raise CheckpointError("CheckpointManager did not save it", url=self._at(step))
        ranks = self._ranks or Ranks(None)
        own = ranks.load(
            ranks.reader(self._at(step), weights_only=weights_only, store=self._source.options),
            into,
            saved_by,
            weights_only=weights_only,
        )
        return {**own, "rng": own["rng"] if ranks.rank < saved_by else None, "state": into}

    def _at(self, step: int) -> str:
        return f"{self._url}{step_name(step)}/"

    def _supersede(self, step: int, manifest: Manifest | None, etag: str) -> None:
        """Delete what the rules do not keep, now that ``step`` is committed by ``manifest``."""
        if self._keep == Keep():
            return
        committed = self._shelf.survey({step: Entry.of(manifest, etag)})
        superseded = self._keep.superseded({step: entry.metric for step, entry in committed.items()})
        self._shelf.drop({step: committed.pop(step) for step in superseded})
        self._shelf.note(committed)


def _checked(step: int) -> int:
    """Return a step as Python's int, of whatever kind it is."""
    try:
        number = operator.index(step)
    except TypeError:
        raise Unusable(f"a step is an integer, not a {type(step).__name__}") from None
    if not 0 <= number < _STEPS:
        raise Unusable(f"a step is 0 to {_STEPS - 1:,}, not {number:,}")
    return number


def _measured(metric: Any) -> float | None:  # noqa: ANN401  a tensor of one element, a number of NumPy's
    """Return a metric as Python's float."""
    try:
        return None if metric is None else float(metric)
    except (TypeError, ValueError, RuntimeError):
        raise Unusable(f"a metric is one number, not a {type(metric).__name__}") from None
