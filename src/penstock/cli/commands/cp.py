"""``penstock cp`` and ``penstock mv``: copy or move many objects between any two places, each atomically."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from penstock.cli.exits import write
from penstock.cli.report import Report
from penstock.cli.text import harmless
from penstock.errors import Unusable
from penstock.jobs.transfer import How, transfer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.options import StoreOptions

__all__ = ["How", "cp"]


def cp(urls: Sequence[str], dest: str, how: How, store: StoreOptions | str) -> None:
    """Copy or move the objects that ``urls`` name to ``dest``: see ``jobs.transfer``.

    Raises:
        PenstockError: A source or DEST is not usable as given; nothing was done.
        SystemExit: Some objects failed: the code of the worst error.

    """
    if "-" in (*urls, dest):
        raise Unusable("'-' is no file: penstock cat writes to standard output; a file of that name is ./-")
    report = Report(how.verb, as_json=how.json)
    with report, closing(transfer(urls, dest, how, store)) as outcomes:
        for outcome in outcomes:
            report.take(outcome)
            if outcome.status == "planned" and not how.json:
                write(harmless(f"{outcome.source} -> {outcome.dest}") + "\n")
    report.end()
