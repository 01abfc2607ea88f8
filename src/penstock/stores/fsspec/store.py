"""``fsspec+X://``: the filesystems that fsspec knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from operator import itemgetter
from sys import maxsize
from typing import TYPE_CHECKING, Any

from penstock.engine.contracts.driver import Abilities, Conditions, Limits
from penstock.errors import conceal
from penstock.stores.fsspec.options import FsspecOptions
from penstock.stores.store import Opening, Store

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

_HOST = re.compile(r"[A-Za-z0-9._:~-]{0,255}").fullmatch
_NONE = Conditions(create=False, replace=False)
# Filesystems of fsspec and its best-known packages that have no store here.
_KNOWN = (
    "ftp",
    "sftp",
    "ssh",
    "hdfs",
    "webhdfs",
    "smb",
    "dropbox",
    "gdrive",
    "hf",
    "github",
    "webdav",
    "lakefs",
    "box",
)
_LEAST_SECRET = 8  # characters, as in ``errors.conceal``
# Arguments that only prove who reads, and may be renewed; all others may decide which files are read.
_PROOF = re.compile(r"passw|passphrase|secret|token|credential|(^|_)key$", re.IGNORECASE).search


class Fsspec(Store):
    """``fsspec+X://``: the filesystem that fsspec knows as ``X``."""

    name = "fsspec"
    schemes = ("fsspec+*",)
    limits = Limits(page_keys=maxsize)  # one call of fsspec finds everything
    abilities = Abilities(digest=None, put=_NONE, complete=_NONE, forms=("none",), form="none", forks=False)
    options = FsspecOptions
    any_options = True  # one end of a copy
    example = "FsspecOptions(storage_options={'username': …})"
    extra = "penstock[fsspec]"

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        from penstock.engine.transport.work import Threads
        from penstock.stores.fsspec.driver import FsspecDriver, Instances, filesystem_class

        protocol = opening.scheme.partition("+")[2]
        filesystem_class(protocol, opening.root)
        options = dict(opening.options.storage_options or {})
        secrets = find_texts(options)
        conceal(*secrets)
        instances = Instances(f"{protocol}://{opening.bucket}/", options)
        driver = FsspecDriver(opening.root, protocol, instances, secrets)
        driver.abilities = self.abilities
        return driver, Threads()

    def resolve(self, options: FsspecOptions, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:  # noqa: ARG002
        """Return a digest of the arguments that locate the files, without secrets, and no identity.

        One URL names other files with other arguments: another host, repository or folder. A cache or a copy that knew
        the URL alone would take two filesystems for one.
        """
        located = sort_arguments(options.storage_options or {})
        return sha256(repr(located).encode("utf-8", "surrogatepass")).hexdigest() if located else None, None

    def bucket_fault(self, bucket: str) -> str:
        if fault := self.key_fault(bucket):
            return fault
        return "" if _HOST(bucket) else "the text before the first '/' cannot be a host or a bucket"

    def key_fault(self, key: str) -> str:
        fault = "'::' chains filesystems: pass such arguments as FsspecOptions(storage_options=…)"
        return fault if "::" in key else ""

    def advice(self, text: str) -> str:
        scheme = text.partition("://")[0].lower()
        hint = f"fsspec may know it: write fsspec+{scheme}://… (pip install penstock[fsspec])"
        return hint if scheme in _KNOWN else ""


def sort_arguments(arguments: Any) -> Any:  # noqa: ANN401  of any library
    """Return the arguments that may decide which files are read, sorted, also in nested mappings and sequences."""
    if isinstance(arguments, list | tuple):
        return [sort_arguments(each) for each in arguments]
    if not isinstance(arguments, Mapping):
        return arguments
    named = sorted([(str(name), each) for name, each in arguments.items() if not _PROOF(str(name))], key=itemgetter(0))
    return [(name, sort_arguments(each)) for name, each in named]


def find_texts(arguments: Mapping[str, Any], *, secret: bool = False) -> list[str]:
    """Return the texts among the arguments that messages must not quote; with ``secret`` only those of secret names."""
    chosen = {name: each for name, each in arguments.items() if not secret or _PROOF(str(name))}
    return [each for each in _texts(chosen) if len(each) >= _LEAST_SECRET]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
