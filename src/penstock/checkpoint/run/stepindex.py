"""The index of a run: its committed steps in one object, which spares the retention rules a look at each step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.checkpoint.integrity.manifest import fits
from penstock.checkpoint.integrity.selfdigest import MOST_VALUES, limited

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.checkpoint.integrity.manifest import Manifest

__all__ = ["MOST_BYTES", "STEP_INDEX", "StepEntry", "decode", "encode"]

STEP_INDEX = "penstock-steps.json"
MOST_BYTES = 64 << 20  # of an index: a larger one counts as none
_VERSION = 1


class StepEntry(NamedTuple):
    """What the rules must know of a committed step.

    Attributes:
        etag: Its manifest's: it tells of that version, and of no other; empty where it is not known.
        metric: As it was saved with.
        objects: Names of its data objects below its folder: what goes with it.

    """

    etag: str
    metric: float | None
    objects: tuple[str, ...]

    @classmethod
    def of(cls, manifest: Manifest | None, etag: str) -> Self:
        """Return what a manifest says of it; of a damaged one nothing is known, and it is read again next time."""
        if manifest is None:
            return cls("", None, ())
        return cls(etag, _number(manifest.content.get("metric")), tuple(manifest.objects))


def encode(entries: Mapping[int, StepEntry]) -> bytes:
    """Return the document: JSON."""
    steps = {str(step): [entry.etag, entry.metric, *entry.objects] for step, entry in sorted(entries.items())}
    return json.dumps({"penstock_steps": _VERSION, "steps": steps}, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[int, StepEntry]:
    """Read an index; nothing where it is damaged or of another version: the manifests have all of it."""
    try:
        limited(data, MOST_VALUES)
        document = json.loads(data)
        if document["penstock_steps"] != _VERSION:
            return {}
        return {int(step): _entry(*fields) for step, fields in document["steps"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _entry(etag: object, metric: object, *objects: object) -> StepEntry:
    names = tuple(name for name in objects if isinstance(name, str) and fits(name))
    if not isinstance(etag, str) or len(names) != len(objects):
        raise ValueError(objects)
    return StepEntry(etag, _number(metric), names)


def _number(metric: object) -> float | None:
    """Return a metric; None for whatever else a document holds in its place."""
    try:
        return float(metric) if isinstance(metric, int | float) else None
    except OverflowError:
        return None
