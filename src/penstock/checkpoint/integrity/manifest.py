"""What a checkpoint is made of: its names, and the manifest that says that it is whole. Pure."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import xxhash

from penstock.checkpoint.integrity.checksums import BLOCK_BYTES, DIGEST_BYTES, BlockChecksums
from penstock.checkpoint.integrity.selfdigest import limited
from penstock.errors import CheckpointError, Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.values import ObjectMeta

__all__ = [
    "MANIFEST",
    "METADATA",
    "MOST_BYTES",
    "Manifest",
    "elements",
    "fits",
    "span",
    "step_name",
    "step_of",
]

MANIFEST = "checkpoint.json"
METADATA = ".metadata"  # what torch's own layout has in its place
MOST_BYTES = 256 << 20  # of a manifest, or of torch's metadata: the digests of 24 TB
_MOST_VALUES = 1 << 24  # in a manifest: a million chunks of tensors
_VERSION = 1
_STEP = re.compile(r"[0-9]{1,18}")
_STEP_DIGITS = 12  # listings are in order of bytes: zeros in front make that the order of steps


@dataclass(frozen=True, slots=True)
class Manifest:
    """What makes a checkpoint of some objects: it is written last, in one request, and who reads begins with it.

    Attributes:
        save: The id of the save that wrote it, 32 hex digits; its objects are named by it, so no two saves meet.
        kind: Who can read it: ``state``, ``dcp``, …
        objects: Each object's checksums, by its name below the checkpoint's URL.
        content: What ``kind`` needs besides: JSON.

    """

    save: str
    kind: str
    objects: dict[str, BlockChecksums]
    content: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the document: JSON with sorted keys, no spaces, and last a digest of all before it (then ``}``).

        Raises:
            Unusable: It is larger than a reader accepts.

        """
        body = json.dumps(
            {
                "penstock_checkpoint": _VERSION,
                "save": self.save,
                "kind": self.kind,
                "block_bytes": BLOCK_BYTES,
                "digest": "xxh3_64",
                "objects": {
                    name: {"size": checksums.size, "digests": base64.b64encode(checksums.digests).decode()}
                    for name, checksums in self.objects.items()
                },
                "content": self.content,
            },
            sort_keys=True,
            separators=(",", ":"),
        ).encode()
        try:
            _bounded(body)
        except ValueError as error:
            raise Unusable(f"a manifest cannot say as much: {error}") from None
        return body[:-1] + _ending(body[:-1])

    @classmethod
    def decode(cls, data: bytes, url: str) -> Manifest:
        """Read a document that another program may have written.

        Raises:
            CheckpointError: It is damaged, or of a newer version.

        """
        try:
            _bounded(data)
            document = json.loads(data)
            version = document["penstock_checkpoint"]
            if not data.endswith(_ending(data[: -len(_ending(b""))])):
                raise CheckpointError("the manifest is damaged: it is not as it was written", url=url)
            if type(version) is int and version > _VERSION:
                raise CheckpointError(f"written by a newer Penstock (format {version}): update to read it", url=url)
            objects = {name: _block_checksums(name, each) for name, each in document["objects"].items()}
            manifest = cls(_text(document["save"]), _text(document["kind"]), objects, dict(document["content"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            shown = f"{type(error).__name__}: {error}"  # its repr would quote all of a document that is not UTF-8
            raise CheckpointError(f"this is no manifest of a checkpoint: {shown:.200}", url=url) from None
        if manifest.encode() != data:
            raise CheckpointError("the manifest is not what Penstock would write", url=url)
        return manifest


def span(meta: ObjectMeta) -> Span:
    """Return what to read of a manifest: all of it, or more than ``decode`` takes."""
    return Span(meta.key, 0, min(meta.size, MOST_BYTES + 1), meta.etag, whole=meta.size <= MOST_BYTES)


def _bounded(data: bytes) -> None:
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    limited(data, _MOST_VALUES)


def _ending(body: bytes) -> bytes:
    return b',"seal":"%s"}' % xxhash.xxh3_64_hexdigest(body).encode()


def _block_checksums(name: str, described: dict[str, Any]) -> BlockChecksums:
    size, digests = described["size"], base64.b64decode(described["digests"], validate=True)
    blocks = -(-size // BLOCK_BYTES) if type(size) is int and size >= 0 else -1
    if not fits(name) or len(digests) != blocks * DIGEST_BYTES:
        message = f"object {name!r} of {size!r} bytes with {len(digests)} bytes of digests"
        raise ValueError(message)
    return BlockChecksums(size, digests)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def elements(shape: Sequence[int]) -> int | None:
    """Return how many elements a shape has; None: more than 63 bits can count, where all of its zeros were ones."""
    count = 1
    for each in filter(None, shape):  # not their product: a file may hold a million numbers, whose product takes hours
        count *= each
        if count >> 63:
            return None
    return count if all(shape) else 0


def fits(name: str) -> bool:
    """Say whether a data object may be named so: a relative path of UTF-8 without NUL, ``.``, ``..`` or empty parts."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def step_name(step: int) -> str:
    """Return a step's folder."""
    return f"{step:0{_STEP_DIGITS}d}"


def step_of(folder: str) -> int | None:
    """Return which step a folder's name says; None: it is no step's."""
    return int(folder) if _STEP.fullmatch(folder) and step_name(int(folder)) == folder else None
