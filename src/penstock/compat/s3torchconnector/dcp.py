"""``s3torchconnector.dcp`` over Penstock: torch's Distributed Checkpoint on S3.

Checkpoints are in torch's own layout, which the original reads, and this reads the original's. What differs: a save
becomes visible as one, when all ranks have written, and replaces what was there atomically; objects have names that no
other save uses; a rank reads only what it loads, in parallel, into the tensors themselves, whichever reader is asked
for. ``penstock.checkpoint.dcp`` has a layout with digests, which verifies every byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.compat.filesystem import ObjectFileSystem
from penstock.compat.s3torchconnector.config import s3_url, store_options
from penstock.compat.s3torchconnector.prefixes import (
    BinaryPrefixStrategy,
    DefaultPrefixStrategy,
    HexPrefixStrategy,
    NumericPrefixStrategy,
    RoundRobinPrefixStrategy,
    S3PrefixStrategyBase,
)
from penstock.compat.s3torchconnector.s3reader import S3ReaderConstructor, reader_kind
from penstock.compat.torchwriter import overwrite_of
from penstock.errors import Unusable
from penstock.source import object_at

if TYPE_CHECKING:
    import os

    from penstock.compat.s3torchconnector.config import S3ClientConfig
    from penstock.compat.s3torchconnector.s3reader import ReaderKind, S3Reader

    Path = str | os.PathLike[str]

__all__ = [
    "BinaryPrefixStrategy",
    "DefaultPrefixStrategy",
    "HexPrefixStrategy",
    "NumericPrefixStrategy",
    "RoundRobinPrefixStrategy",
    "S3FileSystem",
    "S3PrefixStrategyBase",
    "S3StorageReader",
    "S3StorageWriter",
]


class S3FileSystem(ObjectFileSystem):
    """Objects of S3 as files, for torch's ``FileSystemWriter`` and ``FileSystemReader`` and those made of them."""

    def __init__(
        self,
        region: str | None,
        s3_client: None = None,
        s3client_config: S3ClientConfig | None = None,
        reader_constructor: ReaderKind | None = None,
    ) -> None:
        """Open nothing yet. ``Unusable`` for ``s3_client``: there is no such client here."""
        if s3_client is not None:
            raise Unusable("s3_client is the original's own: pass region and s3client_config")
        super().__init__(store_options(region, None, s3client_config))
        self._kind = reader_kind(reader_constructor)

    @classmethod
    def url(cls, path: Path) -> str:
        """Return a path's URL. ``InvalidURL``, a ``ValueError``, unless it is of S3."""
        return s3_url(super().url(path))

    def _reader(self, url: str) -> S3Reader:
        return self._kind.open(*object_at(url, self._store))


class S3StorageWriter(StorageWriter):
    """Saves a checkpoint below ``path``, on every rank: ``dcp.save(state, storage_writer=S3StorageWriter(…))``.

    What stood there is replaced when the new checkpoint is complete (``overwrite=False`` refuses instead). A name of an
    object is the prefix of its rank, as ``prefix_strategy`` says, and then the save.
    """

    def __init__(
        self,
        region: str | None,
        path: str,
        s3client_config: S3ClientConfig | None = None,
        prefix_strategy: S3PrefixStrategyBase | None = None,
        thread_count: int = 1,
        **kwargs: Any,  # noqa: ANN401  those of torch's FileSystemWriter
    ) -> None:
        """Write below ``path``; nothing is sent yet. ``kwargs`` are those of torch's ``FileSystemWriter``."""
        overwrite = overwrite_of("S3StorageWriter", {"thread_count": thread_count, **kwargs})
        store = store_options(region, None, s3client_config)
        super().__init__(s3_url(path), overwrite=overwrite, layout="torch", store=store)
        self.fs = S3FileSystem(region, s3client_config=s3client_config)
        self.path = path
        self.prefix_strategy = prefix_strategy or DefaultPrefixStrategy()

    def _name(self, save: str, rank: int) -> str:
        return f"{self.prefix_strategy(rank)}{save}.distcp"

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether it is a URL of S3."""
        return S3FileSystem.validate_checkpoint_id(checkpoint_id)


class S3StorageReader(StorageReader):
    """Loads a checkpoint below ``path``, on every rank: ``dcp.load(state, storage_reader=S3StorageReader(…))``."""

    def __init__(
        self,
        region: str | None,
        path: Path,
        s3client_config: S3ClientConfig | None = None,
        reader_constructor: ReaderKind | None = None,
    ) -> None:
        """Read below ``path``; nothing is sent yet. ``reader_constructor`` is that of ``fs`` alone."""
        super().__init__(s3_url(str(path)), store=store_options(region, None, s3client_config))
        kind = reader_constructor or S3ReaderConstructor.dcp_optimized()
        self.fs = S3FileSystem(region, s3client_config=s3client_config, reader_constructor=kind)
        self.path = path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return whether it is a URL of S3."""
        return S3FileSystem.validate_checkpoint_id(checkpoint_id)
