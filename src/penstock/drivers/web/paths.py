"""Keys of web servers: the URL's path (and query) as a user writes it; what is sent of it, shown of it, and listed."""

from __future__ import annotations

import re
from urllib.parse import quote

__all__ = ["canonical", "escaped", "plain", "shown"]

plain = re.compile(r"[A-Za-z0-9/_.~-]+").fullmatch  # says of a key that it is sent as it is
_BARE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_RUNS = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# RFC 3986: what a path may hold unescaped, beside letters, digits and "-._~"; and the "%" of what is escaped already.
_PATH = "/!$&'()*+,;=:@%"
_QUERY = "".join(chr(code) for code in range(33, 127) if chr(code) not in '"<>#')  # a signature may be over its letters
# What stays escaped in a listing: it would mean something else, or does on some servers ("+" is a space on S3).
_TELLING = "%?#+;/"


def escaped(key: str) -> str:
    """Return a key as it is sent: what a URL cannot hold is escaped, ``%XX`` and a query stay as they are."""
    if plain(key):
        return key
    path, mark, query = key.partition("?")
    sent = quote(_BARE.sub("%25", path), safe=_PATH)
    return f"{sent}?{quote(query, safe=_QUERY)}" if mark else sent


def shown(key: str) -> str:
    """Return a key as messages show it: a query may hold a signature, so it is left out."""
    path, mark, _ = key.partition("?")
    return f"{path}?…" if mark else path


def canonical(path: str) -> str:
    """Return the spelling of a path in listings: readable, with only those characters escaped that have to be.

    All spellings that a server takes for one file by RFC 3986 are one here; ``escaped`` sends it as that file.
    """
    text = _RUNS.sub(lambda run: _read(bytes.fromhex(run[0].replace("%", ""))), _BARE.sub("%25", path))
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _percent(each.encode("utf-8", "surrogateescape")) for each in text)


def _read(data: bytes) -> str:
    """Return escaped bytes as text, still escaped where that matters or where they are no UTF-8."""
    text = data.decode("utf-8", "surrogateescape")
    return "".join(
        _percent(each.encode("utf-8", "surrogateescape")) if each in _TELLING or not each.isprintable() else each
        for each in text
    )


def _percent(data: bytes) -> str:
    return "".join(f"%{byte:02X}" for byte in data)
