"""Penstock's stores for libraries that open files through fsspec: ``penstock://``, ``msc://``, and others on request.

What is lost against Penstock's own calls: files are opened to read, to replace (``wb``) or to create (``xb``), never to
append or to change; keys that end in ``/`` or hold an empty part cannot be named; buckets are neither listed nor made;
a directory is a prefix that something lies below, so ``mkdir`` does nothing and an empty one is not there. What is not
lost: errors are Penstock's, reads go in parallel ranges of one version, and a write is atomic.
"""

from penstock.interop.fsspec.filesystem import PenstockFileSystem
from penstock.interop.fsspec.schemes import register

__all__ = ["PenstockFileSystem", "register"]
