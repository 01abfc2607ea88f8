"""Names of the connector that Penstock does not implement: each raises ``Unsupported`` and names an alternative."""

from __future__ import annotations

from typing import NoReturn

from penstock.errors import Unsupported

__all__ = ["TAR", "OssClient", "generate_tar_archive", "new_data_object"]

TAR = "read single objects by from_prefix, or the archive with ps.open and tarfile"


def _refuse(name: str, instead: str) -> NoReturn:
    raise Unsupported(f"{name} is not a part of penstock.compat.osstorchconnector: {instead}")


class OssClient:
    """The connector's internal client, not implemented; use Penstock's functions."""

    def __init__(self, *_args: object, **_options: object) -> None:
        """Raise ``Unsupported``."""
        _refuse("OssClient", "use ps.open, ps.list, ps.stat, ps.copy and ps.delete with store=ps.OSSOptions(…)")


def new_data_object(*_args: object, **_options: object) -> NoReturn:
    """Raise ``Unsupported``: datasets create their items themselves."""
    _refuse("new_data_object", "make a DataObject(key, data, label)")


def generate_tar_archive(*_args: object, **_options: object) -> NoReturn:
    """Raise ``Unsupported``: the index of an archive is the connector's own format."""
    _refuse("generate_tar_archive", TAR)
