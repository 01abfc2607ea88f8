"""``osstorchconnector`` (Alibaba's OSS Connector for AI/ML, 1.2) by its own names: change the import, and nothing else.

What differs from the original:

- Errors are Penstock's: a missing object is ``NotFound`` (a ``FileNotFoundError``). The original skips it in an
  iterable dataset and calls ``transform(None)`` in a batch. A prefix that matches nothing is ``NotFound``, too.
- A dataset is listed once, when it is made; an iterable dataset is not listed again in each epoch. Its objects come in
  the order of the listing, for any number of workers. As in the original, every rank reads all of them:
  ``penstock.IterableDataset`` shards across ranks.
- ``from_objects`` and ``from_manifest_file`` take objects of one bucket.
- Writing is atomic: a ``with`` block that ends by an exception leaves the old object in place, which the original
  deletes first. Readers and writers are Penstock's files, and have no ``key`` and ``label``.
- ``config_path`` is accepted and not read: Penstock chooses its concurrency while it runs, and logs by ``logging``.
- Credentials and region that are not given come from Alibaba's environment variables and files (``ps.OSSOptions``).
- Files of safetensors carry digests of their bytes, which every reader of the format skips, and end in
  ``.safetensors``. Distributed checkpoints are Penstock's own format; those of the original are read.
- Archives with an index of the connector's (``from_tar``, ``generate_tar_archive``) and its internal client
  (``OssClient``, ``new_data_object``) are left out: their names are here and raise ``Unsupported``.
"""

from penstock.compat.osstorchconnector.absent import OssClient, generate_tar_archive, new_data_object
from penstock.compat.osstorchconnector.checkpoint import OssCheckpoint, OssSafetensor
from penstock.compat.osstorchconnector.datasets import OssIterableDataset, OssMapDataset
from penstock.compat.osstorchconnector.distributed import OssDCPFileSystem, OssStorageReader, OssStorageWriter
from penstock.compat.osstorchconnector.items import DataObject, imagenet_manifest_parser

__all__ = [
    "DataObject",
    "OssCheckpoint",
    "OssClient",
    "OssDCPFileSystem",
    "OssIterableDataset",
    "OssMapDataset",
    "OssSafetensor",
    "OssStorageReader",
    "OssStorageWriter",
    "generate_tar_archive",
    "imagenet_manifest_parser",
    "new_data_object",
]
