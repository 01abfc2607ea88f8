"""torch's Distributed Checkpoint on an object store: what its ``save`` and ``async_save`` go through."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import uuid4

from torch.distributed.checkpoint import storage
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import WriteItemType
from torch.futures import Future

from penstock.checkpoint.commit.saving import publish
from penstock.checkpoint.distributed import records, torchmeta
from penstock.checkpoint.distributed.discovery import ExistingCheckpoints, existing
from penstock.checkpoint.distributed.records import KIND, ItemLocation
from penstock.checkpoint.distributed.storage import Located
from penstock.checkpoint.distributed.torchmeta import METADATA
from penstock.checkpoint.integrity.checksummed import ChecksummedWriter
from penstock.checkpoint.integrity.manifest import MANIFEST, Manifest
from penstock.checkpoint.torchfile.verbs import dump
from penstock.checkpoint.transfer.tensors import pieces
from penstock.errors import AlreadyExists, Unusable
from penstock.progress import bar
from penstock.protocols.driver import Put

if TYPE_CHECKING:
    import io
    import os

    import torch
    from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
    from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
    from torch.distributed.checkpoint.storage import WriteResult

    from penstock.options import StoreOptions

__all__ = ["StorageWriter"]

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


class StorageWriter(Located, storage.StorageWriter):
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
        url: str | os.PathLike[str],
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
        url = self._source.url(self._folder)
        with (
            bar(f"saving {url}", 1, None),
            ChecksummedWriter(self._source.open_write(self._folder + name)) as file,
        ):
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
