"""Common operations by URL: open, list, glob, stat, copy, delete."""

from __future__ import annotations

import codecs
import io
import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from glob import escape
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.copies import copy_object
from penstock.engine.contracts.driver import Delete
from penstock.engine.listing.select import fixed_part, selector
from penstock.engine.read.reader import LEAST_BLOCK_BYTES, MOST_AHEAD_BYTES, MOST_BLOCK_BYTES
from penstock.errors import ConfigError, InvalidURL, NotFound, Unusable, kind_of
from penstock.source import Source, object_at, open_source
from penstock.stores.urls import LOCAL_ROOT
from penstock.values import ObjectMeta, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from penstock.options import StoreOptions
    from penstock.source import Reader, Writer

_WILDCARD = re.compile(r"[*?]|\[.+\]")
# To copy an entry with its URL added: ``dataclasses.replace`` takes four times as long.
_FIELDS = [each.name for each in fields(ObjectMeta)]
_before_url, _after_url = attrgetter(*_FIELDS[: _FIELDS.index("url")]), attrgetter(*_FIELDS[_FIELDS.index("url") + 1 :])


@overload
def open(  # noqa: A001  see below
    url: str | os.PathLike[str],
    mode: Literal["rb", "br"] = "rb",
    *,
    block_bytes: int | None = None,
    read_ahead: int | None = None,
    metadata: Mapping[str, str] | None = None,
    store: StoreOptions | str | None = None,
) -> Reader: ...


@overload
def open(  # noqa: A001  see below
    url: str | os.PathLike[str],
    mode: Literal["wb", "bw", "xb", "bx"],
    *,
    metadata: Mapping[str, str] | None = None,
    store: StoreOptions | str | None = None,
) -> Writer: ...


@overload
def open(  # noqa: A001  see below
    url: str | os.PathLike[str],
    mode: Literal["r", "rt", "tr"],
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    block_bytes: int | None = None,
    read_ahead: int | None = None,
    metadata: Mapping[str, str] | None = None,
    store: StoreOptions | str | None = None,
) -> TextReader: ...


@overload
def open(  # noqa: A001  see below
    url: str | os.PathLike[str],
    mode: Literal["w", "wt", "tw", "x", "xt", "tx"],
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    metadata: Mapping[str, str] | None = None,
    store: StoreOptions | str | None = None,
) -> TextWriter: ...


@overload
def open(  # noqa: A001  a mode that is known when the program runs
    url: str | os.PathLike[str],
    mode: str,
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    block_bytes: int | None = None,
    read_ahead: int | None = None,
    metadata: Mapping[str, str] | None = None,
    store: StoreOptions | str | None = None,
) -> Any: ...  # noqa: ANN401  as of the built-in, whose IO[Any] these are not


def open(  # noqa: A001, PLR0913  the built-in's name and arguments for the built-in's job, always called as ps.open
    url: str | os.PathLike[str],
    mode: str = "rb",
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    block_bytes: int | None = None,
    read_ahead: int | None = None,
    metadata: Mapping[str, str] | None = None,
    store: StoreOptions | str | None = None,
) -> Reader | Writer | TextReader | TextWriter:
    """Open an object as a file: ``rb`` reads, ``wb`` replaces, ``xb`` creates; ``r``, ``w``, ``x`` are text.

    A reader is seekable: one HEAD to open it, one GET for an object of up to 4 MiB. From the front it reads 12 MiB
    ahead; after a seek it requests 256 KiB, then ahead a share of what was read since. A writer publishes
    the object when it is closed successfully, and never otherwise: one PUT and one HEAD for an object of one part
    (``WriteOptions``).

    Args:
        url: The object.
        mode: One of the modes above; default ``rb``. ``t`` for text is optional.
        encoding: Encoding of text; default UTF-8, on every machine.
        errors: Handler for text that the encoding lacks, as in the built-in ``open``; default ``strict``.
        newline: Line ends of text, as in the built-in ``open``.
        block_bytes: Size of each request of a reader in bytes, from 4 KiB to 64 MiB. Reads of this size or more go
            directly into the caller's memory. An open file keeps eight blocks. Default: sizes follow the pattern of
            reading, up to 4 MiB.
        read_ahead: Bytes that sequential reading requests ahead from its second request on, up to 1 GiB; 0 requests
            nothing ahead. Default: three blocks (12 MiB), reached step by step after a seek.
        metadata: User metadata that is stored with a written object.
        store: Options, or the name of a profile; default: environment and profile.

    Returns:
        A binary or text file, to read or to write.

    Raises:
        NotFound: The mode reads, and the object does not exist.
        Unsupported: The mode writes, and the store is read-only.
        AlreadyExists: Raised when an ``xb`` or ``x`` file is closed, if the object exists.
        ConfigError: The mode is unknown (objects cannot be appended to or changed in place), or an argument does not
            fit it; no request was made.
        Unusable: ``block_bytes`` or ``read_ahead`` is out of its bounds; no request was made.

    Example:
        >>> with ps.open("s3://bucket/notes.txt", "w") as file:
        ...     file.write("two words")
        9
        >>> ps.open("s3://bucket/notes.txt").read()
        b'two words'
    """
    source, key = object_at(url, store)
    try:
        how = read_mode(mode, encoding, errors, newline)
        if how.action == "r" and metadata is not None:
            raise ConfigError(f"mode {mode!r}: metadata= is for writing; ps.stat returns existing metadata")
        if how.action != "r" and (block_bytes, read_ahead) != (None, None):
            raise ConfigError(
                f"mode {mode!r}: block_bytes= and read_ahead= are for reading; WriteOptions has part_bytes"
            )
        block_bytes = _check_bytes(block_bytes, "block_bytes", LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES)
        read_ahead = _check_bytes(read_ahead, "read_ahead", 0, MOST_AHEAD_BYTES)
    except Unusable as error:
        error.url = source.url(key)
        raise
    if how.action == "r":
        reader = source.open_read(key, block_bytes=block_bytes, read_ahead=read_ahead)
        return reader if how.binary else TextReader(reader, how)
    writer = source.open_write(key, create_only=how.action == "x", metadata=metadata)
    return writer if how.binary else TextWriter(writer, how)


def list(url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> Iterator[ObjectMeta]:  # noqa: A001  see open
    """Yield every object whose key begins with the URL's key, in UTF-8 byte order; one request per 1,000.

    From the fourth page on, as many pages as were consumed so far are requested ahead, at most 64 (some 20 MB). This
    requires a store that can start a listing after any key cheaply (S3 and its family). The first few objects therefore
    cost no more.

    An empty result is not an error, but emits a ``UserWarning`` if the URL looks like a pattern: use ``ps.glob`` for
    wildcards.

    Args:
        url: A bucket or a prefix. The prefix is a string, as everywhere in S3: ``s3://b/train`` also lists
            ``train2/x``.
        store: Options, or the name of a profile; default: environment and profile.

    Example:
        >>> found = [each.key for each in ps.list("s3://bucket/train/3/")]
        >>> found[0], len(found)
        ('train/3/0000.png', 60)
    """
    source, prefix = open_source(url, store)
    empty = True
    for page in source.pages(prefix):
        for entry in page.entries:
            empty = False
            values = *_before_url(entry), source.url(entry.key), *_after_url(entry)
            yield ObjectMeta(*values)
    if empty and _WILDCARD.search(prefix):
        message = f"nothing begins with {source.url(prefix)!r}: ps.list does not expand patterns, ps.glob does"
        warnings.warn(message, stacklevel=2)


def stat(url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> ObjectMeta:
    """Return one object's metadata: one request.

    Args:
        url: The object.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        NotFound: The object does not exist.

    Example:
        >>> meta = ps.stat("s3://bucket/train/3/0000.png")
        >>> meta.size, meta.url
        (..., 's3://bucket/train/3/0000.png')
    """
    source, key = object_at(url, store)
    return replace(source.head(key), url=source.url(key))


def delete(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, store: StoreOptions | str | None = None
) -> None:
    """Delete one object or many, one request each, in parallel; missing ones are not an error.

    For a URL that looks like a prefix or a glob (``/`` at its end, ``*``, ``?``) a HEAD comes first, and nothing is
    deleted unless an object with exactly this name exists.

    Args:
        urls: The URL of one object, or several; each is one object.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        NotFound: A URL is a prefix or a glob: list it, and delete the listed objects.
        Unsupported: The store cannot delete; no request was made.
        PenstockError: The first refusal; objects deleted before it are gone.

    Example:
        >>> ps.copy("s3://bucket/train/3/0000.png", "s3://bucket/old/0000.png")
        >>> ps.delete(each.url for each in ps.list("s3://bucket/old/"))
        >>> list(ps.list("s3://bucket/old/"))
        []
    """
    grouped: dict[str, tuple[Source, dict[str, None]]] = {}
    if not isinstance(urls, Iterable | os.PathLike):
        raise InvalidURL(f"delete takes a URL, or several, got {kind_of(urls)}")
    for url in (urls,) if isinstance(urls, str | os.PathLike) else urls:
        source, key = object_at(url, store)
        source.require(Delete, key)
        grouped.setdefault(source.root, (source, {}))[1][key] = None
    for source, keys in grouped.values():
        _check_literal(source, [key for key in keys if key.endswith("/") or "*" in key or "?" in key])
    for source, keys in grouped.values():
        source.delete([*keys])


def copy(
    source: str | os.PathLike[str], dest: str | os.PathLike[str], *, store: StoreOptions | str | None = None
) -> None:
    """Copy one object: server-side within a bucket if possible, else through this machine in bounded memory.

    A server-side copy takes two requests, beyond 1 GiB one per 128 MiB. A copy to another object store ends with a HEAD
    of ``source``, which shows whether the copy is the same object under another name.

    Metadata and content type are copied if both stores support them; a file's type is derived from its name.

    Args:
        source: The object.
        dest: URL of the copy; an existing object there is replaced atomically.
        store: Options of both stores, or the name of a profile; default: environment and profile.

    Raises:
        NotFound: No object exists at ``source``.
        Changed: The object was replaced meanwhile.
        Unsupported: The store of ``dest`` is read-only; no request was made.
        InvalidURL: ``dest`` is ``source`` or another name of it, or ends in ``/`` although ``source`` does not.

    Example:
        >>> ps.copy("s3://bucket/train/3/0000.png", "first.png")
        >>> ps.stat("first.png").size == ps.stat("s3://bucket/train/3/0000.png").size
        True
    """
    here, key = object_at(source, store)
    there, name = object_at(dest, store)
    if name.endswith("/") and not key.endswith("/"):
        raise InvalidURL("the destination must be an object, but ends in '/'", url=there.url(name))
    copy_object(here, key, there, name)


def _check_literal(source: Source, keys: Sequence[str]) -> None:
    """Raise ``NotFound`` for keys that look like a prefix or a glob, unless an object has exactly this name."""
    for key, found in zip(keys, source.stat_existing(keys), strict=True):
        if found is None:
            message = "no object has this exact name; prefixes and globs are not deleted: pass each .url of ps.list"
            raise NotFound(message, url=source.url(key))


_ENCODING = "utf-8"  # on every machine
_INSTEAD = {
    "a": "objects are replaced, not appended to: read this one, and write all of it with 'wb'; or write the addition "
    "as a separate object, with 'xb'",
    "+": "objects are replaced, not changed in place: read with 'rb', and write all of it with 'wb'",
    "U": "for text with any line ends open it 'r'",
}


@dataclass(frozen=True, slots=True)
class Mode:
    """A parsed file mode, whose ``action`` ``r`` reads, ``w`` replaces or ``x`` creates bytes (``binary``) or text."""

    text: str
    action: str
    binary: bool
    encoding: str = _ENCODING
    errors: str | None = None
    newline: str | None = None


def read_mode(text: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> Mode:
    """Return a parsed mode: ``r``, ``w`` or ``x``, and ``b`` for bytes or ``t`` (or nothing) for text, in any order.

    ``ConfigError`` if an argument is unknown, or one of the last three is given for bytes.
    """
    letters = f"{text}"  # None too becomes text, which is not a valid mode
    if "/" in letters:
        raise ConfigError(f"mode must be 'r', 'w' or 'x', with 'b' for bytes, got {text!r}; the URL comes first")
    for letter, instead in _INSTEAD.items():
        if letter in letters:
            raise ConfigError(f"mode {text!r}: {instead}")
    action = "".join(each for each in letters if each in "rwx")
    kind = "".join(each for each in letters if each not in "rwx")
    if len(action) != 1 or kind not in ("", "b", "t"):
        raise ConfigError(f"mode {text!r}: one of 'r', 'w' or 'x', and 'b' for bytes or 't' for text")
    if kind == "b":
        _check_plain(text, encoding=encoding, errors=errors, newline=newline)
        return Mode(text, action, binary=True)
    _check_text(encoding or _ENCODING, errors or "strict", newline)
    return Mode(text, action, binary=False, encoding=encoding or _ENCODING, errors=errors, newline=newline)


class TextReader(io.TextIOWrapper):
    """Text of an object, over a ``Reader``; behaves like Python's own text files."""

    def __init__(self, file: io.BufferedIOBase, mode: Mode) -> None:
        super().__init__(file, mode.encoding, mode.errors, mode.newline)  # type: ignore[arg-type]  # wider than io's
        self._mode = mode.text

    @property
    def mode(self) -> str:
        return self._mode


class TextWriter(TextReader):
    """Text file that publishes an object when it is closed successfully, and nothing otherwise: see ``Writer``."""

    def __init__(self, file: io.BufferedIOBase, mode: Mode) -> None:
        # io omits the byte order mark of UTF-16 and UTF-32 if it cannot tell that the file is at its beginning.
        vars(file)["seekable"] = lambda: True
        try:
            super().__init__(file, mode)
        finally:
            del vars(file)["seekable"]

    def abort(self) -> None:
        self._writer().abort()

    def close(self) -> None:
        if self.closed:
            self.buffer.close()  # raises, once, the reason why nothing was published
        else:
            self._finish()
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.closed:
            self._finish()
        self._writer().__exit__(kind, error, trace)

    def __del__(self) -> None:
        """Publish nothing, although ``io`` would close the file: the writer is dropped, too, and cleans up."""

    def _finish(self) -> None:
        try:
            self.flush()
        except BaseException:
            self.abort()
            raise

    def _writer(self) -> Writer:
        return self.buffer  # type: ignore[return-value]  # which this was made with


def _check_bytes(value: int | None, name: str, least: int, most: int) -> int | None:
    if value is None:
        return None
    if not least <= (size_bytes := whole(value, name)) <= most:
        raise Unusable(f"{name} must be {least:,} to {most:,} bytes, got {size_bytes:,}")
    return size_bytes


def _check_plain(text: str, **given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            message = f"mode {text!r}: bytes have no {name}=: leave it out, or open text, {text.replace('b', '')!r}"
            raise ConfigError(message)


def _check_text(encoding: str, errors: str, newline: str | None) -> None:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding, errors, newline)
        codecs.lookup_error(errors)  # io would look it up only when needed
    except (LookupError, TypeError, ValueError) as error:
        message = (
            f"{error}: encoding= is a codec's name ('utf-8'), errors= a handler's ('replace'), newline= a line end"
        )
        raise ConfigError(message) from error


def glob(url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> Iterator[ObjectMeta]:
    """Yield every object whose key matches a pattern, in UTF-8 byte order; no match is not an error.

    The patterns are those of ``include=`` and of ``penstock ls``: ``*`` and ``?`` within a component, ``**`` across
    components (``**/`` also matches no component), ``[abc]``, ``[a-z]`` and ``[!a]``. The whole key must match.
    ``[*]``, ``[?]`` and ``[[]`` match these characters literally: ``glob.escape(key)`` of the standard library writes
    them. Directory markers (empty, with ``/`` at the end) are left out.

    Lists the keys that begin with the text before the first wildcard: one request per 1,000 objects. If all wildcards
    are in the last component, and none is ``**``, deeper prefixes are not listed. A pattern without wildcards costs
    one HEAD.

    Args:
        url: URL whose key is a pattern.
        store: Options, or the name of a profile; default: environment and profile.

    Raises:
        InvalidURL: The URL has no wildcard and names no object: a bucket, or ``/`` at the end.
        ConfigError: A character set is invalid (``[z-a]``).

    Example:
        >>> [each.key for each in ps.glob("s3://bucket/train/[34]/0007.png")]
        ['train/3/0007.png', 'train/4/0007.png']
    """
    source, key = open_source(url, store)
    pattern = _pattern(source, os.fspath(url), key)
    start, rest = fixed_part(pattern)
    if rest:
        last = rest if "/" in rest else start.rpartition("/")[2] + rest
        delimiter = "" if "/" in last or "**" in last else "/"
        return _list_matching(source, start, selector(pattern), delimiter)
    if not start or start.endswith("/"):
        message = "no such object, and no wildcard: '**' at the end matches all below, as ps.list(url) does"
        raise InvalidURL(message, url=source.url(start))
    return _looked_up(source, start)


def _pattern(source: Source, text: str, key: str) -> str:
    """Return the key as a pattern; for a relative path, the working directory is escaped, because it is literal."""
    here = f"{os.getcwd()}/".lstrip("/")  # noqa: PTH109  a text
    relative = source.root == LOCAL_ROOT and "://" not in text and not text.startswith("/")
    return escape(here) + key.removeprefix(here) if relative else key


def _list_matching(
    source: Source, prefix: str, chosen: Callable[[str, int], bool], delimiter: str
) -> Iterator[ObjectMeta]:
    for page in source.pages(prefix, delimiter=delimiter):
        for entry in page.entries:
            if chosen(entry.key, entry.size):
                yield replace(entry, url=source.url(entry.key))


def _looked_up(source: Source, key: str) -> Iterator[ObjectMeta]:
    try:
        yield replace(source.head(key), url=source.url(key))
    except NotFound:
        return
