"""Penstock's stores for libraries that open files through fsspec: ``penstock://``, ``msc://``, and others on request.

Limits compared with Penstock's own calls: files are opened to read, to replace (``wb``) or to create (``xb``), never to
append or to modify; keys that end in ``/`` or contain an empty component cannot be named; buckets are neither listed
nor created; a directory is a prefix with objects below it, so ``mkdir`` does nothing and an empty directory does not
exist. Unchanged: errors are Penstock's, reads use parallel ranges of one version, and writes are atomic.

A call in order:

1. ``schemes``: ``register`` and fsspec's registry lead to one class per scheme, a subclass of ``PenstockFileSystem``.
2. ``filesystem``: a name becomes a URL, ``Storage`` has its options, ``BucketSources`` its source; blocking methods
   follow.
3. ``coroutines``: the asynchronous methods, over ``interop/awaiting``; names, entries and cached listings.
4. ``files``: slices that are read in as few requests as possible; files that are opened, published and transferred.
"""

from penstock.errors import require_extras

with require_extras("penstock.interop.fsspec needs fsspec", fsspec="fsspec"):
    from penstock.interop.fsspec.filesystem import PenstockFileSystem
    from penstock.interop.fsspec.schemes import register

__all__ = ["PenstockFileSystem", "register"]
