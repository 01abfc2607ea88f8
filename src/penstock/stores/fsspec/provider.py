"""``fsspec+X://``: the filesystems that fsspec knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from sys import maxsize
from typing import TYPE_CHECKING

from penstock.engine.contracts.driver import Abilities, Conditions, Limits
from penstock.errors import conceal
from penstock.stores.fsspec.options import FsspecOptions
from penstock.stores.provider import Opening, Provider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

__all__ = ["PROVIDER"]

_HOST = re.compile(r"[A-Za-z0-9._:~-]{0,255}").fullmatch
_NONE = Conditions(create=False, replace=False)
# Filesystems of fsspec and its best-known packages that have no provider here.
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


def _open(opening: Opening) -> tuple[Driver, Transport]:
    from penstock.engine.transport.work import Threads
    from penstock.stores.fsspec.driver import Fsspec, Instances, filesystem_class

    protocol = opening.scheme.partition("+")[2]
    filesystem_class(protocol, opening.root)
    options = dict(opening.options.storage_options or {})
    secrets = [each for each in _texts(options) if len(each) >= _LEAST_SECRET]
    conceal(*secrets)
    instances = Instances(f"{protocol}://{opening.bucket}/", options)
    driver = Fsspec(opening.root, protocol, instances, secrets)
    driver.abilities = opening.provider.abilities
    return driver, Threads()


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _host_fault(bucket: str) -> str:
    if fault := _key_fault(bucket):
        return fault
    return "" if _HOST(bucket) else "what stands before the first '/' cannot be a host or a bucket"


def _key_fault(key: str) -> str:
    return "'::' chains filesystems: pass such arguments as FsspecOptions(storage_options=…)" if "::" in key else ""


def _advice(text: str) -> str:
    scheme = text.partition("://")[0].lower()
    return f"fsspec may know it: write fsspec+{scheme}://… (pip install penstock[fsspec])" if scheme in _KNOWN else ""


PROVIDER = Provider(
    name="fsspec",
    schemes=("fsspec+*",),
    open=_open,
    bucket_fault=_host_fault,
    key_fault=_key_fault,
    limits=Limits(page_keys=maxsize),  # one call of fsspec finds everything
    abilities=Abilities(digest=None, put=_NONE, complete=_NONE, forms=("none",), form="none", forks=False),
    options=FsspecOptions,
    any_options=True,  # one end of a copy
    advice=_advice,
    example="FsspecOptions(storage_options={'username': …})",
    extra="penstock[fsspec]",
)
