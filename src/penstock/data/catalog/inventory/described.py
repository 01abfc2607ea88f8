"""Manifests of inventories: the bucket, the inventory's files, and their format."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from penstock.errors import ManifestError, Unusable

__all__ = ["Inventory", "Part", "described"]

_FORMS = {"csv": "csv", "parquet": "parquet"}
_MD5 = re.compile(r"[0-9a-fA-F]{32}").fullmatch


@dataclass(frozen=True, slots=True)
class Part:
    """A file of an inventory.

    Attributes:
        name: Key of the file; without a ``/``, the file is beside the manifest.
        size: Bytes; -1 if the manifest does not give it.
        md5: MD5 in hexadecimal, lower case; empty if the manifest does not give it.

    """

    name: str
    size: int = -1
    md5: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """An inventory of one bucket.

    Attributes:
        bucket: The bucket whose objects are listed.
        form: Format of the files: ``csv`` or ``parquet``.
        parts: The files of the inventory.
        columns: The columns of CSV in order, lower case; () if each file begins with a header.
        delimiter: Separator between cells of CSV.
        escaped: Whether keys in CSV are escaped as in URLs.
        rows: Rows of all files together; -1 if the manifest does not give it.

    """

    bucket: str
    form: str
    parts: tuple[Part, ...]
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    escaped: bool = False
    rows: int = -1


def described(data: bytes, name: str) -> Inventory:
    """Read a manifest: Amazon's ``manifest.json``, or Google's ``…_manifest.json`` of Storage Insights.

    Raises:
        ManifestError: The data is neither.
        Unusable: The format of the inventory is not supported (ORC).

    """
    try:
        found = json.loads(data)
        if not isinstance(found, dict):
            raise TypeError("no object")
        inventory = _google(found) if "report_shards_file_names" in found else _amazon(found)
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError) as error:
        message = f"not the manifest of an inventory ({error!r}): name S3's manifest.json, or Google's _manifest.json"
        raise ManifestError(message, url=name) from error
    if not inventory.form:
        raise Unusable("this inventory is ORC, which is not read: have it written as Parquet or CSV", url=name)
    return inventory


def _amazon(found: dict[str, Any]) -> Inventory:
    """Parse a manifest as described in the Amazon S3 user guide under "Inventory manifest"."""
    form = _text(found["fileFormat"]).lower()
    if form not in _FORMS and form != "orc":
        raise ValueError(f"files of the form {form!r}")
    schema = _text(found["fileSchema"])
    columns = tuple(each.strip().lower() for each in schema.split(",")) if form == "csv" else ()
    parts = []
    for each in found["files"]:
        md5 = _text(each["MD5checksum"])
        if not _MD5(md5):
            raise ValueError(f"an MD5 {md5[:40]!r}")
        parts.append(Part(_text(each["key"]), _whole(each["size"]), md5.lower()))
    return Inventory(_text(found["sourceBucket"]), _FORMS.get(form, ""), tuple(parts), columns, escaped=True)


def _google(found: dict[str, Any]) -> Inventory:
    """Parse a manifest as described in Google's guide "View an inventory report"."""
    config = found["report_config"]
    options = config["object_metadata_report_options"]
    names = tuple(_text(each) for each in found["report_shards_file_names"])
    if _whole(found["shard_count"]) != len(names):
        raise ValueError(f"{len(names)} files of {found['shard_count']}")
    bucket = _text(options["storage_filters"]["bucket"])
    parts = tuple(map(Part, names))
    rows = _whole(found["records_processed"]) if "records_processed" in found else -1
    if "parquet_options" in config:
        return Inventory(bucket, "parquet", parts, rows=rows)
    told = config["csv_options"]
    columns = () if told.get("header_required") else tuple(_text(each).lower() for each in options["metadata_fields"])
    return Inventory(bucket, "csv", parts, columns, _text(told.get("delimiter") or ","), rows=rows)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: object) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value
