"""``penstock doctor``: step-by-step examination of a store, with remedies."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.doctor import examine
from penstock.cli.exits import CODES, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cli.doctor import Finding
    from penstock.options import StoreOptions

__all__ = ["as_json", "as_text", "doctor"]

_SIGNS = {"passed": "✓", "failed": "✗", "warned": "!", "skipped": "-"}


def doctor(url: str, shown: Callable[[Finding], str], store: StoreOptions | str, *, read_only: bool) -> None:
    """Print each finding as soon as it is available; exit with the code of the first failure."""
    code = 0
    for finding in examine(url, store, read_only=read_only):
        write(shown(finding))
        if finding.outcome == "failed" and not code:
            code = next((number for kind, number in CODES.items() if isinstance(finding.error, kind)), 1)
    if code:
        raise SystemExit(code)


def as_text(finding: Finding) -> str:
    """Return a readable line: a sign, the step, milliseconds, and the detail."""
    return f"{_SIGNS[finding.outcome]} {finding.name:<25} {finding.elapsed_s * 1000:>6,.0f} ms  {finding.detail}\n"


def as_json(finding: Finding) -> str:
    """Return a JSON object on one line."""
    record = asdict(finding)
    del record["error"]
    return json.dumps(record) + "\n"
