"""The only parser of object URLs: text in, a location out, every byte of the key kept."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.errors import InvalidURL, UnknownScheme
from penstock.providers.registry import LOCAL, find, loaded, own, schemes

if TYPE_CHECKING:
    from penstock.providers.provider import Provider

__all__ = ["LOCAL_ROOT", "Location", "is_divided", "is_root", "key_fault", "parse", "scheme_provider"]

_WINDOWS = re.compile(r"[A-Za-z]:\\|\\\\")
LOCAL_ROOT = f"{LOCAL}:///"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a store: ``scheme``, ``bucket`` and ``key``, none of them escaped.

    An empty key is the whole bucket. On this machine's file system the bucket is empty and the key is the absolute path
    without its leading slash.

    Raises:
        UnknownScheme: No provider has the scheme.
        InvalidURL: The bucket's name cannot be one; the key holds a NUL or lone surrogates, or is longer than the store
            allows.
        ConfigError: The provider of the scheme is broken (``providers.registry``); no such profile, or one that cannot
            work.

    """

    scheme: str
    bucket: str
    key: str
    # What the scheme's provider was when this was made; of a profile, that of its store with the profile's options.
    provider: Provider = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what no store can hold."""
        provider = scheme_provider(self.scheme)
        if provider.named is not None:
            provider = provider.named(self.bucket)
        object.__setattr__(self, "provider", provider)
        if fault := provider.bucket_fault(self.bucket):
            raise InvalidURL(_bucket_fault(self, provider) or fault)  # and no URL: what stands there may be a secret
        if fault := key_fault(provider, self.key):
            raise InvalidURL(fault, url=self.root)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as text: a profile is looked up where it is loaded."""
        return Location, (self.scheme, self.bucket, self.key)

    @property
    def local(self) -> bool:
        """Whether it is a path of this machine's file system."""
        return self.scheme == LOCAL

    @property
    def root(self) -> str:
        """The bucket's address, ``scheme://bucket/``."""
        return f"{self.scheme}://{self.bucket}/"

    @property
    def url(self) -> str:
        """The address as a user writes it; ``parse`` gives the same location back."""
        return self.root + self.key

    def relative(self, url: str) -> str | None:
        """Return the key of an object that a URL of a profile's own store names; None where it lies elsewhere."""
        target = self.provider.target
        return url[len(target) :] if target and url.startswith(target) else None

    def at(self, key: str) -> Location:
        """Return the location of another full key in the same bucket; raises ``InvalidURL`` as ``parse`` does."""
        return Location(self.scheme, self.bucket, key)


def parse(url: str | os.PathLike[str]) -> Location:
    """Read a URL, ``scheme://bucket/key``, or a bare path.

    The key is everything after the bucket's slash, taken literally: ``%``, ``?``, ``#``, ``+``, ``//`` and a trailing
    ``/`` stay. A relative path is joined to the working directory; like ``open``, this does not resolve ``..``; ``~``
    is refused, not expanded. A local name that looks like a URL is written ``./name``. No request is made and no file
    is touched. Where ``MSC_CONFIG`` names a file of Multi-Storage Client's, its ``path_mapping`` counts.

    Raises:
        InvalidURL: Empty, no bucket, a path of Windows, credentials or a port where the bucket belongs, a key that no
            store can hold.
        UnknownScheme: Another scheme; the text says which are known and what was probably meant.

    """
    text = _text(url)
    if os.environ.get("MSC_CONFIG"):  # named by the user: a file in a home directory redirects nothing
        from penstock.config.profiles.mapping import mapped

        text = mapped(text, os.environ)
    head, mark, rest = text.partition("://")
    if mark and "/" not in head:
        return _from_url(text, head, rest)
    if _is_collapsed(text):
        message = (
            f"neither a URL nor a plain path: a URL has '://' after its scheme ({_listed()}) and is text, for "
            "pathlib drops a slash; a local file of such a name is written './name'"
        )
        raise InvalidURL(message)
    if text == "~" or text.startswith("~/"):
        raise InvalidURL("'~' is not expanded: pass os.path.expanduser(…), or './~' for a directory of that name")
    if _WINDOWS.match(text):
        raise InvalidURL(f"{text[:80]!r} is a path of Windows: write it with '/', or './…' for a file of such a name")
    return Location(LOCAL, "", _absolute(text).removeprefix("/"))


def is_divided(root: str) -> bool:
    """Say whether ``path_mapping`` has some of the URLs that begin with ``root`` mean another place than others."""
    if not os.environ.get("MSC_CONFIG"):
        return False
    from penstock.config.profiles.mapping import divides

    return divides(root, os.environ)


def is_root(text: str) -> bool:
    """Say whether this is a bucket's URL, ending in ``/``; a profile need not be there. Raises as ``parse`` does."""
    scheme, mark, rest = text.partition("://")
    provider = find(scheme) if mark else None
    if provider is not None and provider.named is not None:
        return rest.endswith("/") and not provider.bucket_fault(rest[:-1])
    return parse(text).root == text


def scheme_provider(scheme: str) -> Provider:
    """Return the provider of a scheme: ``UnknownScheme`` where none has it."""
    provider = find(scheme)
    if provider is None:
        raise _unknown(f"{scheme}://", scheme)
    return provider


def _absolute(path: str) -> str:
    below = re.sub(r"^(\.(/+|$))+", "", path)  # "./" and "." name the working directory itself
    return os.path.join(os.getcwd(), below)  # noqa: PTH109, PTH118  pathlib drops slashes


def _text(url: str | os.PathLike[str]) -> str:
    text: object = os.fspath(url) if isinstance(url, os.PathLike) else url
    if hasattr(url, "__vfspath__"):  # universal_pathlib's: no local path, and its text is the URL
        text = str(url)
    if not isinstance(text, str):
        message = f"a URL is text or a path of text, not {type(text).__name__}"
        raise InvalidURL(message)
    if not text:
        message = f"an empty URL: write scheme://bucket/key or a path; Penstock knows {_listed()}"
        raise InvalidURL(message)
    return text


def _from_url(text: str, scheme: str, rest: str) -> Location:
    provider = find(scheme)
    if provider is None:
        raise _unknown(text, scheme)
    return Location(scheme, *provider.split(rest))


def _is_collapsed(text: str) -> bool:
    """Say whether this was a URL: pathlib makes ``s3:/bucket`` of it, which would quietly name a local directory."""
    scheme, colon, rest = text.partition(":")
    if not colon or rest.startswith("//"):
        return False
    return scheme.lower() in loaded() or (rest.startswith("/") and _SCHEME.fullmatch(scheme) is not None)


def _unknown(text: str, scheme: str) -> InvalidURL | UnknownScheme:
    if not _SCHEME.fullmatch(scheme):
        return InvalidURL(
            "no scheme before '://': write scheme://bucket/key, or ./name for a local file of such a name"
        )
    return UnknownScheme(f"unknown scheme {scheme!r}: Penstock knows {_listed()}{_meant(text, scheme.lower())}")


def _meant(text: str, scheme: str) -> str:
    """Guess what was meant, quoting no more than a host and a path: queries hold signatures, user info holds keys."""
    for each in own():
        if advice := each.advice(text):
            return f"; {advice}"
    near = [known for known in get_close_matches(scheme, schemes(), cutoff=0.5) if known[0] == scheme[0]]
    return f"; did you mean {near[0]}://?" if near else ""


def _listed() -> str:
    return ", ".join(f"{scheme}://" for scheme in schemes()) + " and local paths"


def _bucket_fault(location: Location, provider: Provider) -> str:
    """Say what is wrong with a bucket for any provider, empty where only its own rule is broken."""
    ports = not provider.bucket_fault("host:80")  # its buckets are hosts
    place, what = ("host", "credentials") if ports else ("bucket", "credentials and ports")
    if "@" in location.bucket or (":" in location.bucket and not ports):
        instead = (
            f"pass {provider.example} or set the environment" if provider.example else "pass them as store= options"
        )
        return f"{what} do not belong in a URL: write {location.scheme}://{place}/key, and {instead}"
    return "" if location.bucket else f"no {place}: write {location.scheme}://{place}/key"


def key_fault(provider: Provider, key: str) -> str:
    """Say why no store of this provider holds an object of this key; empty where one may."""
    if "\0" in key:
        return "the key holds a NUL"
    try:
        size = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError:
        return "the key holds lone surrogates: it is not valid Unicode, so it has no UTF-8 form"
    if size > provider.limits.key_bytes:
        return f"the key takes {size} bytes of UTF-8; {provider.name} holds {provider.limits.key_bytes}"
    return provider.key_fault(key)
