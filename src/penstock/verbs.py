"""Everyday verbs by URL: open, list, stat, copy, delete."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, overload

from penstock.errors import ConfigError, InvalidURL
from penstock.source import Source, open_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.options import StoreOptions
    from penstock.source import Reader, Writer
    from penstock.values import ObjectMeta

__all__ = ["copy", "delete", "list", "open", "stat"]

_PIECE_BYTES = 8 << 20


@overload
def open(  # noqa: A001  see below
    url: str | os.PathLike[str], mode: Literal["rb"] = "rb", *, store: StoreOptions | None = None
) -> Reader: ...


@overload
def open(  # noqa: A001  see below
    url: str | os.PathLike[str],
    mode: Literal["wb", "xb"],
    *,
    metadata: Mapping[str, str] | None = None,
    store: StoreOptions | None = None,
) -> Writer: ...


def open(  # noqa: A001  the built-in's name for the built-in's job, always called as ps.open
    url: str | os.PathLike[str],
    mode: str = "rb",
    *,
    metadata: Mapping[str, str] | None = None,
    store: StoreOptions | None = None,
) -> Reader | Writer:
    """Open an object as a binary file: ``rb`` reads, ``wb`` replaces, ``xb`` creates.

    A reader is seekable, reads ahead and costs one HEAD to open. A writer publishes when it is closed well and never
    otherwise; ``metadata`` goes with what it writes.

    Raises:
        NotFound: ``rb``, and there is no such object.
        AlreadyExists: ``xb``, when the file is closed, and there is one.
        ConfigError: Another mode; for text wrap the file in ``io.TextIOWrapper``.

    """
    source, key = _object(url, store)
    if mode == "rb":
        return source.open_read(key)
    if mode in ("wb", "xb"):
        return source.open_write(key, create_only=mode == "xb", metadata=metadata)
    message = f"mode {mode!r}: objects are opened 'rb', 'wb' or 'xb'; for text, wrap the file in io.TextIOWrapper"
    raise ConfigError(message, url=source.url(key))


def list(url: str | os.PathLike[str], *, store: StoreOptions | None = None) -> Iterator[ObjectMeta]:  # noqa: A001  see open
    """Yield every object whose key begins with the URL's, in UTF-8 byte order; one request for each 1,000.

    The prefix is a string, as everywhere in S3: ``s3://b/train`` also lists ``train2/x``. Nothing found is no error.
    """
    source, prefix = open_source(url, store)
    for page in source.pages(prefix):
        for entry in page.entries:
            yield replace(entry, url=source.url(entry.key))


def stat(url: str | os.PathLike[str], *, store: StoreOptions | None = None) -> ObjectMeta:
    """Describe one object: one request. Raises ``NotFound``."""
    source, key = _object(url, store)
    return replace(source.head(key), url=source.url(key))


def delete(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, store: StoreOptions | None = None
) -> None:
    """Delete one object or many, one request each, in parallel; missing ones are no error.

    Raises:
        PenstockError: The first refusal; what was deleted by then is gone.

    """
    grouped: dict[str, tuple[Source, dict[str, None]]] = {}
    for url in (urls,) if isinstance(urls, str | os.PathLike) else urls:
        source, key = _object(url, store)
        grouped.setdefault(source.root, (source, {}))[1][key] = None
    for source, keys in grouped.values():
        source.delete([*keys])


def copy(url: str | os.PathLike[str], to: str | os.PathLike[str], *, store: StoreOptions | None = None) -> None:
    """Copy one object: within a bucket on the server's side, else through this machine in bounded memory.

    The first takes two requests, beyond 1 GiB one for each 128 MiB. ``Changed`` if the object is replaced meanwhile.
    Metadata and content type go with it, where both stores have a place for them; a file's type is told by its name.
    What stood at ``to`` is replaced, whole or not at all.
    """
    source, key = _object(url, store)
    target, name = _object(to, store)
    if source.root == target.root:
        source.copy(key, name)
        return
    meta = source.head(key)
    target_file = target.open_write(name, metadata=meta.metadata, content_type=meta.content_type)
    with source.open_read(key, meta) as reader, target_file as writer:
        shutil.copyfileobj(reader, writer, _PIECE_BYTES)


def _object(url: str | os.PathLike[str], store: StoreOptions | None) -> tuple[Source, str]:
    source, key = open_source(url, store)
    if not key:
        raise InvalidURL("this names a bucket, not an object in it", url=source.root)
    return source, key
