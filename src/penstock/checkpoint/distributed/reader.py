"""torch's Distributed Checkpoint on an object store: what its ``load`` goes through."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from torch.distributed.checkpoint import storage
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.futures import Future

from penstock.checkpoint.distributed import torchmeta
from penstock.checkpoint.distributed.discovery import Marker
from penstock.checkpoint.distributed.fill import ItemLoader, reads
from penstock.checkpoint.distributed.storage import Located
from penstock.checkpoint.distributed.torchmeta import METADATA
from penstock.checkpoint.integrity.manifest import MANIFEST
from penstock.errors import Changed, Damaged, NotFound, Unusable
from penstock.progress import bar

if TYPE_CHECKING:
    import os

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner

    from penstock.options import StoreOptions

    Id = str | os.PathLike[str]

__all__ = ["StorageReader"]


class StorageReader(Located, storage.StorageReader):
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
            with bar(f"loading {self._source.url(self._folder)}", 1, None):
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
