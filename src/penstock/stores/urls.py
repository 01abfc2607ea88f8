"""The only parser of object URLs: text in, a location out, every byte of the key kept; and checks before deletions.

The store of a URL's scheme comes from Penstock's own table first, then from entry points of other distributions.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, InvalidURL, UnknownScheme, kind_of
from penstock.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

    from penstock.options import StoreOptions

GROUP = "penstock.providers"  # entry points: scheme -> class of a store
LOCAL = "file"  # the scheme of a bare path

# Scheme, or family (`name+*` is every `name+…`) -> module in this package, and the class in it. The module is imported
# when a URL first has this scheme.
_TABLE = {
    "s3": "s3.services:AWS",
    "oss": "oss.store:OSS",
    "r2": "s3.services:R2",
    "oci": "s3.services:OCI",
    "b2": "s3.services:B2",
    "tigris": "s3.services:Tigris",
    "t3": "s3.services:Tigris",
    "ais": "s3.services:AIStore",
    "az": "azure.store:Azure",
    "abfs": "azure.store:Azure",
    "abfss": "azure.store:Azure",
    "adl": "azure.store:Azure",
    "azure": "azure.store:Azure",
    "gs": "gcs.store:GCS",
    "gcs": "gcs.store:GCS",
    "hf": "huggingface.store:HuggingFace",
    "https": "web.store:Web",
    "http": "web.store:Web",
    "fsspec+*": "fsspec.store:Fsspec",
    "obspec": "obspec.store:Obspec",
    LOCAL: "local.driver:Local",
    "memory": "memory:Memory",
    "penstock": "profiles.store:Profiles",
    "msc": "profiles.store:MultiStorage",
}
_loaded: dict[str, Store] = {}
_instances: dict[type[Store], Store] = {}

_WINDOWS = re.compile(r"[A-Za-z]:\\|\\\\")
LOCAL_ROOT = f"{LOCAL}:///"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


@dataclass(frozen=True, slots=True)
class Location:
    """Place in a store: ``scheme``, ``bucket`` and ``key``, none of them escaped.

    An empty key is the whole bucket. On this machine's file system the bucket is empty and the key is the absolute path
    without its leading slash.

    Raises:
        UnknownScheme: No store has the scheme.
        InvalidURL: The bucket name is invalid; the key holds a NUL or lone surrogates, or is longer than the store
            allows.
        ConfigError: The store of the scheme is broken (``find_store``); the profile does not exist or is
            invalid.
    """

    scheme: str
    bucket: str
    key: str
    # The scheme's store at construction; for a profile, its store with the profile's options.
    store: Store = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        store = scheme_store(self.scheme)
        if store.profiles:
            store = store.named(self.bucket)
        object.__setattr__(self, "store", store)
        if fault := store.bucket_fault(self.bucket):
            # The error has no URL: the text in the bucket's place may be a secret.
            raise InvalidURL(_bucket_fault(self, store) or fault)
        if fault := key_fault(store, self.key):
            raise InvalidURL(fault, url=self.root)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle scheme, bucket and key only: unpickling looks up the profile again."""
        return Location, (self.scheme, self.bucket, self.key)

    @property
    def local(self) -> bool:
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
        """Return the key for a URL of the profile's own store; None for a URL outside the profile."""
        target = self.store.target
        return url[len(target) :] if target and url.startswith(target) else None

    def at(self, key: str) -> Location:
        """Return the location of another full key in the same bucket; raises ``InvalidURL`` as ``parse`` does."""
        return Location(self.scheme, self.bucket, key)


class Unmapped(str):
    """URL text exempt from ``path_mapping``: a profile's location is already the result of a mapping."""

    __slots__ = ()


def parse(url: str | os.PathLike[str]) -> Location:
    """Parse a URL, ``scheme://bucket/key``, or a bare path.

    The key is everything after the bucket's slash, taken literally: ``%``, ``?``, ``#``, ``+``, ``//`` and a trailing
    ``/`` stay. A relative path is joined to the working directory. As in ``open``, ``..`` is not resolved. ``~`` is
    refused, not expanded. Write a local name that looks like a URL as ``./name``. No request is made, and the path is
    not accessed. If ``MSC_CONFIG`` names a Multi-Storage Client file, its ``path_mapping`` applies, except to
    ``Unmapped`` text.

    Raises:
        InvalidURL: The text is empty, has no bucket, is a Windows path, has credentials or a port in the place of the
            bucket, or has a key that no store can hold.
        UnknownScheme: The scheme is unknown; the message lists the known schemes and suggests one.
    """
    text = _convert_url(url)
    # Only the variable counts: a file in a home directory must not redirect URLs.
    if os.environ.get("MSC_CONFIG") and not isinstance(text, Unmapped):
        from penstock.stores.profiles.multistorage import map_path

        text = map_path(text, os.environ)
    head, mark, rest = text.partition("://")
    if mark and "/" not in head:
        store = find_store(head)
        if store is None:
            raise _unknown(text, head)
        return Location(head, *store.split(rest))
    if text.startswith("arn:") and (advice := _suggest_url(text, "arn")):
        raise InvalidURL(f"an ARN is not a URL{advice}")
    if _is_collapsed(text):
        message = (
            f"neither a URL nor a plain path: a URL has '://' after its scheme ({_list_schemes()}) and is a str "
            "(pathlib drops a slash); a local file of such a name is written './name'"
        )
        raise InvalidURL(message)
    if text == "~" or text.startswith("~/"):
        raise InvalidURL("'~' is not expanded: pass os.path.expanduser(…), or './~' for a directory of that name")
    if _WINDOWS.match(text):
        raise InvalidURL(f"{text[:80]!r} is a path of Windows: write it with '/', or './…' for a file of such a name")
    return Location(LOCAL, "", _absolute(text).removeprefix("/"))


def is_divided(root: str) -> bool:
    """Return whether ``path_mapping`` has a separate rule for some of the URLs that begin with ``root``."""
    if not os.environ.get("MSC_CONFIG"):
        return False
    from penstock.stores.profiles.multistorage import divides

    return divides(root, os.environ)


def is_root(text: str) -> bool:
    """Return whether ``text`` is a bucket's URL, ending in ``/``; a profile need not exist. Raises like ``parse``."""
    scheme, mark, rest = text.partition("://")
    store = find_store(scheme) if mark else None
    if store is not None and store.profiles:
        return rest.endswith("/") and not store.bucket_fault(rest[:-1])
    return parse(text).root == text


def scheme_store(scheme: str) -> Store:
    store = find_store(scheme)
    if store is None:
        raise _unknown(f"{scheme}://", scheme)
    return store


def option_classes() -> list[type[StoreOptions]]:
    return list(dict.fromkeys(each.options for each in own_stores()))


def _absolute(path: str) -> str:
    # "./" and "." name the working directory itself.
    below = re.sub(r"^(\.(/+|$))+", "", path)
    return os.path.join(os.getcwd(), below)  # noqa: PTH109, PTH118  pathlib drops slashes


def _advise_on_url(given: object) -> str:
    if given is None:
        return "; is a variable of the environment unset?"
    if isinstance(given, bytes):
        return "; write str(url, 'utf-8')"
    return "; from_objects of a dataset takes a list of URLs" if isinstance(given, list | tuple) else ""


def _convert_url(url: str | os.PathLike[str]) -> str:
    text: object = os.fspath(url) if isinstance(url, os.PathLike) else url
    # A path of universal_pathlib is not a local path; its text is the URL.
    if hasattr(url, "__vfspath__"):
        text = str(url)
    if not isinstance(text, str):
        raise InvalidURL(f"a URL must be text or a path of text, got {kind_of(text)}{_advise_on_url(text)}")
    if not text:
        raise InvalidURL(f"an empty URL: write scheme://bucket/key or a path; Penstock knows {_list_schemes()}")
    return text


def _is_collapsed(text: str) -> bool:
    """Return whether pathlib collapsed a URL to ``text`` (``s3:/bucket``), which would name a local directory."""
    scheme, colon, rest = text.partition(":")
    if not colon or rest.startswith("//"):
        return False
    return scheme.lower() in loaded_schemes() or (rest.startswith("/") and _SCHEME.fullmatch(scheme) is not None)


def _unknown(text: str, scheme: str) -> InvalidURL | UnknownScheme:
    if not _SCHEME.fullmatch(scheme):
        return InvalidURL(
            "no scheme before '://': write scheme://bucket/key, or ./name for a local file of such a name"
        )
    return UnknownScheme(
        f"unknown scheme {scheme!r}: Penstock knows {_list_schemes()}{_suggest_url(text, scheme.lower())}"
    )


def _suggest_url(text: str, scheme: str) -> str:
    """Return a hint that quotes at most a host and a path: queries hold signatures, user info holds keys."""
    for each in own_stores():
        if advice := each.advice(text):
            return f"; {advice}"
    near = [known for known in get_close_matches(scheme, schemes(), cutoff=0.5) if known[0] == scheme[0]]
    return f"; did you mean {near[0]}://?" if near else ""


def _list_schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in schemes()) + " and local paths"


def _bucket_fault(location: Location, store: Store) -> str:
    """Return the fault of a bucket that every store refuses; empty if only the store's own rule is broken."""
    if location.bucket.startswith("arn:"):
        return "an ARN cannot be a bucket: write the name of the bucket, or the alias of the access point"
    ports = not store.bucket_fault("host:80")  # its buckets are hosts
    place, what = ("host", "credentials") if ports else ("bucket", "credentials and ports")
    if "@" in location.bucket or (":" in location.bucket and not ports):
        instead = f"pass {store.example} or set the environment" if store.example else "pass them as store= options"
        return f"{what} do not belong in a URL: write {location.scheme}://{place}/key, and {instead}"
    return "" if location.bucket else f"no {place}: write {location.scheme}://{place}/key"


def key_fault(store: Store, key: str) -> str:
    if "\0" in key:
        return "the key holds a NUL"
    try:
        size = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError:
        return "the key holds lone surrogates: it is not valid Unicode, so it has no UTF-8 form"
    if size > store.limits.key_bytes:
        return f"the key takes {size} bytes of UTF-8; {store.name} holds {store.limits.key_bytes}"
    return store.key_fault(key)


def check_deletable(location: Location) -> None:
    """Refuse to delete a protected location, by itself or recursively; no request is made.

    Protected are a bucket's root, a key that resolves to it (``.``, ``..``, ``a/..``) and, on this machine, the working
    directory, the home directory and every parent of either, under any name: also through links and ``..``.
    A directory that does not exist is not refused.
    """
    if _is_root(location.key):
        where = "every file of this machine" if location.local else "a whole bucket"
        raise InvalidURL(f"this is {where}: name the objects to delete in it", url=location.url)
    check_lived_in(location)


def check_lived_in(location: Location) -> None:
    """Refuse the working and home directories and their parents, under any name; allow other roots."""
    target = location.store.target
    if not (location.local or target.startswith(LOCAL_ROOT)):
        return
    folder = target.removeprefix(LOCAL_ROOT)  # of a profile
    try:
        found = os.stat(f"/{folder}{location.key}")  # noqa: PTH116  pathlib changes names
    except (OSError, ValueError):
        return
    for what, directory in _lived_in():
        if os.path.samestat(found, directory):
            message = f"this is {what}, or a directory above it: name the objects to delete below it"
            raise InvalidURL(message, url=location.url)


def _is_root(key: str) -> bool:
    depth = 0
    for part in key.split("/"):
        if part == "..":
            depth = max(depth - 1, 0)
        elif part not in ("", "."):
            depth += 1
    return depth == 0


def _lived_in() -> Iterator[tuple[str, os.stat_result]]:
    """Yield a label and the status of the working directory, of the home directory and of each parent."""
    for what, path in (("the working directory", "."), ("the home directory", "~")):
        with suppress(OSError, RuntimeError):  # deleted working directory, no home
            place = Path(path).expanduser().resolve()
            for directory in (place, *place.parents):
                yield what, directory.stat()


# -- stores by scheme ------------------------------------------------------------------------------------------------


def find_store(scheme: str) -> Store | None:
    """Return the store of a scheme; None for an unknown scheme; ``ConfigError`` for a broken or ambiguous one.

    The entry points of installed distributions are read only for a scheme that Penstock itself does not have.
    """
    names = (scheme, family) if (family := _family(scheme)) else (scheme,)
    for look in (_loaded.get, _own, _find_installed_store):
        for name in names:
            if (found := look(name)) is not None:
                return _loaded.setdefault(name, found)
    return None


def own_stores() -> list[Store]:
    """Return Penstock's own stores, each once; S3 last."""
    return [_import_store(scheme) for scheme in {file: scheme for scheme, file in reversed(_TABLE.items())}.values()]


def loaded_schemes() -> list[str]:
    """Return the schemes that are known without reading installed entry points."""
    return list(dict.fromkeys((*_TABLE, *_loaded)))


def schemes() -> list[str]:
    """Return all schemes: Penstock's own, and those of other distributions, without importing them."""
    return list(dict.fromkeys((*loaded_schemes(), *sorted(each.name for each in _entries()))))


def _family(scheme: str) -> str:
    """Return the family that a scheme may belong to, ``name+*``; empty for a scheme without a family."""
    head, mark, rest = scheme.partition("+")
    return f"{head}+*" if mark and rest and rest != "*" else ""


def _own(scheme: str) -> Store | None:
    return _import_store(scheme) if scheme in _TABLE else None


def _import_store(scheme: str) -> Store:
    file, _, name = _TABLE[scheme].partition(":")
    return _get_instance(getattr(import_module(f"{__package__}.{file}"), name))


def _get_instance(kind: type[Store]) -> Store:
    return _instances.get(kind) or _instances.setdefault(kind, kind())


def _entries() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return list(entry_points(group=GROUP))


def _find_installed_store(scheme: str) -> Store | None:
    offers = {}
    for each in _entries():
        if each.name == scheme:
            by = f"the distribution {each.dist.name!r}" if each.dist is not None else "an unnamed distribution"
            offers[f"{each.value!r} of {by}"] = each
    if len(offers) > 1:
        raise ConfigError(f"{scheme}:// has two providers, {' and by '.join(sorted(offers))}: uninstall one of them")
    for offer, entry in offers.items():
        return _load_store(scheme, offer, entry)
    return None


def _load_store(scheme: str, offer: str, entry: EntryPoint) -> Store:
    where = f"the provider of {scheme}://, {offer},"
    try:
        kind: object = entry.load()
    except Exception as error:
        words = f"{where} cannot be imported: {type(error).__name__}: {error}; upgrade or uninstall that distribution"
        raise ConfigError(words) from error
    if not (isinstance(kind, type) and issubclass(kind, Store)):
        found = f"the class {kind.__name__}" if isinstance(kind, type) else kind_of(kind)
        raise ConfigError(f"{where} must be a class derived from penstock.stores.store.Store, got {found}")
    if scheme not in kind.schemes:
        raise ConfigError(f"{where} declares the schemes {', '.join(kind.schemes)}: add an entry point for each")
    return _get_instance(kind)
