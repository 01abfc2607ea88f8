"""A filesystem that fsspec opens as a store: each verb is one or a few blocking calls of it."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.drivers.direct import direct, key_bytes, too_large
from penstock.drivers.files import aside as asides
from penstock.drivers.fsspec.errors import translated
from penstock.drivers.fsspec.info import described, is_file
from penstock.drivers.fsspec.spool import Spool
from penstock.errors import Changed, Damaged, InvalidURL, NotFound, Transient, Truncated, Unsupported, Unusable
from penstock.protocols.driver import UNKNOWN_BYTES, Abilities, Conditions
from penstock.values import UNKNOWN_SIZE, ObjectMeta, Page, Uploads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.buffer import Buffer
    from penstock.drivers.fsspec.instances import Instances
    from penstock.protocols.driver import Attributes, Beginning, Part, Payload
    from penstock.protocols.exchange import Exchange
    from penstock.values import Span

__all__ = ["Fsspec"]

# Stores whose writes appear at once, whole: elsewhere a file is written aside and renamed.
_ATOMIC = {
    *("memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "tos", "obs", "cos", "hf"),
    *("gdrive", "dropbox", "github", "lakefs", "wandb"),
}
_NONE = Conditions(create=False, replace=False)
_LATER = "the file is no longer the one that was listed or opened"


class Fsspec:
    """One root of a filesystem; keys are paths below it.

    A version is the filesystem's own (an ETag, a generation, a digest), else the time of the last change with the size;
    it is looked at after each read, since fsspec has no word to hold a read to it.
    """

    abilities = Abilities(digest=None, put=_NONE, complete=_NONE, forms=("none",), form="none")

    def __init__(self, root: str, protocol: str, instances: Instances, secrets: Iterable[str] = ()) -> None:
        """Serve ``instances``, whose URLs begin with ``root`` in messages, which never quote ``secrets``."""
        self._root = root
        self._atomic = protocol in _ATOMIC
        self._instances = instances
        self._secrets = tuple(secrets)
        self._spool = Spool()

    def url(self, key: str) -> str:
        """Return ``fsspec+protocol://rest/key``."""
        return self._root + key

    def prepare(self) -> None:
        """Nothing blocks here: filesystems connect on the transport's threads."""

    def head(self, key: str) -> Exchange[ObjectMeta]:
        """Describe one file; a directory is no object."""

        def run() -> ObjectMeta:
            with self._using("look up", key) as (fs, path):
                found = self._look(fs, path, key)
                if found.size == UNKNOWN_SIZE:
                    raise Unsupported("the filesystem does not say how long this is, so it can only be read whole")
                return found

        return direct(run)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List everything on one page, in UTF-8 byte order: all that fsspec finds is in memory then.

        Raises:
            Unsupported: A delimiter that does not separate directories.

        """
        del token  # there is no second page
        if delimiter not in ("", "/"):
            raise Unsupported("filesystems list directories: the delimiter is '/'", url=self.url(prefix))

        def run() -> Page:
            with self._using("list", prefix) as (fs, path):
                root = path[: len(path) - len(prefix)]
                found = _children(fs, root, prefix) if delimiter else _below(fs, root, prefix)
                return _page(found, prefix, start_after)

        return direct(run)

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span into the target, and look whether it is still the version that was asked for."""
        key, start, stop = span.key, span.start, span.start + target.size

        def run() -> int:
            with self._using("read", key) as (fs, path):
                if not target.size:
                    self._check_empty(self._look(fs, path, key), span)
                    return 0
                data = fs.cat_file(path) if span.whole else self._cut(fs, path, start, stop)
                if span.whole and len(data) != target.size:
                    raise Changed(f"the file has {len(data)} bytes and was listed with {target.size}")
                if span.etag:
                    self._pinned(fs, path, span.etag)
                if len(data) < target.size:
                    raise Truncated("the file ends before the range does")
                target.fill(data)
                return len(data)

        return direct(run)

    def _cut(self, fs: Any, path: str, start: int, stop: int) -> bytes:  # noqa: ANN401  fsspec has no types
        try:
            data: bytes = fs.cat_file(path, start=start, end=stop)
        except Exception as error:
            size = UNKNOWN_SIZE
            with suppress(Exception):  # the first error is the one to tell
                size = described("", fs.info(path)).size
            if size != UNKNOWN_SIZE and stop > size:
                raise Truncated("the file ends before the range does") from error
            raise
        if len(data) > stop - start:
            raise Damaged(f"asked for {stop - start} bytes, the filesystem gave {len(data)}")
        return data

    def _check_empty(self, found: ObjectMeta, span: Span) -> None:
        if span.whole and found.size > 0:
            raise Changed(f"the file has {found.size} bytes and was listed with 0")
        if span.etag and span.etag != found.etag:
            raise Changed(_LATER)

    def get(
        self,
        key: str,
        etag: str,
        most_bytes: int = UNKNOWN_BYTES,
        buffer: Buffer | None = None,  # noqa: ARG002  the size is looked at first
    ) -> Exchange[bytes | Beginning]:
        """Read a whole file."""

        def run() -> bytes:
            with self._using("read", key) as (fs, path):
                before = self._look(fs, path, key)
                if etag and etag != before.etag:
                    raise Changed(_LATER)
                if before.size > most_bytes:
                    raise too_large(most_bytes, self.url(key))
                data: bytes = fs.cat_file(path)
                if before.size not in (UNKNOWN_SIZE, len(data)):
                    raise Transient(f"the file had {before.size} bytes, and {len(data)} were read")
                if len(data) > most_bytes:
                    raise too_large(most_bytes, self.url(key))
                self._pinned(fs, path, before.etag)
                return data

        return direct(run)

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        """Write one file. Its content type and metadata are dropped: fsspec has no common word for them."""
        del attributes  # conditions too: see abilities

        def run() -> str:
            with self._writing(key) as (fs, path, aside):
                fs.pipe_file(aside, bytes(body.data))
                return self._publish(fs, aside, path)

        return direct(run)

    def delete(self, key: str) -> Exchange[None]:
        """Delete one file; a missing one is no error, and directories stay."""

        def run() -> None:
            with self._using("delete", key) as (fs, path), suppress(FileNotFoundError):
                fs.rm_file(path)

        return direct(run)

    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        """Copy one file, by the filesystem itself."""

        def run() -> str:
            with self._using("copy", source) as (fs, path):
                if etag != (found := self._look(fs, path, source).etag) and etag:
                    raise Changed(_LATER)
            with self._writing(key) as (fs, target, aside):
                fs.cp_file(path, aside)
                with self._located("copy", source):
                    self._pinned(fs, path, found)
                return self._publish(fs, aside, target)

        return direct(run)

    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        """Begin a temporary file on this machine; its path is the upload's id."""
        del attributes  # see put

        def run() -> str:
            with self._located("begin an upload to", key):
                self._path("", key)
                return self._spool.begin(key)

        return direct(run)

    def part(self, key: str, upload: str, part: Part, body: Payload) -> Exchange[str]:
        """Write one part into the temporary file."""

        def run() -> str:
            with self._located("write a part of", key):
                self._spool.write(upload, body.data, part.offset)
            return str(part.number)

        return direct(run)

    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Send the temporary file, whole."""
        del etags, create_only, replaces  # see abilities

        def run() -> str:
            with self._writing(key) as (fs, path, aside):
                fs.put_file(self._spool.path(upload), aside)
                version = self._publish(fs, aside, path)
                self._spool.end(upload)
                return version

        return direct(run)

    def abort(self, key: str, upload: str) -> Exchange[None]:
        """Remove the temporary file."""

        def run() -> None:
            with self._located("abort an upload to", key):
                self._spool.end(upload)

        return direct(run)

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        """List the uploads of this process, on one page."""
        del token
        return direct(lambda: Uploads(tuple(each for each in self._spool if each.key.startswith(prefix))))

    def _look(self, fs: Any, path: str, key: str) -> ObjectMeta:  # noqa: ANN401  fsspec has no types
        fs.invalidate_cache(path)  # listings that it keeps are of another time
        info = fs.info(path)
        if not is_file(info):
            raise NotFound("this is a directory")
        return described(key, info)

    def _pinned(self, fs: Any, path: str, version: str) -> None:  # noqa: ANN401  likewise
        if version and self._look(fs, path, "").etag != version:
            raise Changed(_LATER)

    def _publish(self, fs: Any, aside: str, path: str) -> str:  # noqa: ANN401  likewise
        """Make what was written aside the file; returns its version."""
        if aside != path:
            if fs.isdir(path):
                raise Unusable("this is a directory, and files are written")
            _rename(fs, aside, path)
        return self._look(fs, path, "").etag

    @contextmanager
    def _writing(self, key: str) -> Iterator[tuple[Any, str, str]]:
        """Yield a filesystem, the path of a key, and the path to write to; what is left there is removed."""
        with self._using("write", key) as (fs, path):
            if self._atomic:
                yield fs, path, path
                return
            folder = path.rpartition("/")[0]
            fs.makedirs(folder, exist_ok=True)
            aside = f"{folder}/.penstock-{uuid4().hex}"
            try:
                yield fs, path, aside
            except BaseException:
                with suppress(Exception):  # the first error is the one to tell
                    fs.rm_file(aside)
                raise

    @contextmanager
    def _using(self, action: str, key: str) -> Iterator[tuple[Any, str]]:
        """Yield a filesystem and the path of a key; errors in it become Penstock's."""
        with self._located(action, key), self._instances.borrow() as (fs, root):
            yield fs, root + key if action == "list" else self._path(root, key)

    @contextmanager
    def _located(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  filesystems raise what they like
            found = translated(error, action, self.url(key), self._secrets)
            raise found from found.__cause__

    def _path(self, root: str, key: str) -> str:
        if not key or key.endswith("/"):
            raise InvalidURL("a file's path does not end in '/'")
        if asides.is_reserved(key):
            raise InvalidURL("names that begin with '.penstock-' are kept for files being written")
        return root + key


def _below(fs: Any, root: str, prefix: str) -> list[ObjectMeta | str]:  # noqa: ANN401  likewise
    """Find all files whose key begins with a prefix."""
    folder, _, start = prefix.rpartition("/")
    if not start:
        return _named(_found(fs, root + folder), root)
    found: list[ObjectMeta | str] = []
    for each in _children(fs, root, prefix):
        found += _named(_found(fs, root + each.rstrip("/")), root) if isinstance(each, str) else [each]
    return found


def _found(fs: Any, path: str) -> Iterable[Mapping[str, object]]:  # noqa: ANN401  likewise
    path = path.rstrip("/") or path
    fs.invalidate_cache(path)
    try:
        found: dict[str, dict[str, object]] = fs.find(path, detail=True)
    except FileNotFoundError:
        return ()
    return [info for name, info in found.items() if name.strip("/") != path.strip("/")]  # a file is not in itself


def _children(fs: Any, root: str, prefix: str) -> list[ObjectMeta | str]:  # noqa: ANN401  likewise
    """Return the files and directories of the prefix's directory whose key begins with it; these end in ``/``."""
    path = (root + prefix.rpartition("/")[0]).rstrip("/") or root
    fs.invalidate_cache(path)
    try:
        found = fs.ls(path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    named = _named(found, root)
    return [each for each in named if (each if isinstance(each, str) else each.key).startswith(prefix)]


def _named(found: Iterable[Mapping[str, object]], root: str) -> list[ObjectMeta | str]:
    """Return files, and directories as keys that end in ``/``; files that are being written are left out."""
    named: list[ObjectMeta | str] = []
    for info in found:
        path = str(info["name"])
        start = next((each for each in (root, root.lstrip("/")) if path.startswith(each)), None)
        if start is None:
            raise Damaged(f"the filesystem lists {path!r}, which does not lie below {root!r}")
        key = path[len(start) :]
        if key.strip("/") and not asides.is_aside(key.rpartition("/")[2]):
            if is_file(info):
                named.append(described(key, info))
            elif info.get("type") == "directory":
                named.append(f"{key.rstrip('/')}/")
    return named


def _page(found: Iterable[ObjectMeta | str], prefix: str, after: str) -> Page:
    bound = key_bytes(after)
    keyed = {each if isinstance(each, str) else each.key: each for each in found}
    names = sorted((key for key in keyed if key.startswith(prefix) and key_bytes(key) > bound), key=key_bytes)
    items = [keyed[name] for name in names]
    return Page(
        tuple([each for each in items if isinstance(each, ObjectMeta)]),
        tuple([each for each in items if isinstance(each, str)]),
    )


def _rename(fs: Any, aside: str, path: str) -> None:  # noqa: ANN401  likewise
    """Rename; by a copy where the filesystem has no word for it, which is the last thing that can be seen half done."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    if type(fs).mv in (AbstractFileSystem.mv, AsyncFileSystem.mv):  # made of copies that read names as globs
        fs.cp_file(aside, path)
        fs.rm_file(aside)
    else:
        fs.mv(aside, path)
