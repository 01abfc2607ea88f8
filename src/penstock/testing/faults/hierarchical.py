"""The dialect of Azure Blob Storage with a hierarchical namespace: folders exist, and names are paths.

The differences of such an account were taken from Microsoft's reference of List Blobs, from the order that
Azure/azure-sdk-for-go#24210 shows, and from the behaviour of the service that the tests of borink-org/object-storage
recorded.
"""

from __future__ import annotations

import base64
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.testing.faults import azure
from penstock.testing.faults.dialect import Bucket, Stored, get
from penstock.testing.faults.message import Answer, Refused, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.testing.faults.dialect import Dialect, Verb

_FOLDER = {"x-ms-meta-hdi_isfolder": "true", "x-ms-resource-type": "directory"}


def _normalize_path(key: str) -> str:
    """Return the path of an object: parts without a name are left out."""
    return "/".join(filter(None, key.split("/")))


def _order(path: str) -> list[bytes]:
    """Return the sort key of a path: its parts, each in UTF-16."""
    return [part.encode("utf-16-be", "surrogatepass") for part in path.split("/")]


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _learn(bucket: Bucket) -> None:
    """Create the folders of objects that were stored without a request."""
    for key in bucket.objects:
        for folder in _above(key):
            bucket.folders.setdefault(folder, time.time())


def _wrap_write(verb: Verb) -> Verb:
    """Return a verb that writes an object, and refuses a key that conflicts with existing paths."""

    def write(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
        _learn(bucket)
        path = _normalize_path(request.key)
        if path in bucket.folders or any(each in bucket.objects for each in _above(path)):
            raise Refused(409, "PathConflict", "a folder has this name, or a file that of a folder on the way")
        answer = verb(dialect, bucket, replace(request, key=path))
        _learn(bucket)
        return answer

    return write


def _get(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    """Answer GET and HEAD; a folder looks like an empty object."""
    _learn(bucket)
    if request.key in bucket.folders:
        return Answer(200, {"ETag": '"folder"', "Content-Type": "application/octet-stream", **_FOLDER})
    return get(dialect, bucket, request)


def _delete_path(dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    _learn(bucket)
    if request.key not in bucket.folders:
        return azure.WORDS.verbs["delete"](dialect, bucket, request)
    if any(each.startswith(f"{request.key}/") for each in (*bucket.objects, *bucket.folders)):
        raise Refused(409, "DirectoryIsNotEmpty", "The recursive query parameter value must be true.")
    del bucket.folders[request.key]
    return Answer(202)


def _list_paths(_dialect: Dialect, bucket: Bucket, request: Request) -> Answer:
    _learn(bucket)
    asked = request.parameters
    prefix, flat = asked.get("prefix", ""), asked.get("delimiter", "") == "/"
    if any(prefix.startswith(f"{each}/") for each in bucket.objects):
        raise Refused(409, "PathConflict", "a file's name is in the middle of the prefix")  # the code is a guess
    after, most = base64.b64decode(asked.get("marker", "")).decode(), min(5000, int(asked.get("maxresults", "5000")))
    names = [each for each in (*bucket.objects, *bucket.folders) if each.startswith(prefix)]
    names = [each for each in names if not (flat and "/" in each[len(prefix) :])]
    names = sorted((each for each in names if not after or _order(each) > _order(after)), key=_order)
    rows = [_entry(bucket, each, asked, flat=flat) for each in names[:most]]
    marker = names[most - 1] if len(names) > most else ""
    return azure.listing(asked, "".join(rows), base64.b64encode(marker.encode()).decode())


def _entry(bucket: Bucket, name: str, asked: Mapping[str, str], *, flat: bool) -> str:
    if name in bucket.objects:
        return azure.entry(name, bucket.objects[name], asked.get("include", ""), {"ResourceType": "file"})
    stored = Stored(b"", "0xF", {"content-type": "application/octet-stream", **_FOLDER}, bucket.folders[name])
    row = azure.entry(f"{name}/" if flat else name, stored, asked.get("include", ""), {"ResourceType": "directory"})
    return row.replace("<Blob>", "<BlobPrefix>").replace("</Blob>", "</BlobPrefix>") if flat else row


WORDS = azure.WORDS.with_verbs(
    {
        **{verb: _wrap_write(azure.WORDS.verbs[verb]) for verb in ("put", "copy", "part", "copy-part", "complete")},
        "get": _get,
        "head": _get,
        "delete": _delete_path,
        "list": _list_paths,
    }
)
