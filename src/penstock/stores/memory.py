"""``memory://``: objects in this process's memory, for tests, examples and datasets small enough to hold."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field, replace
from hashlib import md5
from itertools import count
from time import time
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import UNKNOWN_BYTES, Abilities, Attributes, Ending
from penstock.engine.waiting import irrevocable
from penstock.errors import AlreadyExists, Changed, NotFound, PreconditionFailed, Truncated
from penstock.stores.direct import blocking, page_of, reading, too_large
from penstock.stores.store import Opening, Store
from penstock.values import ObjectMeta, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.driver import Beginning, Driver, Payload, UploadPart
    from penstock.engine.contracts.exchange import Transport
    from penstock.values import Page, Span


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    meta: ObjectMeta


@dataclass(frozen=True, slots=True)
class _Pending:
    upload: Upload
    attributes: Attributes
    parts: dict[int, bytes] = field(default_factory=dict)


_buckets: dict[str, dict[str, _Object]] = {}
_lock = threading.RLock()
# A fork waits until the lock is free: in the child no other thread could release it.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class MemoryDriver:
    """Named set of objects, shared by all sources of this process with that name; a fork gets a copy."""

    abilities = Abilities(digest=None, forks=False)

    def __init__(self, name: str) -> None:
        self._name = name
        self._objects = _buckets.setdefault(name, {})
        self._uploads: dict[str, _Pending] = {}
        self._ids = count(1)

    def url(self, key: str) -> str:
        return f"memory://{self._name}/{key}"

    def prepare(self) -> None:
        """Do nothing: nothing blocks here."""

    @blocking
    def head(self, key: str) -> ObjectMeta:
        return self._find(key).meta

    @blocking
    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Page:
        with _lock:
            metas = [each.meta for key, each in self._objects.items() if key.startswith(prefix)]
        metas.sort(key=lambda meta: meta.key.encode())
        return page_of(metas, prefix, after=token or start_after, delimiter=delimiter)

    @reading
    def read(self, span: Span, target: Buffer) -> tuple[int, str]:
        found = self._find(span.key, span.etag)
        data = found.data[span.start : span.start + target.size]
        if span.whole and len(found.data) != target.size:
            raise Changed(
                f"the object has {len(found.data)} bytes, but was listed with {target.size}", url=self.url(span.key)
            )
        if len(data) < target.size:
            raise Truncated("the object ends before the range does", url=self.url(span.key))
        target.fill(data)
        return len(data), found.meta.etag

    @reading
    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> tuple[bytes | Beginning, str]:
        del buffer  # the size is known before the read
        found = self._find(key, etag)
        if len(found.data) > most_bytes:
            raise too_large(most_bytes, self.url(key))
        return found.data, found.meta.etag

    @blocking
    def suffix(self, key: str, etag: str, target: Buffer) -> Ending | None:
        found = self._find(key, etag)
        start = max(0, len(found.data) - target.size)
        target.fill(memoryview(found.data)[start:])
        return Ending(start, len(found.data), found.meta.etag, len(found.data) - start)

    @blocking
    def put(self, key: str, body: Payload, attributes: Attributes) -> str:
        return self._store(key, bytes(body.data), attributes)

    @blocking
    def delete(self, key: str) -> None:
        with irrevocable(), _lock:
            self._objects.pop(key, None)

    @blocking
    def copy(self, source: str, key: str, etag: str = "") -> str:
        found = self._find(source, etag)
        return self._store(key, found.data, Attributes(found.meta.content_type, found.meta.metadata))

    @blocking
    def create(self, key: str, attributes: Attributes) -> str:
        upload = f"upload-{next(self._ids)}"
        with _lock:
            self._uploads[upload] = _Pending(Upload(key, upload, time()), attributes)
        return upload

    @blocking
    def part(self, key: str, upload: str, part: UploadPart, body: Payload) -> str:
        data = bytes(body.data)
        with _lock:
            self._begun(key, upload).parts[part.number] = data
        return _tag(data)

    @blocking
    def copy_part(self, key: str, upload: str, part: UploadPart, span: Span) -> str:
        data = self._find(span.key, span.etag).data[span.start : span.stop]
        with _lock:
            self._begun(key, upload).parts[part.number] = data
        return _tag(data)

    @blocking
    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> str:
        with _lock:
            begun = self._begun(key, upload)
            data = b"".join(begun.parts[number] for number in range(1, len(etags) + 1))
            attributes = replace(begun.attributes, create_only=create_only, replaces=replaces)
            etag = self._store(key, data, attributes)
            del self._uploads[upload]
            return etag

    @blocking
    def abort(self, key: str, upload: str) -> None:
        del key
        with _lock:
            self._uploads.pop(upload, None)

    @blocking
    def uploads(self, prefix: str, *, token: str = "") -> Uploads:
        del token
        with _lock:
            found = [each.upload for each in self._uploads.values() if each.upload.key.startswith(prefix)]
        return Uploads(tuple(sorted(found, key=lambda each: each.key.encode())))

    def _begun(self, key: str, upload: str) -> _Pending:
        if upload not in self._uploads:
            raise NotFound("no such upload", url=self.url(key))
        return self._uploads[upload]

    def _find(self, key: str, etag: str = "") -> _Object:
        with _lock:
            found = self._objects.get(key)
        if found is None:
            raise NotFound("no such object", url=self.url(key))
        if etag and etag != found.meta.etag:
            raise Changed("the object has changed since it was listed or opened", url=self.url(key))
        return found

    def _store(self, key: str, data: bytes, attributes: Attributes) -> str:
        metadata, kind = dict(attributes.metadata), attributes.content_type
        meta = ObjectMeta(key, len(data), _tag(data), time(), metadata=metadata, content_type=kind)
        with irrevocable(), _lock:
            there = self._objects.get(key)
            if attributes.create_only and there:
                raise AlreadyExists("the object exists already", url=self.url(key))
            if attributes.replaces and (there is None or there.meta.etag != attributes.replaces):
                raise PreconditionFailed(
                    "cannot replace: the object has changed since its ETag was read", url=self.url(key)
                )
            self._objects[key] = _Object(data, meta)
        return meta.etag


def _tag(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()


class Memory(Store):
    """``memory://name``: a set of objects by name."""

    name = "memory"
    schemes = ("memory",)
    abilities = MemoryDriver.abilities
    any_options = True

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        from penstock.engine.transport.work import Threads

        return MemoryDriver(opening.bucket), Threads(2)
