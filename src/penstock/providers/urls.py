"""The only parser of object URLs: text in, a location out, every byte of the key kept."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from penstock.errors import InvalidURL, UnknownScheme

__all__ = ["Location", "parse"]

_KNOWN = ("s3", "file", "memory")
_KEY_BYTES = 1024  # S3's limit, of UTF-8
# Wider than AWS's rules (lower case, 3-63): Ceph, MinIO and old us-east-1 buckets hold capitals, "_" and more.
_BUCKET = {
    "s3": re.compile(r"[A-Za-z0-9._-]{3,255}"),
    "memory": re.compile(r"[A-Za-z0-9._-]{1,255}"),
    "file": re.compile(r""),
}
_WINDOWS = re.compile(r"[A-Za-z]:\\|\\\\")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
# pathlib makes "s3:/bucket" of "s3://bucket": taken as a path, it would quietly name a local directory.
_COLLAPSED = re.compile(r"(?:s3|file|memory):(?!//)|[A-Za-z][A-Za-z0-9+.-]*:/(?!/)", re.IGNORECASE)
_AWS = re.compile(r"https?://(?:([^/@:?#]+)\.)?s3[.-][^/@:?#]*amazonaws\.com(?:\.cn)?(?::\d+)?/([^?#]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a store: ``scheme``, ``bucket`` and ``key``, none of them escaped.

    An empty key is the whole bucket. For ``file`` the bucket is empty and the key is the absolute path without its
    leading slash.

    Raises:
        UnknownScheme: The scheme is none of ours.
        InvalidURL: The bucket's name cannot be one; the key holds a NUL or lone surrogates, or (s3) is longer than
            1,024 bytes of UTF-8.

    """

    scheme: str
    bucket: str
    key: str

    def __post_init__(self) -> None:
        """Refuse what no store can hold."""
        if self.scheme not in _KNOWN:
            message = f"unknown scheme {self.scheme!r}: Penstock knows {_listed()}"
            raise UnknownScheme(message)
        if not _BUCKET[self.scheme].fullmatch(self.bucket):
            raise InvalidURL(_bucket_fault(self.scheme, self.bucket), url=f"{self.scheme}://")
        if fault := _key_fault(self.scheme, self.key):
            raise InvalidURL(fault, url=self.root)

    @property
    def root(self) -> str:
        """The bucket's address, ``scheme://bucket/``."""
        return f"{self.scheme}://{self.bucket}/"

    @property
    def url(self) -> str:
        """The address as a user writes it; ``parse`` gives the same location back."""
        return self.root + self.key

    def at(self, key: str) -> Location:
        """Return the location of another full key in the same bucket; raises ``InvalidURL`` as ``parse`` does."""
        return Location(self.scheme, self.bucket, key)


def parse(url: str | os.PathLike[str]) -> Location:
    """Read ``s3://bucket/key``, ``file:///absolute/path``, ``memory://name/key`` or a bare path.

    The key is everything after the bucket's slash, taken literally: ``%``, ``?``, ``#``, ``+``, ``//`` and a trailing
    ``/`` stay. A relative path is joined to the working directory; like ``open``, this does not resolve ``..``; ``~``
    is refused, not expanded. A local name that looks like a URL is written ``./name``. No request is made and no file
    is touched.

    Raises:
        InvalidURL: Empty, no bucket, a path of Windows, credentials or a port where the bucket belongs, a key that no
            store can hold.
        UnknownScheme: Another scheme; the text says which are known and what was probably meant.

    """
    text = _text(url)
    head, mark, rest = text.partition("://")
    if mark and "/" not in head:
        return _from_url(text, head, rest)
    if _COLLAPSED.match(text):
        message = (
            f"neither a URL nor a plain path: a URL has '://' after its scheme ({_listed()}) and is text, for "
            "pathlib drops a slash; a local file of such a name is written './name'"
        )
        raise InvalidURL(message)
    if text == "~" or text.startswith("~/"):
        raise InvalidURL("'~' is not expanded: pass os.path.expanduser(…), or './~' for a directory of that name")
    if _WINDOWS.match(text):
        raise InvalidURL(f"{text[:80]!r} is a path of Windows: write it with '/', or './…' for a file of such a name")
    return Location("file", "", _absolute(text).removeprefix("/"))


def _absolute(path: str) -> str:
    below = re.sub(r"^(\.(/+|$))+", "", path)  # "./" and "." name the working directory itself
    return os.path.join(os.getcwd(), below)  # noqa: PTH109, PTH118  pathlib drops slashes


def _text(url: str | os.PathLike[str]) -> str:
    text: object = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(text, str):
        message = f"a URL is text or a path of text, not {type(text).__name__}"
        raise InvalidURL(message)
    if not text:
        message = "an empty URL: write s3://bucket/key, file:///path, memory://name/key or a path"
        raise InvalidURL(message)
    return text


def _from_url(text: str, scheme: str, rest: str) -> Location:
    if scheme not in _KNOWN:
        raise _unknown(text, scheme)
    bucket, _, key = rest.partition("/")
    return Location(scheme, bucket, key)


def _unknown(text: str, scheme: str) -> InvalidURL | UnknownScheme:
    if not _SCHEME.fullmatch(scheme):
        return InvalidURL("no scheme before '://': write s3://bucket/key, or ./name for a local file of such a name")
    return UnknownScheme(f"unknown scheme {scheme!r}: Penstock knows {_listed()}{_meant(text, scheme.lower())}")


def _meant(text: str, scheme: str) -> str:
    """Guess what was meant, quoting no more than a host and a path: queries hold signatures, user info holds keys."""
    if match := _AWS.match(text):
        place = "/".join(part for part in match.groups() if part)
        return f"; for this object write s3://{unquote(place)}"
    if scheme in ("http", "https"):
        return "; for an object on an S3-compatible server write s3://bucket/key and pass S3Options(endpoint=…)"
    near = [known for known in difflib.get_close_matches(scheme, _KNOWN, cutoff=0.5) if known[0] == scheme[0]]
    return f"; did you mean {near[0]}://?" if near else ""


def _listed() -> str:
    return ", ".join(f"{scheme}://" for scheme in _KNOWN) + " and local paths"


def _bucket_fault(scheme: str, bucket: str) -> str:
    if "@" in bucket or ":" in bucket:
        return (
            f"credentials and ports do not belong in a URL: write {scheme}://bucket/key, and pass "
            "S3Options(endpoint=…, access_key=…, secret_key=…) or set the environment"
        )
    if scheme == "file":
        return "a file URL names no host: write file:///absolute/path with three slashes, or a bare path"
    if not bucket:
        return f"no bucket: write {scheme}://bucket/key"
    least = "3" if scheme == "s3" else "1"
    return f"{bucket[:80]!r} cannot be a bucket: {least} to 255 letters, digits, '.', '-' and '_'"


def _key_fault(scheme: str, key: str) -> str:
    if "\0" in key:
        return "the key holds a NUL"
    try:
        size = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError:
        return "the key holds lone surrogates: it is not valid Unicode, so it has no UTF-8 form"
    if scheme == "s3" and size > _KEY_BYTES:
        return f"the key takes {size} bytes of UTF-8; S3 holds {_KEY_BYTES}"
    return ""
