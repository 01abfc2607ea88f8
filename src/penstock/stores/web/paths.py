"""Keys of web servers: the URL's path (and query) as a user writes it, in its sent, shown and listed forms."""

from __future__ import annotations

import re
from urllib.parse import quote

__all__ = ["canonical", "escaped", "plain", "shown"]

plain = re.compile(r"[A-Za-z0-9/_.~-]+").fullmatch  # whether a key is sent unchanged
_BARE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_RUNS = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# RFC 3986: characters that a path may hold unescaped, beside letters, digits and "-._~"; and the "%" of escapes.
_PATH = "/!$&'()*+,;=:@%"
# A signature may depend on the exact characters of a query.
_QUERY = "".join(chr(code) for code in range(33, 127) if chr(code) not in '"<>#')
# Characters that stay escaped in a listing: their meaning would change on some servers ("+" is a space on S3).
_TELLING = "%?#+;/"


def escaped(key: str) -> str:
    """Return the sent form of a key: characters that a URL cannot hold are escaped, ``%XX`` and a query are kept."""
    if plain(key):
        return key
    path, mark, query = key.partition("?")
    sent = quote(_BARE.sub("%25", path), safe=_PATH)
    return f"{sent}?{quote(query, safe=_QUERY)}" if mark else sent


def shown(key: str) -> str:
    """Return the form of a key for messages, without its query, which may hold a signature."""
    path, mark, _ = key.partition("?")
    return f"{path}?…" if mark else path


def canonical(path: str) -> str:
    """Return the spelling of a path in listings: readable, with only the necessary escapes.

    All spellings that RFC 3986 treats as one path give the same result; ``escaped`` sends it as that path.
    """
    text = _RUNS.sub(lambda run: _read(bytes.fromhex(run[0].replace("%", ""))), _BARE.sub("%25", path))
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _percent(each.encode("utf-8", "surrogateescape")) for each in text)


def _read(data: bytes) -> str:
    """Return escaped bytes as text, still escaped where that matters or where they are not UTF-8."""
    text = data.decode("utf-8", "surrogateescape")
    return "".join(
        _percent(each.encode("utf-8", "surrogateescape")) if each in _TELLING or not each.isprintable() else each
        for each in text
    )


def _percent(data: bytes) -> str:
    return "".join(f"%{byte:02X}" for byte in data)
