"""``s3torchconnector`` over Penstock: change the import to ``penstock.compat.s3torchconnector``, and nothing else.

Public names and arguments are those of 1.5.0. What differs:

- Every read is verified (status, length, range, ETag) and held to the version that was listed; an object that was
  replaced meanwhile raises ``Changed``. Failed requests are tried again for 120 s without progress.
- ``from_prefix`` lists at once, not with the first use, and workers share that listing; an iteration does not list
  again. Directory markers (empty objects whose key ends in ``/``) are left out.
- A dataset reads objects whole, in parallel and ahead, before ``transform`` is called, and yields readers over
  memory, which pickle. ``S3ReaderConstructor.range_based()`` reads only what ``transform`` asks for.
- With ``enable_sharding`` ranks are found when iterating (the process group, else ``RANK`` and ``WORLD_SIZE``), not
  when the dataset is made.
- ``from_objects`` takes objects of one bucket: make a dataset for each bucket, and torch's ``ConcatDataset`` or
  ``ChainDataset`` of them.
- A writer publishes when it is closed well and never otherwise. ``close`` during an exception publishes nothing.
- ``S3Exception`` is ``penstock.PenstockError``, so either name catches every error; texts are Penstock's.
- ``S3ClientConfig``: each field says whether it is honoured. Forking is safe at any time.
- ``dcp`` writes torch's own layout, which the original reads, and reads both; a save becomes visible as one.
- Left out, with an error that says so: a function that finds objects, reader constructors of one's own, ``s3_client=``.
"""

from penstock.compat.s3torchconnector.checkpoint import S3Checkpoint
from penstock.compat.s3torchconnector.config import S3ClientConfig
from penstock.compat.s3torchconnector.datasets import S3IterableDataset, S3MapDataset
from penstock.compat.s3torchconnector.s3reader import S3Reader, S3ReaderConstructor
from penstock.errors import PenstockError as S3Exception
from penstock.source import Writer as S3Writer

__version__ = "1.5.0"  # of the interface

__all__ = [
    "S3Checkpoint",
    "S3ClientConfig",
    "S3Exception",
    "S3IterableDataset",
    "S3MapDataset",
    "S3Reader",
    "S3ReaderConstructor",
    "S3Writer",
    "__version__",
]
