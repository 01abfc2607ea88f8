"""Lifetime of a signed URL: limited by the caller's wish, by the store's maximum and by its credentials."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import Unusable

if TYPE_CHECKING:
    from penstock.engine.contracts.credentials import Renewable

__all__ = ["WEEK_S", "Lifetime", "lifetime"]

# Maximum lifetime of version 4 signatures: of AWS, of Google, and of OSS.
WEEK_S = 7 * 86_400
_USUAL_S = 3600


class Lifetime(NamedTuple):
    """Lifetime of a signed URL, in whole seconds, and a note on what may end it sooner."""

    seconds: int
    note: str


def lifetime(asked_s: float | None, most_s: int, credentials: Renewable, now: float) -> Lifetime:
    """Return the lifetime of a URL that is signed with ``credentials`` at ``now``.

    ``asked_s=None`` means an hour, or less if the store or the credentials allow less.

    Raises:
        Unusable: ``asked_s`` is not a number of at least 1, is above ``most_s``, or outlives the credentials.

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


def _whole(asked: Any) -> int:  # noqa: ANN401  any value of the caller's
    usable = isinstance(asked, int | float) and not isinstance(asked, bool) and math.isfinite(asked)
    if not usable or asked < 1:
        raise Unusable(f"expires_s is a number of seconds, at least 1, not {asked!r}")
    return int(asked)
