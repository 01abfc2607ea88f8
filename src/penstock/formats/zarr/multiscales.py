"""OME-Zarr's metadata of images: how a group's attributes name the dimensions of its arrays. Untrusted; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Image", "image_of"]

# https://ngff.openmicroscopy.org/0.2/#multiscale-md: before version 0.3 there was one order, and no field for it.
_AXES = ["t", "c", "z", "y", "x"]
_WITHOUT_AXES = ("", "0.1", "0.2")


class Image(NamedTuple):
    """An image at several resolutions.

    Attributes:
        axes: Names of the dimensions, the same for all levels.
        paths: Of the levels' arrays below the group; the first has the most pixels.

    """

    axes: tuple[str, ...]
    paths: tuple[str, ...]


def image_of(attributes: Mapping[str, Any]) -> Image | None:
    """Return the image that a group's attributes describe, by OME-Zarr 0.1 to 0.5; of several the first.

    None where they describe none, or not as the specification has it: other programs may use these names, too.
    """
    within = attributes.get("ome")  # since 0.5
    several = (within if isinstance(within, Mapping) else attributes).get("multiscales")
    first = several[0] if isinstance(several, list) and several else None
    if not isinstance(first, Mapping):
        return None
    earliest = within is None and str(first.get("version", "")) in _WITHOUT_AXES
    axes, paths = _names(first.get("axes", _AXES if earliest else None)), _paths(first.get("datasets"))
    return Image(axes, paths) if axes and paths else None


def _names(axes: object) -> tuple[str, ...]:
    if not isinstance(axes, list):
        return ()
    named = [axis.get("name") if isinstance(axis, Mapping) else axis for axis in axes]  # 0.3 has the names alone
    names = tuple(name for name in named if isinstance(name, str) and name)
    return names if len({*names}) == len(axes) else ()


def _paths(levels: object) -> tuple[str, ...]:
    if not isinstance(levels, list):
        return ()
    paths = [level.get("path") if isinstance(level, Mapping) else None for level in levels]
    found = tuple(path.strip("/") for path in paths if isinstance(path, str))
    within = all(part.strip(".") for path in found for part in path.split("/"))  # neither empty nor ".."
    return found if within and len(found) == len(levels) else ()
