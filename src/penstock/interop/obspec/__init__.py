"""Penstock's stores for libraries that use obspec's protocols: ``Store(url)`` has all, blocking and asynchronous.

Limits compared with Penstock's own calls: an object's version (``version=``) and tags are not supported. Unchanged:
errors are Penstock's, under the names that obspec knows; a result is read from one version, and writes are atomic.
"""

from penstock.interop.obspec.store import Store

__all__ = ["Store"]
