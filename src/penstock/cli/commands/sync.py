"""``penstock sync``: makes one tree of objects equal to another."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from penstock.bulk.ledger import ledger
from penstock.bulk.sync import Run
from penstock.cli.exits import write
from penstock.cli.report import Report
from penstock.cli.text import harmless

if TYPE_CHECKING:
    from penstock.bulk.mirror import SyncOptions
    from penstock.bulk.outcome import Outcome
    from penstock.options import StoreOptions

__all__ = ["sync"]


def sync(
    urls: tuple[str, str],
    options: SyncOptions,
    store: StoreOptions | str,
    *,
    report: str | None,
    json: bool,
    processes: int | None,
) -> None:
    """Make the second of two URLs equal to the first: see ``ps.sync``. ``report`` is a file.

    Raises:
        PenstockError: One of the two is not usable as it is; nothing was done then.
        SystemExit: Something failed: the code of the worst.

    """
    run = Run(*urls, options, store)
    shown = Report("planned" if options.dry_run else "copied", as_json=json)
    with shown, ledger(report, run.mirror) as note, closing(run.outcomes(processes=processes)) as outcomes:
        for outcome in outcomes:
            note(outcome)
            shown.take(outcome)
            if outcome.status == "planned" and not json:
                write(harmless(_planned(outcome)) + "\n")
    shown.count("unchanged", run.unchanged)
    shown.end()


def _planned(outcome: Outcome) -> str:
    return f"{outcome.source} -> {outcome.dest}" if outcome.source else f"delete {outcome.dest}"
