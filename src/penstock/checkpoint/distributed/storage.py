"""torch's Distributed Checkpoint on an object store: what its ``save``, ``async_save`` and ``load`` go through."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import uuid4

from torch.distributed.checkpoint import storage
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import WriteItemType
from torch.futures import Future

from penstock.checkpoint.commit.saving import publish
from penstock.checkpoint.distributed import records, torchmeta
from penstock.checkpoint.distributed.discovery import ExistingCheckpoints, Marker, existing, opened, valid
from penstock.checkpoint.distributed.fill import ItemLoader, reads
from penstock.checkpoint.distributed.records import KIND, ItemLocation
from penstock.checkpoint.distributed.torchmeta import METADATA
from penstock.checkpoint.integrity.checksummed import ChecksummedWriter
from penstock.checkpoint.integrity.manifest import MANIFEST, Manifest
from penstock.checkpoint.torchfile.verbs import dump
from penstock.checkpoint.transfer.tensors import pieces
from penstock.errors import AlreadyExists, Changed, Damaged, NotFound, Unusable
from penstock.protocols.driver import Put

if TYPE_CHECKING:
    import io

    import torch
    from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
    from torch.distributed.checkpoint.planner import (
        LoadPlan,
        LoadPlanner,
        SavePlan,
        SavePlanner,
        WriteItem,
    )
    from torch.distributed.checkpoint.storage import WriteResult

    from penstock.options import StoreOptions

    Id = str | os.PathLike[str]

__all__ = ["StorageReader", "StorageWriter"]

_MOST_SPREAD = 256  # folders of two hex digits


class _RankOrder(NamedTuple):
    """What the coordinator tells a rank.

    Attributes:
        save: Which save this is.
        rank: The rank's number.
        token: What the rank sent before, to know by that this is for it, and now.

    """

    save: str
    rank: int
    token: object


class _Located:
    """What torch asks of a writer and of a reader alike: where the checkpoint is."""

    _store: StoreOptions | str | None

    @property
    def checkpoint_id(self) -> str:
        """Where the checkpoint is."""
        return self._url

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        """Say whether it is a URL or path that Penstock can open."""
        return valid(checkpoint_id)

    def reset(self, checkpoint_id: Id | None = None) -> None:
        """Begin anew, at another location if one is given."""
        if checkpoint_id:
            self._url = os.fspath(checkpoint_id)
            self._source, self._folder = opened(self._url, self._store)


class StorageWriter(_Located, storage.StorageWriter):
    """Saves a checkpoint below ``url``: ``dcp.save(state, storage_writer=StorageWriter(url))``, on every rank.

    Each rank sends one object, under a name that no other save has; the coordinator makes them count, last, in one
    conditional PUT. So there is a whole checkpoint or none, and with ``overwrite`` the new one or the old. Whatever
    fails before leaves unused objects. Memory beyond the state: a staged piece of 8 MiB, and 64 MiB on their
    way. May be used for one save after another, pickled, and given to ``async_save`` by thread or by process.

    Attributes:
        extra: What the manifest's ``content`` is to hold besides: JSON, the coordinator's.
        manifest: On the coordinator, what its last save was committed by; None in torch's layout.
        etag: On the coordinator, of that, or of torch's metadata.

    """

    def __init__(
        self,
        url: Id,
        *,
        overwrite: bool = False,
        layout: Literal["penstock", "torch"] = "penstock",
        spread: int = 0,
        store: StoreOptions | str | None = None,
    ) -> None:
        """Write below ``url``; nothing is sent yet.

        Args:
            url: The checkpoint's folder; a missing ``/`` at its end is added.
            overwrite: Replace the checkpoint that is there; else ``AlreadyExists``. Its objects go once the new one
                counts, and a concurrent reader raises ``Changed``.
            layout: ``torch`` writes what torch's ``FileSystemReader`` reads; no digests, and nothing to verify it by.
            spread: Put the ranks' objects under this many prefixes (2 to 256), for stores that grow by them; 0: none.
            store: The store's options.

        """
        if layout not in ("penstock", "torch"):
            raise Unusable(f'layout is "penstock" or "torch", not {layout!r}')
        if not 0 <= spread <= _MOST_SPREAD:
            raise Unusable(f"spread is 0 to {_MOST_SPREAD}, not {spread}")
        self.extra: dict[str, Any] = {}
        self.manifest: Manifest | None = None
        self.etag = ""
        self._store = store
        self._overwrite = overwrite
        self._layout = layout
        self._spread = spread
        self._token = ""
        self._save = ""
        self._existing = ExistingCheckpoints({}, set())
        self.reset(url)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG002, FBT001  torch's; it looks for "kwargs"
        """Begin a save. ``Unusable`` without collectives: no rank would know when the save is complete.

        ``Unsupported`` where the store takes no objects.
        """
        if not kwargs.get("use_collectives", True):
            raise Unusable(
                "use_collectives=False has every rank publish for itself, and none knows whether all have: save with "
                "collectives, or each rank a checkpoint of its own (no_dist=True, and a URL with its rank)",
                url=self._url,
            )
        self._source.require(Put, self._folder)
        self._token = uuid4().hex

    def storage_meta(self) -> StorageMeta:
        """Return what is known of the location, and of the save once it has an id."""
        return StorageMeta(self._url, self._save or None)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Refuse what cannot be written, before anything is sent."""
        for item in plan.items if self._layout == "penstock" else ():
            data = item.tensor_data
            if data is not None and not records.plain(data.properties.dtype, data.properties.layout):
                kind = f"{data.properties.layout}, {data.properties.dtype}"
                raise Unusable(f'{item.index.fqn!r} is no plain array ({kind}): save it with layout="torch"')
        return replace(plan, storage_data=self._token)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Look what is there, and name this save. ``AlreadyExists`` unless that may be replaced."""
        self._existing = existing(self._source, self._folder, look=self._overwrite)
        if self._existing.etags and not self._overwrite:
            key = next(iter(self._existing.etags))
            raise AlreadyExists("there is a checkpoint: overwrite=True replaces it", url=self._source.url(key))
        self._save = uuid4().hex
        return [
            replace(plan, storage_data=_RankOrder(self._save, rank, plan.storage_data))
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's items as one object; none where it has none. The future is done when this returns."""
        future: Future[list[WriteResult]] = Future()
        future.set_result(self._written(plan, planner) if plan.items else [])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make the save count, and delete what it replaces.

        Raises:
            AlreadyExists: Somebody else saved there meanwhile; theirs stands. ``PreconditionFailed``, where theirs
                replaced what this one was to replace.
            Unusable: The planner's data cannot be written as JSON.

        """
        locations: dict[MetadataIndex, ItemLocation] = {
            each.index: each.storage_data for rank in results for each in rank
        }
        if self._layout == "torch":
            metadata.storage_meta = self.storage_meta()
            marker, data = METADATA, torchmeta.encode(metadata, locations)
        else:
            self.manifest = self._manifest(metadata, locations)
            marker, data = MANIFEST, self.manifest.encode()
        replaced = self._existing.etags.get(self._folder + marker, "")
        named = {self._folder + location.name for location in locations.values()}
        self.etag = publish(self._source, self._folder + marker, data, replaced, sorted(named))
        new = {self._folder + marker, *named}
        self._source.delete([key for key in self._existing.etags if key not in new])  # from here on only the new counts
        self._source.delete(sorted(self._existing.objects - new - self._existing.etags.keys()))

    def _manifest(self, metadata: Metadata, locations: dict[MetadataIndex, ItemLocation]) -> Manifest:
        objects = {
            location.name: location.checksums for location in locations.values() if location.checksums is not None
        }
        content = {**self.extra, **records.encode(metadata, locations)}
        url = self._source.url(self._folder + MANIFEST)
        records.decode(content, objects, url)  # what is not readable is not published
        return Manifest(self._save, KIND, objects, content)

    def _written(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        ordered = plan.storage_data if isinstance(plan.storage_data, _RankOrder) else _RankOrder("", 0, None)
        # A planner that caches plans hands out an earlier save's, with its id: then this rank's object has its own.
        name = self._name(ordered.save if ordered.token == self._token else uuid4().hex, ordered.rank)
        ends = [0]
        with ChecksummedWriter(self._source.open_write(self._folder + name)) as file:
            for item in plan.items:
                self._write(item, planner.resolve_data(item), file)
                ends.append(file.tell())
        checksums = file.checksums()
        return [
            storage.WriteResult(item.index, stop - start, ItemLocation(name, start, stop - start, checksums))
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
            for piece in pieces(records.planned(item, data)):
                file.write(piece)


class StorageReader(_Located, storage.StorageReader):
    """Loads a checkpoint below ``url``: ``dcp.load(state, storage_reader=StorageReader(url))``, on every rank.

    Reads checkpoints of ``StorageWriter``, every byte compared with the digests made while it was written, also where
    only a part of a tensor is loaded; and those in torch's own layout, where each item's CRC-32 is compared. A rank
    reads what it loads and no more, in parallel ranges, into the tensors themselves where they are on the CPU,
    contiguous and of the same dtype, else in steps of 16 MiB. Memory beyond the state: 256 MiB; where items are read
    whole (no tensors, and all of torch's layout) 128 MiB and the largest of them. All ranks read the same version, or
    all raise.
    """

    def __init__(self, url: Id, *, weights_only: bool = True, store: StoreOptions | str | None = None) -> None:
        """Read below ``url``; nothing is sent yet. ``weights_only=False`` runs whatever code the checkpoint names."""
        self._store = store
        self._weights_only = weights_only
        self.reset(url)

    def reset(self, checkpoint_id: Id | None = None) -> None:
        """Begin anew, at another location if one is given."""
        super().reset(checkpoint_id)
        self._marker: Marker | None = None
        self._failure: Exception | None = None
        self._load_id = str(uuid4())

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ANN401, ARG002  torch's; it looks for "kwargs"
        """Read what the checkpoint holds: Penstock's manifest, or else torch's; with ``rank`` that rank's own.

        Raises:
            NotFound: There is none.
            CheckpointError: It is damaged.

        """
        rank = kwargs.get("rank")
        if rank is None:
            self._failure = None
        if rank is not None and self._failure is not None:
            raise self._failure  # there is one for all ranks, and it is damaged: none of its own will do
        try:
            names = [MANIFEST, METADATA] if rank is None else [torchmeta.local_name(rank)]
            self._marker = Marker.first(self._source, self._folder, names, weights_only=self._weights_only)
        except NotFound:
            raise
        except Exception as error:
            self._failure = error
            raise
        metadata = self._marker.metadata
        metadata.storage_meta = replace(metadata.storage_meta or StorageMeta(), load_id=self._load_id)
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, FBT001  torch's
        """Nothing to do: this is what ``read_metadata`` returned."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Note which version this rank reads, unless each has metadata of its own."""
        marker = self._read()
        return replace(plan, storage_data=marker.etag if marker.key.rpartition("/")[2] in (MANIFEST, METADATA) else "")

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Make sure that all ranks read the same version: ``Changed``."""
        if len({plan.storage_data for plan in plans}) > 1:
            raise Changed("it was replaced while the ranks began to read it: load again", url=self._url)
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill the planner's state. The future is done when this returns.

        Raises:
            ChecksumMismatch: An object is not what was written; it is named, as by the others.
            NotFound: An object is missing.
            Truncated: One has another length.
            Changed: The checkpoint was replaced meanwhile.
            Unusable: An item is more than weights.

        """
        marker = self._read()
        try:
            wanted = reads(self._source, self._folder, marker.metadata, plan.items)
            ItemLoader(self._source, planner, self._weights_only).fill(wanted)
        except (NotFound, Changed, Damaged) as error:
            if marker.replaced(self._source):
                raise Changed("it was replaced while it was read: load again", url=self._url) from error
            raise
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _read(self) -> Marker:
        if self._marker is None:
            raise Unusable("read_metadata comes first", url=self._url)
        return self._marker
