"""Penstock's stores for libraries that ask for obspec's protocols: ``Store(url)`` has all, blocking and awaited.

What is lost against Penstock's own calls: an object's version (``version=``) and tags cannot be named. What is not
lost: errors are Penstock's, under the names that obspec knows; reads are held to one version, and writes are atomic.
"""

from penstock.interop.obspec.store import Store

__all__ = ["Store"]
