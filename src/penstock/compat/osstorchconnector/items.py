"""What a dataset yields: an object's bytes as a file with key, size and label; and a parser of manifests."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from penstock.datasets.sample import Sample

__all__ = ["DataObject", "Transform", "identity", "imagenet_manifest_parser"]


class DataObject(io.BytesIO):
    """An object, whole and verified, as a file in memory. It pickles, so it crosses a worker's queue.

    Attributes:
        key: ``/bucket/key``.
        size: Bytes.
        label: What the manifest says; "" without one.

    """

    def __init__(self, key: str = "", data: bytes = b"", label: object = "") -> None:
        """Wrap the bytes, without a copy."""
        super().__init__(data)
        self.key = key
        self.size = len(data)
        self.label = label

    def copy(self) -> DataObject:
        """Return another file of the same bytes, at its start."""
        return DataObject(self.key, self.getvalue(), self.label)


def identity(item: DataObject) -> DataObject:
    """Return the item."""
    return item


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform of the connector's items as one of Penstock's samples."""

    function: Callable[[DataObject], Any]

    def __call__(self, sample: Sample) -> Any:  # noqa: ANN401  whatever the transform returns
        """Wrap a sample and transform it."""
        scheme, _, rest = sample.url.partition("://")
        key = f"/{rest.removeprefix('/')}" if scheme == "file" else f"/{rest}"
        return self.function(DataObject(key, sample.read(), "" if sample.label is None else sample.label))


def imagenet_manifest_parser(reader: BinaryIO) -> Iterator[tuple[str, str]]:
    """Yield key and label of each line, which a tab separates; "" where a line has no label. Blank lines are skipped.

    The connector's own parser; yours takes the same file and yields the same pairs.
    """
    for line in reader.read().decode().split("\n"):
        if text := line.strip():
            key, _, rest = text.partition("\t")
            yield key, rest.partition("\t")[0]
