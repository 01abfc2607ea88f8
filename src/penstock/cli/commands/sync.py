"""``penstock sync``: make one tree of objects equal to another."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from penstock.cli.exits import write
from penstock.cli.report import Report
from penstock.cli.text import harmless
from penstock.jobs.outcome import ledger
from penstock.jobs.sync import Run

if TYPE_CHECKING:
    from penstock.jobs.mirror import SyncOptions
    from penstock.jobs.outcome import Outcome
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
    """Make the tree at the second URL equal to the first: see ``ps.sync``. ``report`` is the path of a file.

    Raises:
        PenstockError: One of the two URLs is not usable as given; nothing was done.
        SystemExit: Some objects failed: the code of the worst error.

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
