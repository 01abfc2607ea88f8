"""Penstock's stores for pyarrow: a ``pyarrow.fs.FileSystem`` without fsspec between.

What is lost against Penstock's own calls: one scheme for each file system; files are read or written anew, never
appended to; a directory is a prefix that something lies below, so ``create_dir`` does nothing and an empty one is not
there; keys that end in ``/`` cannot be named. What is not lost: errors are Penstock's, reads are held to one version,
and writes are atomic.
"""

from penstock.interop.arrow.handler import PenstockHandler, filesystem, from_url

__all__ = ["PenstockHandler", "filesystem", "from_url"]
