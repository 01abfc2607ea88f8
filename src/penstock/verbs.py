"""Everyday verbs by URL: open, list, stat, copy, delete."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.errors import ConfigError, InvalidURL, NotFound
from penstock.modes import TextReader, TextWriter, read_mode
from penstock.protocols.driver import Copy, Delete, Put
from penstock.source import Source, object_at, open_source
from penstock.values import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.options import StoreOptions
    from penstock.source import Reader, Writer

__all__ = ["copy", "delete", "list", "open", "stat"]

_PIECE_BYTES = 8 << 20
_WILDCARD = re.compile(r"[*?]|\[.+\]")
# To make an entry with its URL: ``replace`` takes four times as long.
_FIELDS = [each.name for each in fields(ObjectMeta)]
_before_url, _after_url = attrgetter(*_FIELDS[: _FIELDS.index("url")]), attrgetter(*_FIELDS[_FIELDS.index("url") + 1 :])


@overload
def open(  # noqa: A001  see below
    url: str | os.PathLike[str],
    mode: Literal["rb", "br"] = "rb",
    *,
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
    metadata: Mapping[str, str] | None = None,
    store: StoreOptions | str | None = None,
) -> Reader | Writer | TextReader | TextWriter:
    """Open an object as a file: ``rb`` reads, ``wb`` replaces, ``xb`` creates; ``r``, ``w``, ``x`` are text.

    A reader is seekable and reads ahead: one HEAD to open it, one GET for an object of up to 4 MiB. A writer publishes
    when it is closed well and never otherwise: one PUT and one HEAD for an object of one part (``WriteOptions``).
    ``metadata`` goes with what it writes. Text is UTF-8 by default, on every machine.

    Raises:
        NotFound: To read, and there is no such object.
        Unsupported: To write, and the store takes no objects.
        AlreadyExists: ``xb`` or ``x``, when the file is closed, and there is one.
        ConfigError: Another mode (objects are neither appended to nor changed in place), or arguments that do not go
            with it; no request was made.

    """
    source, key = object_at(url, store)
    try:
        how = read_mode(mode, encoding, errors, newline)
        if how.action == "r" and metadata is not None:
            message = f"mode {mode!r}: metadata= goes with what is written; ps.stat returns what is there"
            raise ConfigError(message)
    except ConfigError as error:
        error.url = source.url(key)
        raise
    if how.action == "r":
        reader = source.open_read(key)
        return reader if how.binary else TextReader(reader, how)
    writer = source.open_write(key, create_only=how.action == "x", metadata=metadata)
    return writer if how.binary else TextWriter(writer, how)


def list(url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> Iterator[ObjectMeta]:  # noqa: A001  see open
    """Yield every object whose key begins with the URL's, in UTF-8 byte order; one request for each 1,000.

    From the fourth page on, as many pages as were taken by then are requested ahead, at most 64 (some 20 MB), where the
    store begins a listing after any key as cheaply (S3 and its family), so the first few objects cost no more.

    The prefix is a string, as everywhere in S3: ``s3://b/train`` also lists ``train2/x``. Nothing found is no error,
    but a ``UserWarning`` where the URL looks like a pattern: wildcards are ``ps.glob``'s.
    """
    source, prefix = open_source(url, store)
    empty = True
    for page in source.pages(prefix):
        for entry in page.entries:
            empty = False
            of = *_before_url(entry), source.url(entry.key), *_after_url(entry)
            yield ObjectMeta(*of)
    if empty and _WILDCARD.search(prefix):
        message = f"nothing begins with {source.url(prefix)!r}: ps.list takes it literally, and ps.glob as a pattern"
        warnings.warn(message, stacklevel=2)


def stat(url: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> ObjectMeta:
    """Describe one object: one request. Raises ``NotFound``."""
    source, key = object_at(url, store)
    return replace(source.head(key), url=source.url(key))


def delete(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, store: StoreOptions | str | None = None
) -> None:
    """Delete one object or many, one request each, in parallel; missing ones are no error.

    Each URL is one object. Where it looks like a prefix or a glob (``/`` at its end, ``*``, ``?``) a HEAD comes first,
    and nothing is deleted unless there is an object of just this name.

    Raises:
        NotFound: A prefix or a glob: list it, and delete what was listed.
        Unsupported: A store that deletes nothing; no request was made.
        PenstockError: The first refusal; what was deleted by then is gone.

    """
    grouped: dict[str, tuple[Source, dict[str, None]]] = {}
    for url in (urls,) if isinstance(urls, str | os.PathLike) else urls:
        source, key = object_at(url, store)
        source.require(Delete, key)
        grouped.setdefault(source.root, (source, {}))[1][key] = None
    for source, keys in grouped.values():
        _check_literal(source, [key for key in keys if key.endswith("/") or "*" in key or "?" in key])
    for source, keys in grouped.values():
        source.delete([*keys])


def copy(url: str | os.PathLike[str], to: str | os.PathLike[str], *, store: StoreOptions | str | None = None) -> None:
    """Copy one object: within a bucket on the server's side if it can, else through this machine in bounded memory.

    The first takes two requests, beyond 1 GiB one for each 128 MiB. ``Changed`` if the object is replaced meanwhile.
    Metadata and content type go with it, where both stores have a place for them; a file's type is told by its name.
    The object at ``to`` is replaced atomically.

    Raises:
        NotFound: There is nothing at ``url``.
        Unsupported: The store of ``to`` takes no objects; no request was made.
        InvalidURL: ``to`` is ``url``, or ends in ``/`` though ``url`` does not: name the copy itself.

    """
    source, key = object_at(url, store)
    target, name = object_at(to, store)
    if name.endswith("/") and not key.endswith("/"):
        raise InvalidURL("name the copy itself: this ends in '/'", url=target.url(name))
    if source.address(key) == target.address(name):
        raise InvalidURL("this would copy the object onto itself", url=target.url(name))
    if source.root == target.root and source.supports(Copy):
        source.copy(key, name)
        return
    target.require(Put, name)
    meta = source.head(key)
    target_file = target.open_write(name, metadata=meta.metadata, content_type=meta.content_type)
    with source.open_read(key, meta) as reader, target_file as writer:
        shutil.copyfileobj(reader, writer, _PIECE_BYTES)


def _check_literal(source: Source, keys: Sequence[str]) -> None:
    """Refuse what was meant as a prefix or a glob: no object is called so."""
    for key, found in zip(keys, source.stat_existing(keys), strict=True):
        if found is None:
            message = "no object of just this name, and no prefix or glob is deleted: pass each .url of ps.list"
            raise NotFound(message, url=source.url(key))
