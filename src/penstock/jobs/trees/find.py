"""Search for objects by name, size and age: ``find`` over any store.

Presigned URLs: anyone who has the URL can read or write one object for a limited time.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fnmatch import fnmatchcase
from math import nan
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from penstock.engine.contracts.driver import Driver, Presign
from penstock.engine.listing.select import globs, selector
from penstock.errors import Unusable
from penstock.jobs.trees.selection import local, resolve_local_key, stat_unsized
from penstock.source import object_at, open_source
from penstock.values import ObjectMeta, Presigned, as_folder, check_choice

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from penstock.options import StoreOptions

_KINDS = ("object", "marker", "folder")


def find(  # noqa: PLR0913  each is named in the call
    url: str | os.PathLike[str],
    *,
    name: str | Iterable[str] = (),
    path: str | Iterable[str] = (),
    larger_bytes: int | None = None,
    smaller_bytes: int | None = None,
    newer_s: float | None = None,
    older_s: float | None = None,
    kind: Literal["object", "marker", "folder"] = "object",
    store: StoreOptions | str | None = None,
) -> Iterator[ObjectMeta]:
    """Yield the objects below a directory, prefix or bucket that match all criteria, in key order.

    Each result has its URL. The size of a folder is the number of bytes below it, its time the latest one below it; a
    folder comes after the folders below it. One request for each 1,000 objects, and one for each object whose size the
    listing does not report.

    Args:
        url: Directory, prefix or bucket.
        name: Globs for the last component of a key; one must match.
        path: Globs for the key below the URL, as in ``include`` of a dataset; one must match.
        larger_bytes: Minimum size in bytes.
        smaller_bytes: Maximum size in bytes.
        newer_s: Maximum age in seconds, by this machine's clock.
        older_s: Minimum age in seconds, by this machine's clock.
        kind: ``object``; ``marker``, an empty object whose key ends in ``/``; ``folder``, a part of keys up to a ``/``,
            each reported once.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        Unusable: Unknown kind, or a negative size or age; raised before anything is listed.
        ConfigError: Invalid glob.

    Example:
        >>> [each.key for each in ps.find("s3://bucket/train/", name="0007.png", newer_s=86400)][:2]
        ['train/0/0007.png', 'train/1/0007.png']
        >>> [each.key for each in ps.find("s3://bucket/", kind="folder", path="train/*")][-1]
        'train/9/'
    """
    if kind not in _KINDS:
        raise Unusable(f"kind must be one of {', '.join(_KINDS)}, got {kind!r}")
    limits: dict[str, Any] = {"larger_bytes": larger_bytes, "smaller_bytes": smaller_bytes}
    for limit, value in (limits | {"newer_s": newer_s, "older_s": older_s}).items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not (number and value >= 0):
            raise Unusable(f"{limit} must be a number, 0 or more, got {value!r}")
    names, chosen, now = globs(name), selector(path, markers=True), time.time()
    source, key = open_source(url, store)
    prefix = as_folder(resolve_local_key(f"{as_folder(key)}.") if local(source) and key else key)

    def matches(meta: ObjectMeta) -> bool:
        relative = meta.key[len(prefix) :].rstrip("/")
        # An object of unknown time has no age.
        age_s = nan if meta.modified is None else now - meta.modified
        return (
            (not names or any(fnmatchcase(relative.rpartition("/")[2], each) for each in names))
            and chosen(relative, meta.size)
            and (larger_bytes is None or meta.size >= larger_bytes)
            and (smaller_bytes is None or meta.size <= smaller_bytes)
            and (newer_s is None or age_s <= newer_s)
            and (older_s is None or age_s >= older_s)
        )

    entries = (entry for page in source.pages(prefix) for entry in stat_unsized(source, page.entries))
    found = _folders(entries, len(prefix)) if kind == "folder" else _objects(entries, marker=kind == "marker")
    return (replace(each, url=source.url(each.key)) for each in found if matches(each))


def _objects(entries: Iterable[ObjectMeta], *, marker: bool) -> Iterator[ObjectMeta]:
    return (each for each in entries if (not each.size and each.key.endswith("/")) is marker)


def _folders(entries: Iterable[ObjectMeta], depth: int) -> Iterator[ObjectMeta]:
    """Yield each folder after its last key; memory holds the folders of one path."""
    above: list[ObjectMeta] = []
    for entry in entries:
        while above and not entry.key.startswith(above[-1].key):
            yield above.pop()
        at = len(above[-1].key) if above else depth
        while cut := entry.key.find("/", at) + 1:
            above.append(ObjectMeta(entry.key[:cut], 0))
            at = cut
        above = [_with(each, entry) for each in above]
    yield from reversed(above)


def _with(folder: ObjectMeta, entry: ObjectMeta) -> ObjectMeta:
    times = [each.modified for each in (folder, entry) if each.modified is not None]
    return replace(folder, size=folder.size + entry.size, modified=max(times, default=None))


def presign(
    url: str | os.PathLike[str],
    *,
    method: Literal["GET", "PUT"] = "GET",
    expires_s: float | None = None,
    store: StoreOptions | str | None = None,
) -> Presigned:
    """Return a presigned URL to read (``GET``) or write (``PUT``) one object without credentials.

    The URL is computed locally: only loading credentials may take requests, and nothing checks that the object or its
    bucket exists.

    Args:
        url: The object.
        method: ``GET`` or ``PUT``.
        expires_s: Seconds for which the URL is valid; default: one hour, or less if the credentials expire sooner.
        store: Options, or the name of a profile; default: environment and profile.

    Returns:
        The presigned URL, as its ``str``; a request must include its ``headers``.

    Raises:
        Unsupported: The store does not sign URLs, or these credentials cannot (tokens, shared access signatures).
        Unusable: Unknown method; ``expires_s`` is not positive, or more than the store (S3, Google Cloud Storage and
            OSS: seven days) or the credentials allow.

    Example:
        >>> import urllib.request
        >>> signed = ps.presign("s3://bucket/train/3/0000.png", expires_s=600)
        >>> urllib.request.urlopen(str(signed)).read()[1:4]
        b'PNG'
    """
    check_choice(method, ("GET", "PUT"), "method")
    source, key = object_at(url, store)
    source.require(Driver).prepare()  # renews credentials if needed
    return source.require(Presign, key).presign(key, method, expires_s, time.time())
