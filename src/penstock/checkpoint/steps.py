"""The checkpoints of a run: saved by step, the newest that is whole restored, superseded ones and orphans removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol
from uuid import uuid4

from penstock.checkpoint.commit import Committed, Saving
from penstock.checkpoint.keep import Keep
from penstock.checkpoint.layout import MANIFEST, step_name, step_of
from penstock.checkpoint.rng import draw_on, drawn
from penstock.checkpoint.torch import dump, torch_module
from penstock.errors import CheckpointError, NotFound, Unusable
from penstock.source import open_source

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from penstock.checkpoint.layout import Manifest
    from penstock.options import StoreOptions

__all__ = ["CheckpointManager", "Described"]

_STATE = "state.pt"
_CLOCK = "clock"
_DAY_S = 86_400.0


class Described(NamedTuple):
    """What is known of a committed step without reading it.

    Attributes:
        step: Which.
        size: Bytes of its objects together.
        objects: How many.
        metric: As it was saved with.

    """

    step: int
    size: int
    objects: int
    metric: float | None


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

    One process saves. Across the ranks of a sharded model see ``penstock.checkpoint.dcp``.
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
        self._prefix = prefix if prefix.endswith("/") or not prefix else prefix + "/"
        self._keep = Keep(last=keep_last, every=keep_every, best=keep_best, mode=mode)
        self._mine: set[str] = set()

    def save(self, step: int, state: object, *, loader: Loader | None = None, metric: float | None = None) -> None:
        """Save ``state`` (whatever ``torch.save`` takes) as ``step``, then remove what it supersedes.

        With ``loader``, its position goes along; the generators' states always do. When this returns, the step is
        whole, in the store, and its sizes and ETags were compared.

        Raises:
            AlreadyExists: The step is committed already.
            PenstockError: It could not be written; the older steps stand.

        """
        self.put(step, self.gathered(state, loader), metric)

    def gathered(self, state: object, loader: Loader | None) -> dict[str, Any]:
        """Return all that belongs into one checkpoint now: ``state``, the data's position, the generators' states."""
        return {"state": state, "loader": None if loader is None else dict(loader.state_dict()), "rng": drawn()}

    def put(self, step: int, everything: dict[str, Any], metric: float | None) -> None:
        """Save what ``gathered`` returned; see ``save``. For one thread at a time."""
        if step < 0:
            raise Unusable(f"a step is 0 or more, not {step}")
        saving = Saving(self._source, self._folder(step), "state")
        self._mine.add(saving.id)
        saving.vacant()
        with saving.open(_STATE) as writer:
            dump(everything, writer)
        saving.add(_STATE, writer.sealed())
        saving.commit({"step": step, "metric": metric})
        self._supersede()

    def steps(self) -> list[int]:
        """Return the committed steps, oldest first: a listing of folders, and one request for each."""
        return [step for step in self._folders() if self._committed(step)]

    def latest(self) -> int | None:
        """Return the newest committed step; None where there is none. A listing of folders, and a request or two."""
        return next((step for step in reversed(self._folders()) if self._committed(step)), None)

    def restore(
        self,
        step: int | None = None,
        *,
        loader: Loader | None = None,
        map_location: object = None,
        weights_only: bool = True,
    ) -> Any:  # noqa: ANN401  whatever was saved
        """Return what ``step`` (default: the newest) was saved with, every byte verified.

        ``loader`` goes on from where the data stood then, and this process's generators from where they stood.
        ``weights_only=False`` runs whatever code the checkpoint names: only for those you trust.

        Raises:
            NotFound: There is no such step, or none at all.
            ChecksumMismatch: An object is not what was written; it is named. ``Truncated``, ``CheckpointError``: the
                same.

        """
        chosen = self.latest() if step is None else step
        if chosen is None:
            raise NotFound("no checkpoint is committed there", url=self._source.url(self._prefix))
        committed = Committed(self._source, self._folder(chosen))
        names = [name for name in committed.manifest.objects if name.endswith(f"/{_STATE}")]
        kind, content = committed.manifest.kind, committed.manifest.content
        if kind != "state" or len(names) != 1 or content.get("step") != chosen:
            raise CheckpointError(
                f"the checkpoint there is a {kind} of step {content.get('step')}", url=self._url(chosen)
            )
        with committed.open(names[0]) as reader:
            found = torch_module().load(reader, map_location=map_location, weights_only=weights_only)
        if loader is not None:
            if found["loader"] is None:
                raise CheckpointError("it was saved without the data's position", url=self._url(chosen))
            loader.load_state_dict(found["loader"])
        draw_on(found["rng"])
        return found["state"]

    def describe(self, step: int) -> Described:
        """Describe a committed step: two requests. Raises ``NotFound``."""
        manifest = self._manifest(step)
        sizes = [sealed.size for sealed in manifest.objects.values()]
        return Described(step, sum(sizes), len(sizes), manifest.content.get("metric"))

    def verify(self, step: int) -> Iterator[str]:
        """Read a step whole and yield the URL of each object that is what was written; see ``Committed.verify``."""
        return Committed(self._source, self._folder(step)).verify()

    def delete(self, step: int) -> None:
        """Delete a committed step. Raises ``NotFound``."""
        Committed(self._source, self._folder(step)).delete()

    def clean(self, older_than_s: float = _DAY_S) -> list[str]:
        """Delete what no committed step names, and abort uploads that never ended; return their URLs.

        Nobody can see whether a save still runs elsewhere: ``older_than_s``, by the store's own clock, must be longer
        than any save takes. What this object has saved itself stays. Lists everything below the URL.
        """
        named: set[str] = set()
        for step in self.steps():
            objects = self._manifest(step).objects
            named.update(self._folder(step) + name for name in (MANIFEST, *objects))
        latest = self._clock() - older_than_s

        def orphaned(key: str, since: float | None) -> bool:
            return key not in named and since is not None and since <= latest and self._foreign(key)

        entries = [entry for page in self._source.pages(self._prefix) for entry in page.entries]
        old = [entry.key for entry in entries if orphaned(entry.key, entry.modified)]
        uploads = [upload for upload in self._source.unfinished(self._prefix) if orphaned(upload.key, upload.begun)]
        self._source.delete(old)
        for upload in uploads:
            self._source.abort(upload)
        return [self._source.url(key) for key in [*old, *(upload.key for upload in uploads)]]

    def _supersede(self) -> None:
        if self._keep == Keep():
            return
        metrics: dict[int, float | None] = dict.fromkeys(self.steps())
        if self._keep.best is not None:  # else nobody needs them, and manifests of large states are large
            metrics = {step: self.describe(step).metric for step in metrics}
        for step in self._keep.superseded(metrics):
            self.delete(step)

    def _manifest(self, step: int) -> Manifest:
        return Committed(self._source, self._folder(step)).manifest

    def _foreign(self, key: str) -> bool:
        """Say whether a key is of some save, and none of this object's; what is no checkpoint's is left alone."""
        folder, _, rest = key.removeprefix(self._prefix).partition("/")
        save = rest.partition("/")[0]
        return (step_of(folder) is not None and save not in self._mine) or folder == _CLOCK

    def _clock(self) -> float:
        """Return the store's time: when an object written just now was."""
        key = f"{self._prefix}{_CLOCK}/{uuid4().hex}"
        self._source.put(key, b"")
        try:
            now = self._source.head(key).modified
        finally:
            self._source.delete([key])
        if now is None:
            raise Unusable("this store does not say when objects were written, so orphans cannot be told from saves")
        return now

    def _folders(self) -> list[int]:
        prefixes = [prefix for page in self._source.pages(self._prefix, delimiter="/") for prefix in page.prefixes]
        found = [step_of(prefix.removeprefix(self._prefix).rstrip("/")) for prefix in prefixes]
        return sorted(step for step in found if step is not None)

    def _committed(self, step: int) -> bool:
        try:
            self._source.head(self._folder(step) + MANIFEST)
        except NotFound:
            return False
        return True

    def _folder(self, step: int) -> str:
        return f"{self._prefix}{step_name(step)}/"

    def _url(self, step: int) -> str:
        return self._source.url(self._folder(step))
