"""How long a signed address lives: no longer than was asked for, than its store takes, and than its credentials."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import Unusable

if TYPE_CHECKING:
    from penstock.protocols.credentials import Renewable

__all__ = ["WEEK_S", "Lifetime", "lifetime"]

WEEK_S = 7 * 86_400  # most that signatures of version 4 last: of AWS, of Google, and of OSS
_USUAL_S = 3600


class Lifetime(NamedTuple):
    """How long an address lives, in whole seconds, and what may end it sooner."""

    seconds: int
    note: str


def lifetime(asked_s: float | None, most_s: int, credentials: Renewable, now: float) -> Lifetime:
    """Return how long an address lives that is signed with ``credentials`` at ``now``.

    None asks for an hour, or less where there is less.

    Raises:
        Unusable: No positive number of seconds; more than ``most_s``; more than the credentials live.

    """
    left_s = math.inf if credentials.expires_at is None else credentials.expires_at - now
    seconds = int(min(_USUAL_S, most_s, left_s)) if asked_s is None else _whole(asked_s)
    if seconds > most_s:
        raise Unusable(f"an address lives at most {most_s:,} seconds here, not {seconds:,}")
    if seconds > left_s or seconds < 1:
        raise Unusable(
            f"the credentials expire in {max(0, left_s):,.0f} seconds, and no address outlives them: ask for less, or "
            "use keys that last"
        )
    unknown = bool(credentials.token) and credentials.expires_at is None
    note = "signed with a session token: the address ends with it, at a time that is not known here" if unknown else ""
    return Lifetime(seconds, note)


def _whole(asked: Any) -> int:  # noqa: ANN401  whatever the caller passed
    usable = isinstance(asked, int | float) and not isinstance(asked, bool) and math.isfinite(asked)
    if not usable or asked < 1:
        raise Unusable(f"expires_s is a number of seconds, at least 1, not {asked!r}")
    return int(asked)
