"""What a write sends to Azure: attributes and conditions as headers, and uploads, which are names of ours."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from penstock.drivers.http.headers import is_strong
from penstock.drivers.http.metadata import write_metadata
from penstock.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.protocols.driver import Attributes, Part

__all__ = [
    "METADATA",
    "block_id",
    "block_list",
    "conditions",
    "described",
    "described_in",
    "held",
    "new_upload",
]

METADATA = "x-ms-meta-"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch  # C#'s identifiers, as far as headers hold them
_TOKEN = 24  # characters of an upload's own name, before its attributes


def new_upload(attributes: Attributes) -> str:
    """Return the id of a new upload: a random name, and the attributes, which are sent where it is completed.

    Blocks belong to the name of an object and not to an upload, so the random name goes into their ids: two writers of
    one object never take each other's.
    """
    return token_hex(_TOKEN // 2) + json.dumps(described(attributes))


def described_in(upload: str) -> dict[str, str]:
    """Return the headers that ``described`` made of an upload's attributes."""
    headers: dict[str, Any] = json.loads(upload[_TOKEN:])
    return headers


def block_id(upload: str, part: Part) -> str:
    """Return the id of a part's block, in base64.

    It has 32 characters before that, as many as the ids of Azure's SDK for Python: all ids of one object must have the
    same length, those of other tools' unfinished uploads too.
    """
    return b64encode(f"{upload[:_TOKEN]}{part.number:08}".encode()).decode()


def block_list(blocks: Sequence[str]) -> bytes:
    """Return the body of Put Block List: the blocks' ids, in order."""
    lines = "".join(f"<Latest>{block}</Latest>" for block in blocks)
    return f'<?xml version="1.0" encoding="utf-8"?><BlockList>{lines}</BlockList>'.encode()


def described(attributes: Attributes) -> dict[str, str]:
    """Return the headers for content type and user metadata; ``Unusable`` for what the service does not take."""
    names: Iterable[object] = attributes.metadata
    for name in names:
        if not (isinstance(name, str) and _NAME(name)):
            raise Unusable(f"names of metadata are letters, digits and '_' on Azure, and begin with no digit: {name!r}")
    headers = write_metadata(attributes, METADATA)
    return {"x-ms-blob-content-type": headers.pop("content-type"), **headers}


def conditions(*, create_only: bool, replaces: str) -> dict[str, str]:
    """Return the headers of a write's condition."""
    return {"if-none-match": "*"} if create_only else held("if-match", replaces)


def held(header: str, etag: str) -> dict[str, str]:
    """Return the header that holds a request to a version; none where the version cannot be sent."""
    return {header: f'"{etag}"'} if is_strong(etag) else {}
