"""The public name of Penstock's storage for torch's Distributed Checkpoint."""

from penstock.errors import needing

with needing("penstock.checkpoint.dcp needs torch", torch="torch"):
    from penstock.checkpoint.distributed.reader import StorageReader
    from penstock.checkpoint.distributed.writer import StorageWriter

__all__ = ["StorageReader", "StorageWriter"]
