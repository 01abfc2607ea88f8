"""Redirects of web servers: where they may lead, for how long that is remembered, and who is told who asks."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable
    from urllib.parse import SplitResult

__all__ = ["MOST_HOPS", "Target", "Targets", "target_of"]

MOST_HOPS = 10
_KEPT_S = 60.0  # signed targets live for minutes at least; pinned reads of one object share it
_MOST_TARGETS = 1024
_SCHEMES = ("http", "https")


@dataclass(slots=True)
class Target:
    """Where a redirect leads. It may hold a signature, so it has no repr.

    Attributes:
        url: Absolute, without a fragment.
        hops: How many redirects led to it.
        since: When, by the monotonic clock.
        tried: It was used.

    """

    url: str
    hops: int
    since: float
    tried: bool = False

    def __repr__(self) -> str:
        """Return the host alone."""
        return f"Target({urlsplit(self.url).netloc!r}, {self.hops})"


class Targets:
    """Where requests for keys go next, by the paths that the store itself has them under."""

    __slots__ = ("_clock", "_targets")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Know none."""
        self._clock = clock
        self._targets: dict[str, Target] = {}

    def __bool__(self) -> bool:
        """Say whether there are any."""
        return bool(self._targets)

    def add(self, path: str, url: str, hops: int) -> None:
        """Remember where ``path`` was redirected to."""
        if len(self._targets) >= _MOST_TARGETS:
            self._targets.clear()  # who loses one is redirected again
        self._targets[path] = Target(url, hops, self._clock())

    def take(self, path: str, *, pinned: bool) -> Target | None:
        """Return the target of the next request for ``path``, if there is one.

        It serves that request alone, unless the request is ``pinned`` to a version: then the version tells whether the
        target is still the right one, and it serves for a minute.
        """
        target = self._targets.get(path) if pinned else self._targets.pop(path, None)
        if target is None or self._clock() - target.since > _KEPT_S:
            self._targets.pop(path, None)
            return None
        return target

    def drop(self, path: str) -> None:
        """Forget a target that refused."""
        self._targets.pop(path, None)


def target_of(url: str, location: str) -> str:
    """Return the absolute URL that a redirect of ``url`` leads to; empty where it must not be followed.

    Followed are redirects to any host. Never followed is one from TLS to none, one with user information, and one into
    a network that the asked host is not in itself: to this machine, a private or link-local address.
    """
    try:
        here, there = urlsplit(url), urlsplit(urljoin(url, location.strip()))
        sound = there.scheme in _SCHEMES and bool(there.hostname) and there.port != 0
    except ValueError:
        return ""
    unsafe = "@" in there.netloc or not location.isascii() or not location.isprintable() or " " in location.strip()
    if not sound or unsafe or (here.scheme == "https" and there.scheme != "https"):
        return ""
    return "" if _inward(here, there) else there._replace(fragment="").geturl()


def _inward(here: SplitResult, there: SplitResult) -> bool:
    """Say whether a public host leads into a private network, where this machine is trusted and the host is not."""
    return (
        here.hostname != there.hostname and _is_private(there.hostname or "") and not _is_private(here.hostname or "")
    )


def _is_private(host: str) -> bool:
    if host == "localhost" or host.endswith((".localhost", ".internal", ".local")):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return not address.is_global
