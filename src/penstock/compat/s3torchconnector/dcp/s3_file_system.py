"""``s3torchconnector.dcp.s3_file_system`` over Penstock: torch's Distributed Checkpoint on S3.

Checkpoints are in torch's own layout: the original can read them, and this module can read those of the original.
Differences: a save becomes visible atomically when all ranks have written, and replaces an existing checkpoint
atomically; object names are unique to a save; a rank reads only the data that it loads, in parallel, directly into the
tensors, with any ``reader_constructor``. ``penstock.checkpoint.dcp`` has a layout with digests, which verifies every
byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from penstock.checkpoint.dcp import StorageReader, StorageWriter
from penstock.compat.arguments import overwrite_of, refuse_name
from penstock.compat.filesystem import CheckpointsOf, ObjectFileSystem
from penstock.compat.s3torchconnector.config import s3_url, store_options
from penstock.compat.s3torchconnector.dcp.s3_prefix_strategy import DefaultPrefixStrategy
from penstock.compat.s3torchconnector.s3reader import S3ReaderConstructor, reader_kind
from penstock.errors import Unusable
from penstock.source import object_at

if TYPE_CHECKING:
    import os

    from penstock.compat.s3torchconnector.config import S3ClientConfig
    from penstock.compat.s3torchconnector.dcp.s3_prefix_strategy import S3PrefixStrategyBase
    from penstock.compat.s3torchconnector.s3reader import ReaderKind, S3Reader

    Path = str | os.PathLike[str]


class S3FileSystem(ObjectFileSystem):
    """Objects of S3 as files, for torch's ``FileSystemWriter``, ``FileSystemReader`` and their subclasses."""

    def __init__(
        self,
        region: str | None,
        s3_client: None = None,
        s3client_config: S3ClientConfig | None = None,
        reader_constructor: ReaderKind | None = None,
    ) -> None:
        if s3_client is not None:
            raise Unusable("s3_client is not supported: pass region and s3client_config")
        super().__init__(store_options(region, None, s3client_config))
        self._kind = reader_kind(reader_constructor)

    @classmethod
    def url(cls, path: Path) -> str:
        return s3_url(super().url(path))

    def rename(self, old_path: Path, new_path: Path) -> None:
        super().rename(old_path, new_path)

    def _reader(self, url: str) -> S3Reader:
        return self._kind.open(*object_at(url, self._store))


class S3StorageWriter(CheckpointsOf, StorageWriter):
    """Checkpoint writer below ``path``, on every rank: ``dcp.save(state, storage_writer=S3StorageWriter(…))``.

    An existing checkpoint is replaced when the new one is complete; ``overwrite=False`` raises an error instead. The
    name of an object is the prefix that ``prefix_strategy`` gives for its rank, followed by the id of the save.
    """

    _files = S3FileSystem

    def __init__(
        self,
        region: str | None,
        path: str,
        s3client_config: S3ClientConfig | None = None,
        prefix_strategy: S3PrefixStrategyBase | None = None,
        thread_count: int = 1,
        **kwargs: Any,
    ) -> None:
        """Set the location ``path``, without a request. ``kwargs`` are those of torch's ``FileSystemWriter``."""
        overwrite = overwrite_of("S3StorageWriter", {"thread_count": thread_count, **kwargs})
        store = store_options(region, None, s3client_config)
        super().__init__(s3_url(path), overwrite=overwrite, layout="torch", store=store)
        self.fs = S3FileSystem(region, s3client_config=s3client_config)
        self.path = path
        self.prefix_strategy = prefix_strategy or DefaultPrefixStrategy()

    def _name(self, save: str, rank: int) -> str:
        return f"{self.prefix_strategy(rank)}{save}.distcp"


class S3StorageReader(CheckpointsOf, StorageReader):
    """Checkpoint reader below ``path``, on every rank: ``dcp.load(state, storage_reader=S3StorageReader(…))``."""

    _files = S3FileSystem

    def __init__(
        self,
        region: str | None,
        path: Path,
        s3client_config: S3ClientConfig | None = None,
        reader_constructor: ReaderKind | None = None,
    ) -> None:
        """Set the location ``path``, without a request. Only ``fs`` uses ``reader_constructor``."""
        super().__init__(s3_url(str(path)), store=store_options(region, None, s3client_config))
        kind = reader_constructor or S3ReaderConstructor.dcp_optimized()
        self.fs = S3FileSystem(region, s3client_config=s3client_config, reader_constructor=kind)
        self.path = path


_ABSENT = {"StorageMetadata": "pass prefix_strategy= to S3StorageWriter"}


def __getattr__(name: str) -> NoReturn:
    refuse_name(__name__, name, _ABSENT)
