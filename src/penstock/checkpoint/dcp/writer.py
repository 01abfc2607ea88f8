"""torch's Distributed Checkpoint on an object store: the storage writer of its ``save`` and ``async_save``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import uuid4

from torch.distributed.checkpoint import storage
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import WriteItemType
from torch.futures import Future

from penstock.checkpoint.columns import INDEX, describe_columns, iterate_columns
from penstock.checkpoint.commit import publish
from penstock.checkpoint.dcp import records, torchmeta
from penstock.checkpoint.dcp.reader import ExistingCheckpoints, Located, find_checkpoints
from penstock.checkpoint.dcp.records import KIND, ItemLocation
from penstock.checkpoint.integrity import MANIFEST, METADATA, ChecksummedWriter, Manifest
from penstock.checkpoint.staging import iterate_bytes
from penstock.checkpoint.torchfile.verbs import dump
from penstock.engine.contracts.driver import Put
from penstock.errors import AlreadyExists, Unusable
from penstock.progress import bar
from penstock.values import check_choice, switch, whole

if TYPE_CHECKING:
    import io
    import os

    import torch
    from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
    from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
    from torch.distributed.checkpoint.storage import WriteResult

    from penstock.options import StoreOptions

_MOST_SPREAD = 256  # folders of two hex digits


class _RankOrder(NamedTuple):
    """Message from the coordinator to a rank."""

    save: str
    rank: int
    token: object  # sent by the rank before: proves that the order is for this rank and this save


class _Written(NamedTuple):
    """An item that a rank has written, and the URL of the checkpoint that the rank wrote to."""

    url: str
    location: ItemLocation


class StorageWriter(Located, storage.StorageWriter):
    """Storage writer for a checkpoint below ``url``, on every rank.

    Each rank writes one object, under a name unique to the save. The coordinator then writes an index of all objects,
    and commits them in one conditional PUT. So a save is atomic, and with ``overwrite`` a reader sees either the old
    checkpoint or the new one. A save that fails before leaves unused objects. Memory beyond the state: a staged piece
    of 8 MiB, and 64 MiB in flight. A writer can be used for several saves, pickled, and passed to ``async_save`` with a
    thread or a process.

    Args:
        url: The checkpoint's folder; a missing ``/`` at its end is added.
        overwrite: Replace an existing checkpoint; otherwise raise ``AlreadyExists``. The old objects are deleted
            after the new checkpoint is committed, and a concurrent reader raises ``Changed``.
        layout: ``torch`` writes the layout of torch's ``FileSystemReader``, which has no digests to verify; default:
            ``penstock``.
        spread: Number of prefixes for the ranks' objects (2 to 256), for stores that scale by prefix; 0 for none.
        store: Options, or the name of a profile; default: environment and profile.

    Attributes:
        extra: JSON that the coordinator adds to the manifest's ``content``.
        manifest: On the coordinator, the manifest of its last save; None in torch's layout.
        etag: On the coordinator, the ETag of that manifest, or of torch's metadata.

    Raises:
        Unusable: ``layout`` or ``spread`` is invalid.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> from penstock.checkpoint.dcp import StorageWriter
        >>> saved = dcp.save({"a": torch.ones(2)}, storage_writer=StorageWriter("s3://bucket/step1/"), no_dist=True)
        >>> ps.stat("s3://bucket/step1/checkpoint.json").key
        'step1/checkpoint.json'
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        layout: Literal["penstock", "torch"] = "penstock",
        spread: int = 0,
        store: StoreOptions | str | None = None,
    ) -> None:
        check_choice(layout, ("penstock", "torch"), "layout")
        if whole(spread, "spread", 0) > _MOST_SPREAD:
            raise Unusable(f"spread must be 0 to {_MOST_SPREAD}, got {spread}")
        self.extra: dict[str, Any] = {}
        self.manifest: Manifest | None = None
        self.etag = ""
        self._store = store
        self._overwrite = switch(overwrite, "overwrite")
        self._layout = layout
        self._spread = spread
        self._token = ""
        self._save = ""
        self._existing = ExistingCheckpoints({}, set())
        self.reset(url)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002, FBT001  torch's; it looks for "kwargs"
        """Begin a save; raise ``Unsupported`` if the store is read-only.

        Raise ``Unusable`` without collectives: no rank would know when the save is complete.
        """
        if not kwargs.get("use_collectives", True):
            raise Unusable(
                "cannot save with use_collectives=False: each rank would publish before all ranks have saved; use "
                "collectives, or save a separate checkpoint on each rank (no_dist=True, and a URL with its rank)",
                url=self._url,
            )
        self._source.require(Put, self._folder)
        self._token = uuid4().hex

    def storage_meta(self) -> StorageMeta:
        """Return the location, and the id of the save if it has one."""
        return StorageMeta(self._url, self._save or None)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan, marked as this save's.

        Raises:
            Unusable: A tensor cannot be saved; nothing was written.
        """
        for item in plan.items if self._layout == "penstock" else ():
            data = item.tensor_data
            if data is not None and not records.is_plain_layout(data.properties.dtype, data.properties.layout):
                kind = f"{data.properties.layout}, {data.properties.dtype}"
                raise Unusable(f'{item.index.fqn!r} is not a plain array ({kind}): save it with layout="torch"')
        return replace(plan, storage_data=self._token)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Return the ranks' plans, with an id of this save, after a look for existing checkpoints.

        Raises:
            AlreadyExists: A checkpoint exists, and ``overwrite`` is False.
            Unusable: There are too many parts of tensors for one index; nothing was written.
        """
        if self._layout == "penstock":
            records.check_size(plans)
        self._existing = find_checkpoints(self._source, self._folder, look=self._overwrite)
        if self._existing.etags and not self._overwrite:
            key = next(iter(self._existing.etags))
            raise AlreadyExists(
                "the checkpoint exists already: pass overwrite=True to replace it", url=self._source.url(key)
            )
        self._save = uuid4().hex
        return [
            replace(plan, storage_data=_RankOrder(self._save, rank, plan.storage_data))
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's items as one object, or no object without items.

        Returns:
            A future with the locations of the items, which is done.
        """
        future: Future[list[WriteResult]] = Future()
        future.set_result(self._written(plan, planner) if plan.items else [])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commit the save, and delete the checkpoint that it replaces.

        Raises:
            AlreadyExists: Another save was committed there meanwhile; it stays. ``PreconditionFailed``: the other save
                replaced the checkpoint that this save was to replace.
            Unusable: The planner's data cannot be encoded, or a rank wrote to another URL.
        """
        locations = self._located(results)
        named = {location.name for location in locations.values()}
        if self._layout == "torch":
            metadata.storage_meta = self.storage_meta()
            marker, data = METADATA, torchmeta.encode(metadata, locations)
        else:
            self.manifest = self._manifest(metadata, locations)
            marker, data = MANIFEST, self.manifest.encode()
            named.update(self.manifest.sizes)
        replaced = self._existing.etags.get(self._folder + marker, "")
        keys = sorted(self._folder + name for name in named)
        self.etag = publish(self._source, self._folder + marker, data, replaced, keys)
        new = {self._folder + marker, *keys}
        # From here on only the new checkpoint is visible.
        self._source.delete([key for key in self._existing.etags if key not in new])
        self._source.delete(sorted(self._existing.objects - new - self._existing.etags.keys()))

    def _located(self, results: list[list[WriteResult]]) -> dict[MetadataIndex, ItemLocation]:
        url = self._source.url(self._folder)
        written: dict[MetadataIndex, _Written] = {each.index: each.storage_data for rank in results for each in rank}
        # Otherwise the marker would name objects that are not below its folder, and no rank could load them.
        if other := {each.url for each in written.values()} - {url}:
            raise Unusable(
                f"cannot commit: a rank saved to {min(other)}; all ranks must save to the same URL, or step", url=url
            )
        return {index: each.location for index, each in written.items()}

    def _manifest(self, metadata: Metadata, locations: dict[MetadataIndex, ItemLocation]) -> Manifest:
        """Write the index, and return the manifest that names it."""
        objects = {
            location.name: location.checksums for location in locations.values() if location.checksums is not None
        }
        columns, name = records.encode(metadata, locations, objects), f"{self._save}/{INDEX}"
        with ChecksummedWriter(self._source.open_write(self._folder + name)) as file:
            for column in iterate_columns(columns):
                file.write(column)
        content = {**self.extra, "index": describe_columns(name, columns)}
        sizes = {name: objects[name].size for name in sorted(objects)}
        return Manifest(self._save, KIND, {name: file.checksums()}, content, sizes)

    def _written(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        ordered = plan.storage_data if isinstance(plan.storage_data, _RankOrder) else _RankOrder("", 0, None)
        # A planner that caches plans returns an earlier save's plan, with its id. Then the object gets a new id.
        name = self._name(ordered.save if ordered.token == self._token else uuid4().hex, ordered.rank)
        ends = [0]
        url = self._source.url(self._folder)
        with bar(f"saving {url}", 1, None), ChecksummedWriter(self._source.open_write(self._folder + name)) as file:
            for item in plan.items:
                self._write(item, planner.resolve_data(item), file)
                ends.append(file.tell())
        checksums = file.checksums()
        return [
            storage.WriteResult(
                item.index, stop - start, _Written(url, ItemLocation(name, start, stop - start, checksums))
            )
            for item, start, stop in zip(plan.items, ends, ends[1:], strict=False)
        ]

    def _name(self, save: str, rank: int) -> str:
        folder = f"{rank % self._spread:02x}/" if self._spread else ""
        name = torchmeta.object_name(rank) if self._layout == "torch" else f"{rank}.data"
        return f"{save}/{folder}{name}"

    def _write(self, item: WriteItem, data: torch.Tensor | io.BytesIO, file: ChecksummedWriter) -> None:
        if item.type == WriteItemType.BYTE_IO:
            file.write(data.getbuffer())  # type: ignore[union-attr]
        elif self._layout == "torch":
            dump(torchmeta.alone(data), file)  # type: ignore[arg-type]
        else:
            for piece in iterate_bytes(records.planned(item, data)):
                file.write(piece)
