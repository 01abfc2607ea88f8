"""``s3torchconnector`` over Penstock: change the import to ``penstock.compat.s3torchconnector``, and nothing else.

Public names and arguments are those of 1.5.0. Differences:

- Every read is verified (status, length, range, ETag) and bound to the listed version; an object that was replaced
  meanwhile raises ``Changed``. Failed requests are retried until 120 s pass without progress.
- ``from_prefix`` lists immediately, not on first use. Workers share that listing, and an iteration does not list again.
  Directory markers (empty objects whose key ends in ``/``) are left out.
- A dataset reads whole objects, in parallel and ahead, before it calls ``transform``, and yields in-memory readers,
  which can be pickled. ``S3ReaderConstructor.range_based()`` reads only the ranges that ``transform`` requests.
- With ``enable_sharding`` the rank is determined on iteration (from the process group, else ``RANK`` and
  ``WORLD_SIZE``), not when the dataset is created.
- ``from_objects`` takes objects of one bucket: for several buckets, combine one dataset per bucket with torch's
  ``ConcatDataset`` or ``ChainDataset``.
- A writer publishes its object on a successful close, never otherwise. ``close`` during an exception publishes nothing.
- ``S3Exception`` is ``penstock.PenstockError``, so either name catches every error; messages are Penstock's.
- ``S3ClientConfig`` documents which of its fields are honoured. Forking is safe at any time.
- ``dcp`` writes torch's own layout, which the original reads, and reads this layout and Penstock's; a save becomes
  visible atomically.
- Left out, with an explicit error: functions that find objects, custom reader constructors, ``s3_client=``.
"""

from penstock.errors import require_extras

with require_extras("penstock.compat.s3torchconnector needs torch", torch="torch"):
    from penstock.compat.s3torchconnector.config import S3ClientConfig
    from penstock.compat.s3torchconnector.datasets import S3IterableDataset, S3MapDataset
    from penstock.compat.s3torchconnector.s3reader import S3Checkpoint, S3Reader, S3ReaderConstructor
    from penstock.errors import PenstockError as S3Exception
    from penstock.source import Writer as S3Writer

__version__ = "1.5.0"  # version of the interface

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
