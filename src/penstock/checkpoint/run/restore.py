"""Restore of a run's steps: finds the newest committed step, again if it is superseded meanwhile, and reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.checkpoint.commit import CommittedCheckpoint
from penstock.checkpoint.integrity import Manifest, step_name
from penstock.checkpoint.run.filling import fill_state
from penstock.checkpoint.run.store import StepStore, checked_step, download_folder
from penstock.checkpoint.staging import torch_module
from penstock.checkpoint.torchfile.encoding import decode_value
from penstock.checkpoint.torchfile.load import load_torchfile
from penstock.checkpoint.torchfile.verbs import load_lazily
from penstock.errors import Changed, CheckpointError, NotFound, PenstockError, Unusable
from penstock.progress import bar

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from penstock.checkpoint.gather import Object
    from penstock.checkpoint.run.ranks import Ranks
    from penstock.source import Source

# Kinds of checkpoints: of one process, of several ranks, of files.
ONE, SEVERAL, FOLDER = "state", "dcp", "folder"
STATE = "state.pt"
# Attempts to find the newest step: during a read, saves with keep_last=1 may supersede it.
_LOOKS = 9

T = TypeVar("T")


class _Found(NamedTuple):
    """Step and its manifest; ``committed`` is None if the first rank looked for all ranks."""

    step: int
    manifest: Manifest
    committed: CommittedCheckpoint | None


@dataclass(frozen=True, slots=True)
class Restore:
    """Reader of a run's steps below ``url``, which ends in ``/``."""

    source: Source
    steps: StepStore
    url: str
    ranks: Ranks | None  # that restore together; None for this process alone

    def state(
        self, step: int | None, into: dict[str, Any] | None, *, map_location: object, weights_only: bool
    ) -> tuple[int, dict[str, Any]]:
        """Return the step that was read, by default the newest, and its parts: ``state``, ``loader``, ``rng``."""

        def load(of: Object) -> dict[str, Any]:
            with bar(f"restoring {of.url}", 1, of.size):
                parts: dict[str, Any] = load_torchfile(
                    self.source, of, map_location=map_location, weights_only=weights_only
                )
            return {name: decode_value(part, name) for name, part in parts.items()}

        def read(found: _Found) -> tuple[int, dict[str, Any]]:
            if self._check_kind(found) == SEVERAL:
                return found.step, self._of_ranks(found, into, weights_only=weights_only)
            parts = self._of_one(found, load)
            return found.step, parts if into is None else {**parts, "state": fill_state(into, parts["state"])}

        return self._current(step, read)

    def position(self, step: int | None) -> Any:  # noqa: ANN401  any saved value
        """Return the position in the data of a step, by default the newest; None: it has none. Reads no tensor."""

        def load(of: Object) -> dict[str, Any]:
            return {"loader": decode_value(load_lazily(self.source, of, weights_only=True)["loader"], "loader")}

        def read(found: _Found) -> Any:  # noqa: ANN401  see position
            if self._check_kind(found) == SEVERAL:
                return self._of_ranks(found, {}, weights_only=True)["loader"]
            return self._of_one(found, load)["loader"]

        return self._current(step, read)

    def _check_kind(self, found: _Found) -> str:
        """Return the kind of a checkpoint of values."""
        kind, content = found.manifest.kind, found.manifest.content
        if kind not in (ONE, SEVERAL) or content.get("step") != found.step:
            message = f"the checkpoint is a {kind} of step {content.get('step')}"
            raise CheckpointError(message, url=self.steps.url(found.step))
        return kind

    def files(self, step: int | None, folder: str | os.PathLike[str]) -> None:
        def read(found: _Found) -> None:
            if found.manifest.kind != FOLDER or found.committed is None:
                message = f"the checkpoint is a {found.manifest.kind}"
                raise CheckpointError(message, url=self.steps.url(found.step))
            objects = found.manifest.objects
            size_bytes = sum(each.size for each in objects.values())
            with bar(f"restoring {self.steps.url(found.step)}", len(objects), size_bytes):
                download_folder(found.committed, folder)

        self._current(step, read)

    def _current(self, step: int | None, read: Callable[[_Found], T]) -> T:
        """Read a step, by default the newest; if the newest is superseded or replaced meanwhile, read the new newest.

        With ranks, the first rank looks for all, and all look again if the step was superseded for any of them.
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
        """Return whether a step could not be read, on any rank, and the newest step is now a different one."""
        # torch raises AssertionError for missing metadata.
        gone = isinstance(failure, (NotFound, Changed, AssertionError))
        if not (gone if self.ranks is None else self.ranks.any(gone)):
            return False
        newest = self._find(None)
        return (newest.step, newest.manifest.save) != (found.step, found.manifest.save)

    def _find(self, step: int | None) -> _Found:
        """Return a step, by default the newest. All ranks get the same result or error, so none waits for another."""
        if self.ranks is not None:
            return self.ranks.agreed(lambda: _shorten(self._look(step)))
        return self._look(step)

    def _look(self, step: int | None) -> _Found:
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
        raise NotFound("no committed checkpoint found", url=self.url)

    def _absent(self, step: int, error: NotFound) -> NotFound:
        said = f"step {step} is not committed"
        try:
            newest = self.steps.latest()
        # Permission to read steps does not imply permission to list them.
        except PenstockError as refusal:
            if isinstance(refusal, NotFound) and refusal.missing == "bucket":  # a HEAD does not tell this
                return refusal
        else:
            said += ", nor is any other" if newest is None else f"; the newest committed step is {newest}"
        return NotFound(said, url=error.url)

    def _of_one(self, found: _Found, load: Callable[[Object], dict[str, Any]]) -> dict[str, Any]:
        """Return the parts that ``load`` reads of the file of one process."""
        committed = found.committed or CommittedCheckpoint(self.source, self.steps.folder(found.step))
        names = [name for name in committed.manifest.objects if name.endswith(f"/{STATE}")]
        if len(names) != 1:
            message = f"the checkpoint must hold one state, got {len(names)}"
            raise CheckpointError(message, url=self.steps.url(found.step))
        try:
            (of,) = committed.objects(names).values()
            return load(of)
        except (NotFound, Changed):
            now = CommittedCheckpoint(self.source, self.steps.folder(found.step))
            if now.etag == committed.etag:
                raise
            return self._of_one(found._replace(committed=now), load)  # it was replaced

    def _of_ranks(self, found: _Found, into: dict[str, Any] | None, *, weights_only: bool) -> dict[str, Any]:
        torch_module()
        from penstock.checkpoint.run.ranks import Ranks

        url, saved_by = f"{self.url}{step_name(found.step)}/", found.manifest.content.get("ranks")
        if not isinstance(saved_by, int):
            raise CheckpointError("CheckpointManager did not save this checkpoint", url=url)
        ranks = self.ranks or Ranks(None)
        state = ranks.everywhere(lambda: _require_into(into, url))
        own = ranks.load(url, state, saved_by, weights_only=weights_only, store=self.source.options)
        return {**own, "rng": own["rng"] if ranks.rank < saved_by else None, "state": state}


def _shorten(found: _Found) -> _Found:
    """Return what ranks send each other: neither sources, which may hold secrets, nor names and digests of objects."""
    return found._replace(committed=None, manifest=replace(found.manifest, objects={}, indexed={}))


def _require_into(into: dict[str, Any] | None, url: str) -> dict[str, Any]:
    if into is None:
        raise Unusable("several ranks saved this checkpoint: pass into=, the state to read it into", url=url)
    return into
