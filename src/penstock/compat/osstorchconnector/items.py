"""Items of a dataset (an object's bytes as a file with key, size and label), and a manifest parser."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from penstock.data.datasets.sample import Sample

__all__ = ["DataObject", "Transform", "identity", "imagenet_manifest_parser"]


class DataObject(io.BytesIO):
    """Complete, verified object as an in-memory file. It can be pickled for the queue of a worker.

    Attributes:
        key: ``/bucket/key``.
        size: Bytes.
        label: Label in the manifest; "" without one.

    """

    def __init__(self, key: str = "", data: bytes = b"", label: object = "") -> None:
        """Wrap the bytes, without a copy."""
        super().__init__(data)
        self.key = key
        self.size = len(data)
        self.label = label

    def copy(self) -> DataObject:
        """Return a new file with the same bytes, at position 0."""
        return DataObject(self.key, self.getvalue(), self.label)


def identity(item: DataObject) -> DataObject:
    """Return the item unchanged."""
    return item


@dataclass(frozen=True, slots=True)
class Transform:
    """Transform of Penstock's samples that calls a transform of the connector's items."""

    function: Callable[[DataObject], Any]

    def __call__(self, sample: Sample) -> Any:  # noqa: ANN401  the transform's result
        """Wrap a sample as a ``DataObject``, and return the transform's result."""
        scheme, _, rest = sample.url.partition("://")
        key = f"/{rest.removeprefix('/')}" if scheme == "file" else f"/{rest}"
        return self.function(DataObject(key, sample.read(), "" if sample.label is None else sample.label))


def imagenet_manifest_parser(reader: BinaryIO) -> Iterator[tuple[str, str]]:
    """Yield key and label of each line, separated by a tab; "" for a missing label. Blank lines are skipped.

    This is the connector's own parser; a custom parser takes the same file and yields such pairs.
    """
    for line in reader.read().decode().split("\n"):
        if text := line.strip():
            key, _, rest = text.partition("\t")
            yield key, rest.partition("\t")[0]
