"""Checkpoint manifests and object names: encode, decode and validate. Pure.

Each manifest is a JSON document that contains its own digest: any flipped bit is detected, any JSON reader can read it.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import xxhash

from penstock.checkpoint.integrity.checksummed import BLOCK_BYTES, DIGEST_BYTES, BlockChecksums
from penstock.errors import CheckpointError, Unusable
from penstock.values import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.values import ObjectMeta


__all__ = [
    "BLANK",
    "MANIFEST",
    "METADATA",
    "MOST_BYTES",
    "MOST_VALUES",
    "Manifest",
    "document",
    "elements",
    "fits",
    "limited",
    "span",
    "step_name",
    "step_of",
    "stored_digest",
    "with_digest",
]

MANIFEST = "checkpoint.json"
METADATA = ".metadata"  # torch's own layout has this file instead
MOST_BYTES = 256 << 20  # of a manifest, or of torch's metadata: digests of 24 TB
_MOST_VALUES = 1 << 24  # in a manifest: a million chunks of tensors
_VERSION = 1
_STEP = re.compile(r"[0-9]{1,18}")
# Listings are in byte order: leading zeros make that the order of steps.
_STEP_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Manifest:
    """The document that commits a set of objects as a checkpoint: written last, in one request, and read first.

    Attributes:
        save: Id of the save that wrote it, 32 hex digits. Object names contain it, so two saves never collide.
        kind: The kind of checkpoint, which selects its reader: ``state``, ``dcp``, …
        objects: Each object's checksums, by its name below the checkpoint's URL.
        content: JSON data specific to ``kind``.

    """

    save: str
    kind: str
    objects: dict[str, BlockChecksums]
    content: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the manifest as JSON with sorted keys and no spaces.

        The last key is a digest of all bytes before it, followed by ``}``.

        Raises:
            Unusable: The document is larger than a reader accepts.

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
        """Return the manifest that a document holds; another program may have written the document.

        Raises:
            CheckpointError: The document is damaged, or has a newer format version.

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
            # The error's repr would quote the whole document if it is not UTF-8.
            shown = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"this is no manifest of a checkpoint: {shown:.200}", url=url) from None
        if manifest.encode() != data:
            raise CheckpointError("the manifest is not what Penstock would write", url=url)
        return manifest


def span(meta: ObjectMeta) -> Span:
    """Return the span to read of a manifest: the whole object, or one byte more than ``decode`` accepts."""
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
    """Return the number of elements of a shape.

    Return None if the product of its nonzero dimensions needs more than 63 bits.
    """
    count = 1
    # Not math.prod: a file may hold a million numbers, whose product takes hours.
    for each in filter(None, shape):
        count *= each
        if count >> 63:
            return None
    return count if all(shape) else 0


def fits(name: str) -> bool:
    """Return whether ``name`` is a valid data object name.

    A valid name is a relative path in UTF-8 without NUL, ``.``, ``..`` or empty parts.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def step_name(step: int) -> str:
    """Return the folder name of a step."""
    return f"{step:0{_STEP_DIGITS}d}"


def step_of(folder: str) -> int | None:
    """Return the step of a folder name, or None if the name is not a step folder's."""
    return int(folder) if _STEP.fullmatch(folder) and step_name(int(folder)) == folder else None


BLANK = "0" * 16
# Of a header or an index: 400,000 tensors, parsed in 0.4 GB of memory.
MOST_VALUES = 1 << 22
_BEFORE_VALUES = (b"{", b"[", b",")


def with_digest(raw: bytes, key: str) -> tuple[bytes, str]:
    """Replace the ``BLANK`` under ``key`` by the XXH3 of ``raw``; return the result and the digest."""
    digest = xxhash.xxh3_64_hexdigest(raw)
    return _filled(raw, key, digest), digest


def stored_digest(raw: bytes, key: str, beside: bytes) -> str:
    """Return the digest stored in ``raw`` under ``key``; empty if ``raw`` contains neither a digest nor ``beside``.

    Penstock writes both, so a single flipped bit cannot make its text look like one that never had a digest.

    Raises:
        ValueError: ``raw`` is not what ``with_digest`` returned.

    """
    found = _pattern(key).findall(raw)
    if not found and beside not in raw:
        return ""
    if len(found) != 1 or with_digest(_filled(raw, key, BLANK), key)[0] != raw:
        raise ValueError("it is not as Penstock wrote it (or another program copied its metadata to another file)")
    return str(found[0][1].decode())


def document(raw: bytes) -> Any:  # noqa: ANN401  any JSON
    """Parse JSON in UTF-8.

    Raise ``ValueError`` for invalid JSON, a repeated name or more than ``MOST_VALUES`` values. Raise
    ``RecursionError`` if it is nested too deep.
    """
    limited(raw, MOST_VALUES)
    return json.loads(raw.decode(), object_pairs_hook=_unique)


def limited(raw: bytes, most: int) -> None:
    """Raise ``ValueError`` if JSON may hold more than ``most`` values; each takes 60 bytes of memory or more."""
    if sum(map(raw.count, _BEFORE_VALUES)) > most:
        raise ValueError(f"it has more than {most:,} values")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r:.80} comes twice")
        found[name] = value
    return found


def _filled(raw: bytes, key: str, digest: str) -> bytes:
    return _pattern(key).sub(rb"\g<1>%b\3" % digest.encode(), raw)


def _pattern(key: str) -> re.Pattern[bytes]:
    return re.compile(rb'("%b": ?")([0-9a-f]{16})(")' % re.escape(key).encode())
