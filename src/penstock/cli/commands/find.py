"""``penstock find``: objects by name, size and age."""

from __future__ import annotations

from typing import TYPE_CHECKING

import penstock as ps
from penstock.cli.commands.ls import as_json, as_long, as_url, nothing
from penstock.cli.exits import write
from penstock.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jobs.find import FindKeywords
    from penstock.options import StoreOptions
    from penstock.values import ObjectMeta

__all__ = ["as_json", "as_long", "as_url", "find"]


def find(url: str, wanted: FindKeywords, line: Callable[[str, ObjectMeta], str], store: StoreOptions | str) -> None:
    """Print a line for each matching object as soon as it is found.

    Raises:
        NotFound: No object matches.
        PenstockError: Errors of ``ps.find``.

    """
    found = False
    for meta in ps.find(url, store=store, **wanted):
        write(line(meta.url, meta) + "\n")
        found = True
    if not found:
        if any(value for name, value in wanted.items() if name != "kind"):
            raise NotFound("no object there has the name, size and age that are asked for", url=url)
        raise nothing(url)
