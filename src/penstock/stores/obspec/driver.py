"""A foreign store with obspec's methods as a driver: each verb makes one or a few blocking calls."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engine.contracts.driver import UNKNOWN_BYTES
from penstock.engine.waiting import allow_time, irrevocable
from penstock.errors import Changed, Damaged, InvalidURL, NotFound, Truncated, Unsupported, Unusable
from penstock.stores.direct import blocking, direct, reading, too_large
from penstock.stores.fsspec.driver import FsspecDriver, Spool, make_page, parse_info
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.driver import Attributes, Beginning, Payload
    from penstock.engine.contracts.exchange import Exchange
    from penstock.values import Page, Span

    Items = list[ObjectMeta | str]

# Calls that move bytes get a second more for so many.
_SLOW_BYTES = 1 << 20
_LATER = "the object has changed since it was listed or opened"


class ObspecDriver(FsspecDriver):
    """A store of another library; keys are its paths.

    An answer to ``get`` has the metadata of the object that its bytes are of, so each read is one call, whose version
    is compared before any bytes are taken. A version is the store's ETag as it stands, else the modification time with
    the size. Uploads in parts are put together in a file of this machine.
    """

    def __init__(self, root: str, store: Any, secrets: Iterable[str] = ()) -> None:  # noqa: ANN401  a protocol
        """Serve ``store``; URLs in messages begin with ``root``, and messages never quote ``secrets``."""
        self._root = root
        self._store = store
        self._secrets = tuple(secrets)
        self._spool = Spool()
        # Whether the store keeps content types and metadata; learned.
        self._keeps = True

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List everything on one page, in UTF-8 byte order: obspec promises no order."""
        del token  # a second page does not exist
        if delimiter not in ("", "/"):
            raise Unsupported("the delimiter must be '/' for a foreign store", url=self.url(prefix))

        def run() -> Page:
            with self._located("list", prefix):
                return make_page(self._children(prefix) if delimiter else self._find(prefix), prefix, start_after)

        return direct(run)

    def _find(self, prefix: str) -> Items:
        """Return the objects below a prefix; obspec's prefixes are folders, so the folders that fit are listed."""
        folder, _, start = prefix.rpartition("/")
        if not start:
            pages = self._store.list(folder or None)
            return [_describe(each["path"], each) for page in pages for each in page]
        found: Items = []
        for each in self._children(prefix):
            found += self._find(each) if isinstance(each, str) else [each]
        return found

    def _children(self, prefix: str) -> Items:
        listed = self._store.list_with_delimiter(prefix.rpartition("/")[0] or None)
        folders = [f"{each.rstrip('/')}/" for each in listed["common_prefixes"]]
        objects = [_describe(each["path"], each) for each in listed["objects"]]
        return [*objects, *(each for each in folders if each.startswith(prefix))]

    def _fetch(self, span: Span, size: int) -> tuple[bytes | memoryview, str]:
        key, stop = span.key, span.start + size
        with self._using("read", key) as (store, path):
            if not size:
                found = self._look(store, path, key)
                self._check_empty(found, span)
                return b"", found.etag
            result = self._get(path, {} if span.whole else {"range": (span.start, stop)}, stop)
            found = _describe(key, result.meta)
            if span.etag and found.etag != span.etag:
                raise Changed(_LATER)
            if span.whole and found.size != size:
                raise Changed(f"the object has {found.size} bytes, but was listed with {size}")
            if stop > found.size:
                raise Truncated("the object ends before the range does")
            if tuple(result.range) != (span.start, stop):
                raise Damaged(f"bytes {span.start} to {stop} were requested, the store returned {result.range}")
            return _take(result, size), found.etag

    def _get(self, path: str, options: Mapping[str, Any], stop: int = 0) -> Any:  # noqa: ANN401  see __init__
        try:
            # A store need not have options.
            return self._store.get(path, options=options) if options else self._store.get(path)
        except FileNotFoundError:
            raise
        except Exception as error:
            size = stop
            with suppress(Exception):  # report the first error
                size = self._store.head(path)["size"]
            if stop > size:
                raise Truncated("the object ends before the range does") from error
            raise

    @reading
    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> tuple[bytes | Beginning, str]:
        del buffer  # the size is known before the bytes come
        with self._using("read", key) as (store, path):
            result = store.get(path)
            found = _describe(key, result.meta)
            if etag and etag != found.etag:
                raise Changed(_LATER)
            if found.size > most_bytes:
                raise too_large(most_bytes, self.url(key))
            data = bytes(_take(result, found.size))
            if len(data) < found.size:
                raise Truncated(f"{len(data)} of {found.size} bytes arrived")
            return data, found.etag

    @blocking
    def put(self, key: str, body: Payload, attributes: Attributes) -> str:
        with self._using("write", key) as (_, path), irrevocable():
            return self._write(path, bytes(body.data), attributes)

    @blocking
    def delete(self, key: str) -> None:
        """Delete one object; a missing object is not an error."""
        with suppress(NotFound), self._using("delete", key) as (store, path), irrevocable():
            store.delete(path)

    @blocking
    def copy(self, source: str, key: str, etag: str = "") -> str:
        with self._using("copy", source) as (store, path):
            meta = self._look(store, path, source)
            found, size = meta.etag, meta.size
            if etag not in ("", found):
                raise Changed(_LATER)
        with self._using("write", key) as (store, target):
            allow_time(size / _SLOW_BYTES)
            with irrevocable():
                store.copy(path, target)
            with self._located("copy", source):
                self._pinned(store, path, found)
            return self._look(store, target, key).etag

    @blocking
    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> str:
        del etags  # the parts are in order in the file
        with self._using("write", key) as (_, path):
            file = Path(self._spool.path(upload))
            attributes = replace(self._spool.attributes[upload], create_only=create_only, replaces=replaces)
            with irrevocable():
                version = self._write(path, file, attributes)
            self._spool.end(upload)
            return version

    def _write(self, path: str, file: bytes | Path, attributes: Attributes) -> str:
        allow_time((len(file) if isinstance(file, bytes) else file.stat().st_size) / _SLOW_BYTES)
        mode: Any = None
        if self.abilities.form != "none":
            mode = (
                "create" if attributes.create_only else {"e_tag": attributes.replaces} if attributes.replaces else None
            )
        named = {**attributes.metadata}
        if not "".join(f"{name}{value}" for name, value in named.items()).isascii():
            # obstore writes such an object to S3, and cannot read it any more.
            raise Unusable("names and values of metadata must be ASCII for a foreign store")
        if attributes.content_type:
            named["Content-Type"] = attributes.content_type
        options = {} if mode is None else {"mode": mode}
        try:
            result = self._put(path, file, named, options)
        except Exception as error:
            if mode is None or not _is_unsupported(error):
                raise
            refused = Unsupported(f"the store has no conditional writes: {error}")
            refused.code = "NotImplemented"
            raise refused from error
        etag = result.get("e_tag") if result else None
        return etag or self._look(self._store, path, path).etag

    def _put(self, path: str, file: bytes | Path, named: Mapping[str, str], options: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if self._keeps:
            try:
                return self._store.put(path, file, attributes=named, **options)
            except Exception as error:
                if not _is_unsupported(error):
                    raise
        result = self._store.put(path, file, **options)
        self._keeps = False
        return result

    def _look(self, fs: Any, path: str, key: str) -> ObjectMeta:  # noqa: ANN401  see __init__
        result = fs.get(path, options={"head": True})
        attributes = dict(result.attributes)
        kind = attributes.pop("Content-Type", "")
        metadata = {name.lower(): value for name, value in attributes.items()}
        return replace(_describe(key, result.meta), metadata=metadata, content_type=kind)

    @contextmanager
    def _using(self, action: str, key: str) -> Iterator[tuple[Any, str]]:
        with self._located(action, key):
            yield self._store, self._path("", key)

    def _path(self, root: str, key: str) -> str:
        if key.startswith("/") or "//" in key:
            raise InvalidURL("the path of an object must not begin with '/' or hold '//'")
        return super()._path(root, key)


def _describe(key: str, meta: Mapping[str, Any]) -> ObjectMeta:
    etag, written = meta.get("e_tag"), meta.get("last_modified")
    if not etag:
        return parse_info(key, meta)
    return ObjectMeta(key, int(meta["size"]), str(etag), written.timestamp() if written else None)


def _take(result: Any, size: int) -> memoryview:  # noqa: ANN401  see ObspecDriver
    allow_time(size / _SLOW_BYTES)
    data = memoryview(result.buffer()).cast("B")
    if data.nbytes > size:
        raise Damaged(f"{size} bytes were requested, but the store returned {data.nbytes}")
    return data


def _is_unsupported(error: Exception) -> bool:
    named = type(error).__name__ in ("NotSupportedError", "NotImplementedError")
    return named or isinstance(error, NotImplementedError | Unsupported)
