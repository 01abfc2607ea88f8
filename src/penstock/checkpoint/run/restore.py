"""Finds and reads the step that a restore is of: the newest again where it is superseded or replaced meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.checkpoint.commit.saving import CommittedCheckpoint
from penstock.checkpoint.integrity.manifest import step_name
from penstock.checkpoint.run.arguments import checked_step
from penstock.checkpoint.run.folder import download_folder
from penstock.checkpoint.torchfile.decoding import decoded
from penstock.checkpoint.torchfile.load import load_torchfile
from penstock.checkpoint.transfer.tensors import torch_module
from penstock.errors import Changed, CheckpointError, NotFound, PenstockError, Unusable
from penstock.progress import bar

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from penstock.checkpoint.integrity.manifest import Manifest
    from penstock.checkpoint.run.ranks import Ranks
    from penstock.checkpoint.run.store import StepStore
    from penstock.source import Source

__all__ = ["FOLDER", "ONE", "SEVERAL", "STATE", "Restore"]

ONE, SEVERAL, FOLDER = "state", "dcp", "folder"  # kinds of checkpoints: of one process, of several ranks, of files
STATE = "state.pt"
_LOOKS = 9  # for the newest step: while one is read, saves with keep_last=1 may supersede it

T = TypeVar("T")


class _Found(NamedTuple):
    """A step, and what makes it one; ``committed`` is None where the first rank looked for all."""

    step: int
    manifest: Manifest
    committed: CommittedCheckpoint | None


@dataclass(frozen=True, slots=True)
class Restore:
    """What reads steps of a run.

    Attributes:
        source: Where the steps lie.
        steps: Which there are.
        url: The run's, ending in ``/``.
        ranks: Those that restore together; None: this process alone.

    """

    source: Source
    steps: StepStore
    url: str
    ranks: Ranks | None

    def state(
        self, step: int | None, into: dict[str, Any] | None, *, map_location: object, weights_only: bool
    ) -> tuple[int, dict[str, Any]]:
        """Return which step was read, by default the newest, and its parts: ``state``, ``loader``, ``rng``.

        Raises:
            NotFound: There is no such step, or none at all.
            CheckpointError: It is damaged, or of another kind.
            Unusable: Several ranks saved it, and there is no ``into``.

        """

        def read(found: _Found) -> tuple[int, dict[str, Any]]:
            kind, content = found.manifest.kind, found.manifest.content
            if kind not in (ONE, SEVERAL) or content.get("step") != found.step:
                message = f"the checkpoint there is a {kind} of step {content.get('step')}"
                raise CheckpointError(message, url=self.steps.url(found.step))
            if kind == SEVERAL:
                return found.step, self._of_ranks(found, into, weights_only=weights_only)
            committed = found.committed or CommittedCheckpoint(self.source, self.steps.folder(found.step))
            return found.step, self._of_one(found.step, committed, map_location=map_location, weights_only=weights_only)

        return self._current(step, read)

    def files(self, step: int | None, folder: str | os.PathLike[str]) -> None:
        """Write the files of a step, by default the newest, below ``folder``; see ``download_folder``."""

        def read(found: _Found) -> None:
            if found.manifest.kind != FOLDER or found.committed is None:
                message = f"the checkpoint there is a {found.manifest.kind}"
                raise CheckpointError(message, url=self.steps.url(found.step))
            objects = found.manifest.objects
            size_bytes = sum(each.size for each in objects.values())
            with bar(f"restoring {self.steps.url(found.step)}", len(objects), size_bytes):
                download_folder(found.committed, folder)

        self._current(step, read)

    def _current(self, step: int | None, read: Callable[[_Found], T]) -> T:
        """Read a step, by default the newest: that one again where it is superseded, or replaced, meanwhile.

        Among ranks the first one looks for all, and all look again where the step was superseded for any.
        """
        for left in reversed(range(_LOOKS if step is None else 1)):
            found = self._find(step)
            failure: Exception | None = None
            try:
                result = read(found)
            except Exception as error:  # noqa: BLE001  raised below, unless all look again
                failure = error
            if not left or not self._superseded(found, failure):
                break
        if failure is not None:
            raise failure
        return result

    def _superseded(self, found: _Found, failure: Exception | None) -> bool:
        """Say whether a step could not be read, on any rank, and another one is the newest by now."""
        gone = isinstance(failure, (NotFound, Changed, AssertionError))  # the last: torch's, where metadata is gone
        if not (gone if self.ranks is None else self.ranks.any(gone)):
            return False
        newest = self._find(None)
        return (newest.step, newest.manifest.save) != (found.step, found.manifest.save)

    def _find(self, step: int | None) -> _Found:
        """Return a step, by default the newest. Among ranks one that failed alone would leave the others waiting."""
        if self.ranks is not None:
            return self.ranks.agreed(lambda: self._look(step)._replace(committed=None))  # a source may hold secrets
        return self._look(step)

    def _look(self, step: int | None) -> _Found:
        """Return a step, by default the newest, and what makes it one. Raises ``NotFound``."""
        for left in reversed(range(_LOOKS)):
            chosen = self.steps.latest() if step is None else checked_step(step)
            if chosen is None:
                break
            try:
                committed = CommittedCheckpoint(self.source, self.steps.folder(chosen))
            except NotFound as error:
                if step is not None:
                    raise self._absent(chosen, error) from error
                if not left:
                    raise
            else:
                return _Found(chosen, committed.manifest, committed)
        raise NotFound("no checkpoint is committed there", url=self.url)

    def _absent(self, step: int, error: NotFound) -> NotFound:
        said = f"step {step} is not committed"
        try:
            newest = self.steps.latest()
        except PenstockError as refusal:  # who may read steps may not be allowed to list them
            if isinstance(refusal, NotFound) and refusal.missing == "bucket":  # which a HEAD does not tell
                return refusal
        else:
            said += ", nor is any other" if newest is None else f"; the newest that is has number {newest}"
        return NotFound(said, url=error.url)

    def _of_one(
        self, step: int, committed: CommittedCheckpoint, *, map_location: object, weights_only: bool
    ) -> dict[str, Any]:
        names = [name for name in committed.manifest.objects if name.endswith(f"/{STATE}")]
        if len(names) != 1:
            raise CheckpointError(f"it holds {len(names)} states", url=self.steps.url(step))
        try:
            (of,) = committed.objects(names).values()
            with bar(f"restoring {self.steps.url(step)}", 1, of.size):
                parts: dict[str, Any] = load_torchfile(
                    self.source, of, map_location=map_location, weights_only=weights_only
                )
        except (NotFound, Changed):
            now = CommittedCheckpoint(self.source, self.steps.folder(step))
            if now.etag == committed.etag:
                raise
            return self._of_one(step, now, map_location=map_location, weights_only=weights_only)  # it was replaced
        return {name: decoded(part, name) for name, part in parts.items()}

    def _of_ranks(self, found: _Found, into: dict[str, Any] | None, *, weights_only: bool) -> dict[str, Any]:
        torch_module()
        from penstock.checkpoint.run.ranks import Ranks

        url, saved_by = f"{self.url}{step_name(found.step)}/", found.manifest.content.get("ranks")
        if into is None:
            raise Unusable("several ranks saved it: say with into= what state to read it into", url=url)
        if not isinstance(saved_by, int):
            raise CheckpointError("CheckpointManager did not save it", url=url)
        ranks = self.ranks or Ranks(None)
        reader = ranks.reader(url, weights_only=weights_only, store=self.source.options)
        own = ranks.load(reader, into, saved_by, weights_only=weights_only)
        return {**own, "rng": own["rng"] if ranks.rank < saved_by else None, "state": into}
