"""The step index of a run: its committed steps in one object, which saves retention a request for each step."""

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
MOST_BYTES = 64 << 20  # larger indexes are ignored
_VERSION = 1


class StepEntry(NamedTuple):
    """The data that retention needs about a committed step.

    Attributes:
        etag: ETag of the manifest version that this entry describes; empty if unknown.
        metric: The metric that the step was saved with.
        objects: Names of its data objects, relative to its folder, which are deleted with it.

    """

    etag: str
    metric: float | None
    objects: tuple[str, ...]

    @classmethod
    def of(cls, manifest: Manifest | None, etag: str) -> Self:
        """Return a manifest's entry; a damaged manifest (None) gives an empty one, so it is read again next time."""
        if manifest is None:
            return cls("", None, ())
        return cls(etag, _number(manifest.content.get("metric")), tuple(manifest.objects))


def encode(entries: Mapping[int, StepEntry]) -> bytes:
    """Return the index as JSON."""
    steps = {str(step): [entry.etag, entry.metric, *entry.objects] for step, entry in sorted(entries.items())}
    return json.dumps({"penstock_steps": _VERSION, "steps": steps}, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[int, StepEntry]:
    """Return the index's entries; empty if it is damaged or of another version, as manifests contain the same data."""
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
    """Return a metric as a float; None for any other value."""
    try:
        return float(metric) if isinstance(metric, int | float) else None
    except OverflowError:
        return None
