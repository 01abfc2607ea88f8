"""``osstorchconnector`` (Alibaba's OSS Connector for AI/ML, 1.2) over Penstock: change the import, and nothing else.

Differences from the original:

- Errors are Penstock's: a missing object raises ``NotFound`` (a ``FileNotFoundError``). The original skips it in an
  iterable dataset and calls ``transform(None)`` in a batch. A prefix that matches nothing raises ``NotFound``, too.
- A dataset is listed once, when it is created; an iterable dataset is not listed again in each epoch. Its objects come
  in the order of the listing, for any number of workers. As in the original, every rank reads all objects:
  ``penstock.IterableDataset`` shards across ranks.
- ``from_objects`` and ``from_manifest_file`` take objects of one bucket.
- Writes are atomic: if a ``with`` block raises an exception, the old object stays; the original deletes it first.
  Readers and writers are Penstock's files, without the attributes ``key`` and ``label``.
- ``config_path`` is accepted and ignored: Penstock chooses its concurrency at run time, and logs with ``logging``.
- Default credentials and region come from Alibaba's environment variables and files (``ps.OSSOptions``).
- Safetensors files contain digests of their bytes, which every reader of the format skips, and their names end in
  ``.safetensors``. Distributed checkpoints are in Penstock's own format; those of the original can be read.
- ``from_tar`` reads the headers of the archive once, when the dataset is created, and not the connector's index file.
  A member that is a link raises ``Unsupported``; the connector leaves it out. ``shuffle=True`` also mixes the members
  of each chunk, in another order in each epoch.
- The connector's index file (``generate_tar_archive``) and its internal client (``OssClient``, ``new_data_object``) are
  left out: these names exist and raise ``Unsupported``.
"""

from penstock.errors import require_extras

with require_extras("penstock.compat.osstorchconnector needs torch", torch="torch"):
    from penstock.compat.osstorchconnector.checkpoint import (
        OssCheckpoint,
        OssDCPFileSystem,
        OssSafetensor,
        OssStorageReader,
        OssStorageWriter,
    )
    from penstock.compat.osstorchconnector.datasets import (
        DataObject,
        OssClient,
        OssIterableDataset,
        OssMapDataset,
        generate_tar_archive,
        imagenet_manifest_parser,
        new_data_object,
    )

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
