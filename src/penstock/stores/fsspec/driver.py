"""fsspec filesystem as a store: each verb makes one or a few blocking calls, on an instance of a pool."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from asyncio import TimeoutError as AsyncTimeout
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from time import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.engine.contracts.driver import UNKNOWN_BYTES, Abilities, Conditions
from penstock.engine.contracts.exchange import Exchange
from penstock.engine.waiting import irrevocable
from penstock.errors import (
    AlreadyExists,
    Changed,
    ConfigError,
    Damaged,
    Forbidden,
    InvalidURL,
    MissingExtra,
    NoSpace,
    NotFound,
    PenstockError,
    PreconditionFailed,
    TimedOut,
    Transient,
    Truncated,
    Unauthenticated,
    UnknownScheme,
    Unreachable,
    Unsupported,
    Unusable,
)
from penstock.stores.direct import blocking, direct, key_bytes, reading, split_items, too_large, untold
from penstock.stores.http.headers import parse_date
from penstock.stores.local import aside as asides
from penstock.stores.local.driver import write_all
from penstock.values import UNKNOWN_SIZE, ObjectMeta, Page, Upload, Uploads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fsspec import AbstractFileSystem

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.driver import Attributes, Beginning, Payload, UploadPart
    from penstock.engine.contracts.exchange import Response
    from penstock.values import Span

_PIECE_BYTES = 1 << 20


# Stores whose writes are atomic: on others a temporary file is written and renamed.
_ATOMIC = {
    *("memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "tos", "obs", "cos", "hf"),
    *("gdrive", "dropbox", "github", "lakefs", "wandb"),
}
_NONE = Conditions(create=False, replace=False)
_LATER = "the file has changed since it was listed or opened"


class FsspecDriver:
    """Root of a filesystem; keys are paths below it.

    A version is the filesystem's own (an ETag, a generation, a digest), else the modification time with the size. It is
    checked after each read, since fsspec cannot bind a read to a version.
    """

    abilities = Abilities(digest=None, put=_NONE, complete=_NONE, forms=("none",), form="none")

    def __init__(self, root: str, protocol: str, instances: Instances, secrets: Iterable[str] = ()) -> None:
        """Serve ``instances``; URLs in messages begin with ``root``, and messages never quote ``secrets``."""
        self._root = root
        self._atomic = protocol in _ATOMIC
        self._instances = instances
        self._secrets = tuple(secrets)
        self._spool = Spool()

    def url(self, key: str) -> str:
        return self._root + key

    def prepare(self) -> None:
        """Do nothing: filesystems connect on the transport's threads."""

    @blocking
    def head(self, key: str) -> ObjectMeta:
        """Describe one file; a directory raises ``NotFound``."""
        with self._using("look up", key) as (fs, path):
            found = self._look(fs, path, key)
            if found.size == UNKNOWN_SIZE:
                raise Unsupported("the filesystem does not report the file's size, so the file can only be read whole")
            return found

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List everything on one page, in UTF-8 byte order; all results of fsspec are in memory at once."""
        del token  # a second page does not exist
        if delimiter not in ("", "/"):
            raise Unsupported("the delimiter must be '/' for a filesystem", url=self.url(prefix))

        def run() -> Page:
            with self._using("list", prefix) as (fs, path):
                root = path[: len(path) - len(prefix)]
                found = _children(fs, root, prefix) if delimiter else _list_prefix(fs, root, prefix)
                return make_page(found, prefix, start_after)

        return direct(run)

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span; fill the target when the answer is parsed: a call that ends too late writes nothing."""
        fetching = direct(partial(self._fetch, span, target.size))

        def parse(response: Response) -> int:
            data, response.version = fetching.parse(response)
            target.fill(memoryview(data))
            return len(data)

        return Exchange(fetching.request, parse)

    def _fetch(self, span: Span, size: int) -> tuple[bytes | memoryview, str]:
        """Return the bytes of a span, then check that the file still has the requested version."""
        key, start, stop = span.key, span.start, span.start + size
        with self._using("read", key) as (fs, path):
            if not size:
                self._check_empty(self._look(fs, path, key), span)
                return b"", ""
            data: bytes = fs.cat_file(path) if span.whole else self._cut(fs, path, start, stop)
            if span.whole and len(data) != size:
                raise Changed(f"the file has {len(data)} bytes, but was listed with {size}")
            if span.etag:
                self._pinned(fs, path, span.etag)
            if len(data) < size:
                raise Truncated("the file ends before the range does")
            return data, ""

    def _cut(self, fs: Any, path: str, start: int, stop: int) -> bytes:  # noqa: ANN401  fsspec has no types
        try:
            data: bytes = fs.cat_file(path, start=start, end=stop)
        except Exception as error:
            size = UNKNOWN_SIZE
            with suppress(Exception):  # report the first error
                size = parse_info("", fs.info(path)).size
            if size != UNKNOWN_SIZE and stop > size:
                raise Truncated("the file ends before the range does") from error
            raise
        if len(data) > stop - start:
            raise Damaged(f"{stop - start} bytes were requested, but the filesystem returned {len(data)}")
        return data

    def _check_empty(self, found: ObjectMeta, span: Span) -> None:
        if span.whole and found.size > 0:
            raise Changed(f"the file has {found.size} bytes, but was listed with 0")
        if span.etag and span.etag != found.etag:
            raise Changed(_LATER)

    @reading
    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> tuple[bytes | Beginning, str]:
        del buffer  # the size is looked up first
        with self._using("read", key) as (fs, path):
            before = self._look(fs, path, key)
            if etag and etag != before.etag:
                raise Changed(_LATER)
            if before.size > most_bytes:
                raise too_large(most_bytes, self.url(key))
            bound = min(most_bytes, self.abilities.untold_bytes)
            data = fs.cat_file(path) if before.size != UNKNOWN_SIZE else _read_at_most(fs, path, bound)
            if before.size not in (UNKNOWN_SIZE, len(data)):
                raise Transient(f"the file had {before.size} bytes, and {len(data)} were read")
            if before.size == UNKNOWN_SIZE and len(data) > bound:
                raise untold(bound, self.url(key))
            self._pinned(fs, path, before.etag)
            return data, before.etag

    @blocking
    def put(self, key: str, body: Payload, attributes: Attributes) -> str:
        """Write one file. Content type and metadata are dropped: fsspec has no common interface for them."""
        del attributes  # conditions too: see abilities
        with self._writing(key) as (fs, path, aside):
            fs.pipe_file(aside, bytes(body.data))
            return self._publish(fs, aside, path)

    @blocking
    def delete(self, key: str) -> None:
        """Delete one file; a missing file is not an error, and directories stay."""
        with self._using("delete", key) as (fs, path), suppress(FileNotFoundError), irrevocable():
            fs.rm_file(path)

    @blocking
    def copy(self, source: str, key: str, etag: str = "") -> str:
        with self._using("copy", source) as (fs, path):
            if etag != (found := self._look(fs, path, source).etag) and etag:
                raise Changed(_LATER)
        with self._writing(key) as (fs, target, aside):
            fs.cp_file(path, aside)
            with self._located("copy", source):
                self._pinned(fs, path, found)
            return self._publish(fs, aside, target)

    @blocking
    def create(self, key: str, attributes: Attributes) -> str:
        """Begin a temporary file on this machine; its path is the upload's id."""
        with self._located("begin an upload to", key):
            self._path("", key)
            return self._spool.begin(key, attributes)

    @blocking
    def part(self, key: str, upload: str, part: UploadPart, body: Payload) -> str:
        with self._located("write a part of", key):
            self._spool.write(upload, body.data, part.offset)
        return str(part.number)

    @blocking
    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> str:
        del etags, create_only, replaces  # see abilities
        with self._writing(key) as (fs, path, aside):
            fs.put_file(self._spool.path(upload), aside)
            version = self._publish(fs, aside, path)
            self._spool.end(upload)
            return version

    @blocking
    def abort(self, key: str, upload: str) -> None:
        with self._located("abort an upload to", key):
            self._spool.end(upload)

    @blocking
    def uploads(self, prefix: str, *, token: str = "") -> Uploads:
        """List the uploads of this process, on one page."""
        del token
        return Uploads(tuple(each for each in self._spool if each.key.startswith(prefix)))

    def _look(self, fs: Any, path: str, key: str) -> ObjectMeta:  # noqa: ANN401  fsspec has no types
        fs.invalidate_cache(path)  # cached listings may be stale
        info = fs.info(path)
        if not is_file(info):
            raise NotFound("this is a directory")
        return parse_info(key, info)

    def _pinned(self, fs: Any, path: str, version: str) -> None:  # noqa: ANN401  likewise
        if version and self._look(fs, path, "").etag != version:
            raise Changed(_LATER)

    def _publish(self, fs: Any, aside: str, path: str) -> str:  # noqa: ANN401  likewise
        if aside != path:
            if fs.isdir(path):
                raise Unusable("cannot write: this is a directory")
            with irrevocable():
                _rename(fs, aside, path)
        return self._look(fs, path, "").etag

    @contextmanager
    def _writing(self, key: str) -> Iterator[tuple[Any, str, str]]:
        """Yield a filesystem, the path of a key, and the path to write to, which is removed after a failure."""
        with self._using("write", key) as (fs, path):
            if self._atomic:
                with irrevocable():
                    yield fs, path, path
                return
            folder = path.rpartition("/")[0]
            fs.makedirs(folder, exist_ok=True)
            aside = f"{folder}/.penstock-{uuid4().hex}"
            try:
                yield fs, path, aside
            except BaseException:
                with suppress(Exception):  # report the first error
                    fs.rm_file(aside)
                raise

    @contextmanager
    def _using(self, action: str, key: str) -> Iterator[tuple[Any, str]]:
        """Yield a filesystem and the path of a key; errors in the block are translated to Penstock's."""
        with self._located(action, key), self._instances.borrow() as (fs, root):
            yield fs, root + key if action == "list" else self._path(root, key)

    @contextmanager
    def _located(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  filesystems raise errors of any class
            found = translate_error(error, action, self.url(key), self._secrets)
            raise found from found.__cause__

    def _path(self, root: str, key: str) -> str:
        if not key or key.endswith("/"):
            raise InvalidURL("the path of a file must not end in '/'")
        if asides.is_reserved(key):
            raise InvalidURL("names that begin with '.penstock-' are reserved for files being written")
        return root + key


def _read_at_most(fs: Any, path: str, most_bytes: int) -> bytes:  # noqa: ANN401  likewise
    """Read a file of unknown size, up to one byte more than ``most_bytes``."""
    pieces, left = list[bytes](), most_bytes + 1
    with fs.open(path, "rb") as file:
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)


def _list_prefix(fs: Any, root: str, prefix: str) -> list[ObjectMeta | str]:  # noqa: ANN401  likewise
    folder, _, start = prefix.rpartition("/")
    if not start:
        return _convert_entries(_find_files(fs, root + folder), root)
    found: list[ObjectMeta | str] = []
    for each in _children(fs, root, prefix):
        found += _convert_entries(_find_files(fs, root + each.rstrip("/")), root) if isinstance(each, str) else [each]
    return found


def _find_files(fs: Any, path: str) -> Iterable[Mapping[str, object]]:  # noqa: ANN401  likewise
    path = path.rstrip("/") or path
    fs.invalidate_cache(path)
    try:
        found: dict[str, dict[str, object]] = fs.find(path, detail=True)
    except FileNotFoundError:
        return ()
    # fsspec lists a file as its own child: leave it out.
    return [info for name, info in found.items() if name.strip("/") != path.strip("/")]


def _children(fs: Any, root: str, prefix: str) -> list[ObjectMeta | str]:  # noqa: ANN401  likewise
    """Return files and directories of the prefix's directory whose key begins with it; directories end in ``/``."""
    path = (root + prefix.rpartition("/")[0]).rstrip("/") or root
    fs.invalidate_cache(path)
    try:
        found = fs.ls(path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    named = _convert_entries(found, root)
    return [each for each in named if (each if isinstance(each, str) else each.key).startswith(prefix)]


def _convert_entries(found: Iterable[Mapping[str, object]], root: str) -> list[ObjectMeta | str]:
    """Return files, and directories as keys that end in ``/``; temporary files are left out."""
    named: list[ObjectMeta | str] = []
    for info in found:
        path = str(info["name"])
        start = next((each for each in (root, root.lstrip("/")) if path.startswith(each)), None)
        if start is None:
            raise Damaged(f"the filesystem lists {path!r}, which is not below {root!r}")
        key = path[len(start) :]
        if key.strip("/") and not asides.is_aside(key.rpartition("/")[2]):
            if is_file(info):
                named.append(parse_info(key, info))
            elif info.get("type") == "directory":
                named.append(f"{key.rstrip('/')}/")
    return named


def make_page(found: Iterable[ObjectMeta | str], prefix: str, after: str) -> Page:
    bound = key_bytes(after)
    keyed = {each if isinstance(each, str) else each.key: each for each in found}
    names = sorted((key for key in keyed if key.startswith(prefix) and key_bytes(key) > bound), key=key_bytes)
    return split_items(keyed[name] for name in names)


def _rename(fs: Any, aside: str, path: str) -> None:  # noqa: ANN401  likewise
    """Rename, or copy if the filesystem cannot rename; only that copy can be seen half done."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    # fsspec's default mv consists of copies that read names as globs.
    if type(fs).mv in (AbstractFileSystem.mv, AsyncFileSystem.mv):
        fs.cp_file(aside, path)
        fs.rm_file(aside)
    else:
        fs.mv(aside, path)


# Most specific first; the names are those of s3fs, gcsfs, adlfs, ossfs, huggingface_hub, dropbox, gdrive.
_VERSIONS = ("etag", "ETag", "e_tag", "generation", "version_id", "versionId", "blob_id", "rev", "sha", "content_md5")
_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "timeModified", "modify", "mTime", "created")
_TYPES = ("ContentType", "content_type", "contentType", "mimetype")


def is_file(info: Mapping[str, object]) -> bool:
    return info.get("type", "file") == "file"


def parse_info(key: str, info: Mapping[str, object]) -> ObjectMeta:
    """Return a file's metadata; an unknown size is ``UNKNOWN_SIZE``, an unknown version is empty."""
    size = info.get("size")
    size = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else UNKNOWN_SIZE
    modified = _moment(_first(info, _TIMES))
    version = _clean_value(_first(info, _VERSIONS)) or (f"{modified!r}-{size:x}" if modified is not None else "")
    if not version and isinstance(info.get("ino"), int):
        version = f"{info['ino']}-{size:x}"
    return ObjectMeta(key, size, version, modified, content_type=_clean_value(_first(info, _TYPES)))


def _first(info: Mapping[str, object], names: tuple[str, ...]) -> object:
    return next((info[name] for name in names if info.get(name) not in (None, "")), None)


def _clean_value(value: object) -> str:
    return str(value).strip().replace('"', "") if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _moment(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return parse_date(value)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return None


class Spool:
    """Unfinished uploads of one driver, by their ids: the paths of their temporary files, which need disk space."""

    def __init__(self) -> None:
        self._uploads: dict[str, Upload] = {}
        self.attributes: dict[str, Attributes] = {}

    def begin(self, key: str, attributes: Attributes) -> str:
        descriptor, path = tempfile.mkstemp(prefix="penstock-")
        os.close(descriptor)
        self._uploads[path] = Upload(key, path, time())
        self.attributes[path] = attributes
        return path

    def write(self, upload: str, data: bytes | bytearray | memoryview, offset: int) -> None:
        with open(self.path(upload), "r+b", buffering=0) as file:  # noqa: PTH123  by its descriptor
            write_all(file.fileno(), data, offset)

    def path(self, upload: str) -> str:
        """Return the file of an upload; raise ``NotFound`` for an upload that was completed or aborted."""
        if upload not in self._uploads:
            raise NotFound("no such upload")
        return upload

    def end(self, upload: str) -> None:
        self.attributes.pop(upload, None)
        if self._uploads.pop(upload, None) is not None:
            with suppress(FileNotFoundError):
                os.unlink(upload)  # noqa: PTH108  see write

    def __iter__(self) -> Iterator[Upload]:
        return iter(list(self._uploads.values()))


_UNREACHABLE = {
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPIPE),
    *(errno.ENETDOWN, errno.EHOSTDOWN, errno.ENOTCONN),
}
_FOR_GOOD = {errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EXDEV, errno.EFBIG}
# The first match counts; errors beyond Python's own classes are recognised by their errno or by the class's name.
_KINDS: tuple[tuple[tuple[type[BaseException], ...], type[PenstockError]], ...] = (
    ((FileNotFoundError, NotADirectoryError, IsADirectoryError), NotFound),
    ((FileExistsError,), AlreadyExists),
    ((PermissionError,), Forbidden),
    ((TimeoutError, AsyncTimeout), TimedOut),
    ((ConnectionError, EOFError), Unreachable),
    ((NotImplementedError,), Unsupported),
    ((ValueError, TypeError, AttributeError, KeyError, ImportError), Unusable),
)
# Classes that are not OSErrors: those of HTTP clients and SDKs.
_NAMED: Mapping[str, type[PenstockError]] = {
    "timeout": TimedOut,
    "notfound": NotFound,
    "alreadyexists": AlreadyExists,
    "precondition": PreconditionFailed,
    "notsupported": Unsupported,
    "invalidpath": InvalidURL,
    "unauthenticated": Unauthenticated,
    "auth": Forbidden,
    "permission": Forbidden,
    "forbidden": Forbidden,
}


def translate_error(error: Exception, action: str, url: str, secrets: Iterable[str] = ()) -> PenstockError:
    """Return an error of ``action`` as a Penstock error; a cause that contains one of the ``secrets`` is left out."""
    if isinstance(error, PenstockError):
        error.url = error.url or url
        return error
    words = f"cannot {action}: {type(error).__name__}"
    # obstore's errors repeat themselves below an empty line.
    if text := str(error).strip().partition("\n\n")[0]:
        words = f"{words}: {text}"
    found = _classify_error(error)(words, url=url)
    if not any(secret in f"{error!r}{error}" for secret in secrets):
        found.__cause__ = error
    return found


def _classify_error(error: Exception) -> type[PenstockError]:
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, ConnectionError | TimeoutError | OSError):
        # fsspec's HTTP filesystem raises FileNotFoundError for each unreachable server.
        told = _classify_error(cause)
        if issubclass(told, Unreachable | TimedOut):
            return told
    for classes, kind in _KINDS:
        if isinstance(error, classes):
            return kind
    if isinstance(error, OSError):
        if error.errno in NoSpace.ERRNOS:
            return NoSpace
        if error.errno in _UNREACHABLE:
            return Unreachable
        return Unusable if error.errno in _FOR_GOOD else Transient
    name = type(error).__name__.lower()
    return next((kind for word, kind in _NAMED.items() if word in name), Transient)


def filesystem_class(protocol: str, url: str) -> type[AbstractFileSystem]:
    """Return fsspec's class for a protocol; raise ``InvalidURL`` if the class is Penstock's own."""
    from fsspec import get_filesystem_class

    back = InvalidURL("fsspec would call Penstock for this URL: leave out 'fsspec+'", url=url)
    if protocol == "penstock":
        raise back
    try:
        found: type[AbstractFileSystem] = get_filesystem_class(protocol)
    except ValueError as error:
        raise UnknownScheme(f"fsspec has no protocol {protocol!r}", url=url) from error
    except ImportError as error:
        raise MissingExtra(f"fsspec cannot open {protocol}://: {error}", url=url) from error
    if found.__module__.partition(".")[0] == "penstock":
        raise back
    return found


class Instances:
    """Pool of the instances for one root. FTP clients and the like have one connection, not for parallel calls.

    fsspec's cached instances are never used: other libraries may use them at the same time.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        """Open ``url``, ``protocol://rest/``, with ``options`` as arguments, when first borrowed."""
        self._url = url
        self._options = options
        self._free: SimpleQueue[tuple[Any, str]] = SimpleQueue()

    @contextmanager
    def borrow(self) -> Iterator[tuple[Any, str]]:
        """Yield an instance and its path of the root, which ends in ``/``.

        An instance that failed for a reason that may pass is not used again: FTP and SFTP clients do not reconnect.
        """
        try:
            instance = self._free.get_nowait()
        except Empty:
            instance = self._make()
        shared = instance[0].async_impl  # all its calls run in one loop, from any thread
        if shared:
            self._free.put(instance)
        lost = False
        try:
            yield instance
        except Exception as error:
            lost = not isinstance(error, PenstockError) and issubclass(_classify_error(error), Transient)
            raise
        finally:
            if not (shared or lost):
                self._free.put(instance)

    def _make(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        try:
            instance, root = url_to_fs(self._url, **self._options, skip_instance_cache=True)
        except TypeError as error:
            raise ConfigError(f"the filesystem does not take these storage_options: {error}") from error
        return instance, root if root.endswith("/") else f"{root}/"


_loops: list[Any] = []  # fsspec's event loop at the last fork of this process


def _note() -> None:
    """Keep the loop referenced during a fork, so that the child does not free it before ``_reset_fsspec``."""
    asyn = sys.modules.get("fsspec.asyn")
    _loops[:] = [] if asyn is None else [each for each in asyn.loop if each is not None]


def _reset_fsspec() -> None:
    """Reset fsspec in a forked child, and separate its loop from the parent's.

    Parent and child share one epoll set. A loop, a session or a connection that is freed in the child removes its
    sockets from that set, and the parent would wait for them forever. Closed loops leave the set alone, and so do their
    sessions and connections.
    """
    for loop in _loops:
        with suppress(Exception):
            loop._closed = True  # noqa: SLF001  ``close`` would remove the pipe that wakes the parent
            loop._selector.close()  # noqa: SLF001  only closes the child's descriptor of the set
    asyn = sys.modules.get("fsspec.asyn")
    if asyn is not None:
        asyn.reset_lock()


os.register_at_fork(before=_note, after_in_child=_reset_fsspec)
