"""Penstock's stores for pyarrow: a ``pyarrow.fs.FileSystem`` without fsspec in between.

Limits compared with Penstock's own calls: a file system has one scheme; files are read or replaced, never appended to;
a directory is a prefix with objects below it, so ``create_dir`` does nothing and an empty directory does not exist;
keys that end in ``/`` cannot be named. Unchanged: errors are Penstock's, an open file reads one version of its object,
and writes are atomic.
"""

from penstock.errors import needing

with needing("penstock.interop.arrow needs pyarrow", pyarrow="parquet"):
    from penstock.interop.arrow.handler import PenstockHandler, filesystem, from_url

__all__ = ["PenstockHandler", "filesystem", "from_url"]
