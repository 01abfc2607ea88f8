"""The public name of Penstock's storage for torch's Distributed Checkpoint."""

from penstock.checkpoint.distributed.storage import StorageReader, StorageWriter

__all__ = ["StorageReader", "StorageWriter"]
