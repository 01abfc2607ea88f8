"""The checkpoints of a run: saved by step, the newest that is whole restored, superseded ones and orphans removed."""

from __future__ import annotations

import os
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from penstock.checkpoint.commit import Committed, Saving
from penstock.checkpoint.folder import fetch, send
from penstock.checkpoint.keep import Keep
from penstock.checkpoint.layout import step_name
from penstock.checkpoint.rng import draw_on, drawn
from penstock.checkpoint.shelf import Described, Shelf
from penstock.checkpoint.torch import dump, torch_module
from penstock.checkpoint.unpack import unpacked
from penstock.errors import Changed, CheckpointError, NotFound, Unusable
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.distributed import ProcessGroup

    from penstock.checkpoint.layout import Manifest
    from penstock.checkpoint.ranks import Ranks
    from penstock.options import StoreOptions

__all__ = ["CheckpointManager", "Described"]

_ONE, _SEVERAL = "state", "dcp"  # kinds of checkpoints: of one process, or of several ranks
_STATE = "state.pt"
_DAY_S = 86_400.0


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
        from penstock.checkpoint.ranks import Ranks

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
    ) -> None:
        """Save ``state`` (whatever ``torch.save`` takes) as ``step``, then remove what it supersedes.

        With ``loader``, its position goes along; the generators' states always do. When this returns, the step is
        whole, in the store, and its sizes and ETags were compared. With ``overwrite`` a step that is there is replaced,
        as after a restore of an older one: who reads it meanwhile gets the old one or the new one, whole.

        Raises:
            AlreadyExists: The step is committed already, and not to be overwritten.
            PreconditionFailed: Another process replaced or deleted the step meanwhile; what it left stands.
            PenstockError: It could not be written; the older steps stand.

        """
        self.put(step, self.gathered(state, loader), metric, overwrite=overwrite)

    def gathered(self, state: object, loader: Loader | None) -> dict[str, Any]:
        """Return all that belongs into one checkpoint now: ``state``, the data's position, the generators' states."""
        return {"state": state, "loader": None if loader is None else dict(loader.state_dict()), "rng": drawn()}

    def put(self, step: int, everything: dict[str, Any], metric: float | None, *, overwrite: bool = False) -> None:
        """Save what ``gathered`` returned; see ``save``. For one thread at a time."""
        if self._ranks is not None:
            _check(step)
            said = {"step": step, "metric": metric, "ranks": self._ranks.size}
            where = self._ranks.writer(self._at(step), said, overwrite=overwrite, store=self._source.options)
            self._ranks.save(where, everything.pop("state"), everything)
            self._ranks.agreed(self._supersede)
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
        _check(step)
        saving = Saving(self._source, self._shelf.folder(step), kind)
        self._mine.add(saving.id)
        if not overwrite:
            saving.vacant()
        standing = saving.standing() if overwrite else ""
        old = self._shelf.readable(step) if standing else None
        fill(saving)
        saving.commit({"step": step, "metric": metric}, standing)
        if old is not None:
            old.delete_objects()
        self._supersede()

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
        if self._ranks is None:
            chosen, committed = self._look(step)
            manifest = committed.manifest
        else:  # the first rank looks for all: one that failed alone would leave the others waiting
            chosen, manifest = self._ranks.agreed(lambda: self._said(step))
        kind, content = manifest.kind, manifest.content
        if kind not in (_ONE, _SEVERAL) or content.get("step") != chosen:
            message = f"the checkpoint there is a {kind} of step {content.get('step')}"
            raise CheckpointError(message, url=self._shelf.url(chosen))
        if kind == _SEVERAL:
            found = self._loaded_across(chosen, into, content.get("ranks"), weights_only=weights_only)
        else:
            committed = self._look(chosen)[1] if self._ranks is not None else committed
            found = self._loaded(chosen, committed, map_location=map_location, weights_only=weights_only)
        if loader is not None:
            if found["loader"] is None:
                raise CheckpointError("it was saved without the data's position", url=self._shelf.url(chosen))
            loader.load_state_dict(found["loader"])
        if found["rng"] is not None:
            draw_on(found["rng"])
        return found["state"]

    def restore_folder(self, folder: str | os.PathLike[str], step: int | None = None) -> None:
        """Write what ``save_folder`` saved as ``step`` (default: the newest) to ``folder``: whole or not at all.

        Raises:
            AlreadyExists: There is something in ``folder`` already. Else as ``restore``.

        """
        chosen, committed = self._look(step)
        if committed.manifest.kind != "folder":
            raise CheckpointError(f"the checkpoint there is a {committed.manifest.kind}", url=self._shelf.url(chosen))
        fetch(committed, folder)

    def describe(self, step: int) -> Described:
        """Describe a committed step: two requests. Raises ``NotFound``."""
        return self._shelf.describe(step)

    def described(self) -> Iterator[tuple[int, Described | None]]:
        """Yield each committed step and its description, oldest first; None for one whose manifest is damaged.

        A listing of folders, and two requests for each, side by side.
        """
        return self._shelf.described()

    def verify(self, step: int) -> Iterator[str]:
        """Read a step whole and yield the URL of each object that is what was written; see ``Committed.verify``."""
        return Committed(self._source, self._shelf.folder(step)).verify()

    def delete(self, step: int) -> None:
        """Delete a committed step; of one whose manifest is damaged the rest is ``clean``'s. Raises ``NotFound``."""
        self._shelf.delete(step)

    def clean(self, older_than_s: float = _DAY_S) -> list[str]:
        """Delete what no committed step names, and abort uploads that never ended; return their URLs.

        Nobody can see whether a save still runs elsewhere: ``older_than_s``, by the store's own clock, must be longer
        than any save takes. What this object has saved itself stays. Lists everything below the URL.
        """
        return self._shelf.clean(older_than_s, self._mine)

    def _look(self, step: int | None) -> tuple[int, Committed]:
        """Return a step, by default the newest, and what makes it one. Raises ``NotFound``."""
        chosen = self._shelf.latest() if step is None else step
        if chosen is None:
            raise NotFound("no checkpoint is committed there", url=self._url)
        return chosen, Committed(self._source, self._shelf.folder(chosen))

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
        return found

    def _loaded_across(
        self, step: int, into: dict[str, Any] | None, saved_by: object, *, weights_only: bool
    ) -> dict[str, Any]:
        torch_module()
        from penstock.checkpoint.ranks import Ranks

        if into is None:
            raise Unusable("several ranks saved it: say with into= what state to read it into", url=self._at(step))
        if not isinstance(saved_by, int):
            raise CheckpointError("CheckpointManager did not save it", url=self._at(step))
        ranks = self._ranks or Ranks(None)
        own = ranks.load(
            ranks.reader(self._at(step), weights_only=weights_only, store=self._source.options), into, saved_by
        )
        return {**own, "rng": own["rng"] if ranks.rank < saved_by else None, "state": into}

    def _at(self, step: int) -> str:
        return f"{self._url}{step_name(step)}/"

    def _supersede(self) -> None:
        if self._keep == Keep():
            return
        metrics: dict[int, float | None] = dict.fromkeys(self._shelf.steps())
        if self._keep.best is not None:  # else nobody needs them, and manifests of large states are large
            metrics = {step: each.content.get("metric") if each else None for step, each in self._shelf.manifests()}
        for step in self._keep.superseded(metrics):
            self._shelf.delete(step)


def _check(step: int) -> None:
    if step < 0:
        raise Unusable(f"a step is 0 or more, not {step}")
