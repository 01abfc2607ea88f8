"""Removes one checkpoint by its URL: the object, or of a folder what a checkpoint in it is made of and no more."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.checkpoint.integrity.manifest import MANIFEST, METADATA
from penstock.errors import Unusable
from penstock.providers.protected import check_deletable
from penstock.providers.urls import parse
from penstock.source import open_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.options import StoreOptions

__all__ = ["remove", "told_apart"]

_LOG = logging.getLogger("penstock")

# What tells a folder as a checkpoint's: ours, torch's (Lightning's FSDP has it), DeepSpeed's.
_MARKS = (MANIFEST, METADATA)
_DATA = re.compile(
    r"([0-9a-f]{32}/([0-9a-f]{2}/)?)?([0-9]+\.data|__[0-9]+_[0-9]+\.distcp|state\.pt)"
    r"|__[0-9]+\.metadata|[^/]+\.distcp|checkpoint/[^/]*rank_[0-9]+[^/]*_states\.pt"
)
# And the objects of a checkpoint in a folder that is known to be one.
_BESIDE = re.compile(r"meta\.pt|latest|zero_to_fp32\.py")
_NAMED = re.compile(r"[0-9a-f]{32}/.+", re.DOTALL)  # by manifests only: others name folders so too


def told_apart(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which files of a folder, named below it, are a checkpoint's, what makes it one first, and the others."""
    kinds = (_DATA, _BESIDE, _NAMED) if MANIFEST in names else (_DATA, _BESIDE)
    if not any(name in _MARKS or _DATA.fullmatch(name) for name in names):
        return [], list(names)
    made = [name for name in names if name in _MARKS or any(kind.fullmatch(name) for kind in kinds)]
    others = sorted(set(names) - set(made))
    return sorted(made, key=lambda name: name not in _MARKS), others


def remove(url: str | os.PathLike[str], store: StoreOptions | str | None) -> None:
    """Delete a checkpoint: an object or a link, or a folder's files that are a checkpoint's; a missing one is no error.

    What makes a folder a checkpoint goes first. Other files in it stay, and a warning says so. A listing, and a
    request for each object.

    Raises:
        InvalidURL: It is a bucket's root, the working directory, the home directory, or one above them.
        Unusable: It is a folder in which there is no checkpoint.

    """
    location = parse(url)
    check_deletable(location)
    source, key = open_source(url, store)
    key = key.rstrip("/")
    path = f"/{key}" if location.local else ""
    if (path and not os.path.isdir(path)) or os.path.islink(path):  # noqa: PTH112, PTH114  pathlib changes names
        source.delete([key])
        return
    names = [each.key.removeprefix(f"{key}/") for page in source.pages(f"{key}/") for each in page.entries]
    made, others = told_apart(names)
    if others and not made and (path or source.stat_existing([key]) == [None]):
        raise Unusable(
            f"this is no checkpoint but a folder that holds {others[0]!r}: nothing was deleted", url=source.url(key)
        )
    marks = [name for name in made if name in _MARKS]
    source.delete([f"{key}/{name}" for name in marks])  # at no time is there one whose objects are not there
    source.delete([f"{key}/{name}" for name in made if name not in _MARKS])
    if path:
        _remove_empty(path)
    else:
        source.delete([key])
    if others:
        _LOG.warning(
            "%s stays: %d files in it are no checkpoint's, %r for one", source.url(key), len(others), others[0]
        )


def _remove_empty(path: str) -> None:
    """Remove a directory and those below it, as far as nothing is in them."""
    for at, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(at)  # noqa: PTH106  as above
