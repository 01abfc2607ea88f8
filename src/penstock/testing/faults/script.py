"""Rules that assign faults to requests, applied in the order in which they were added.

Settings of a fault server.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.testing.faults.kinds import Fault
    from penstock.testing.faults.message import Request


__all__ = ["Match", "Script", "Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The requests that a rule applies to: all given conditions must hold.

    Attributes:
        verb: A name in ``VERBS``; empty for any.
        bucket: The bucket; empty for any.
        key: The object's full key; None for any.
        part: Number of a part of an upload; 0 for any.
        nth: Number, from 1, of the matching request to begin with.
        times: How often the rule's faults are played through; None for no limit.
        rate: Share of these requests that fail, drawn from ``seed``.
        seed: Seed of the draws.

    """

    verb: str = ""
    bucket: str = ""
    key: str | None = None
    part: int = 0
    nth: int = 1
    times: int | None = 1
    rate: float = 1.0
    seed: int = 0

    def fits(self, request: Request) -> bool:
        """Return whether the rule applies to this request."""
        return (
            self.verb in ("", request.verb)
            and self.bucket in ("", request.bucket)
            and self.key in (None, request.key)
            and (not self.part or request.parameters.get("partNumber") == str(self.part))
        )


class _Rule:
    """A sequence of faults and its progress."""

    def __init__(self, faults: Sequence[Fault], when: Match) -> None:
        self.faults = faults
        self.when = when
        self._random = random.Random(when.seed)  # noqa: S311  repeatable on purpose
        self._met = 0
        self._played = 0

    def play(self, request: Request, *, reused: bool) -> Fault | None:
        """Return the fault for a request, if it is due; a fault that cannot happen to this one waits for the next."""
        if self.when.times is not None and self._played >= self.when.times * len(self.faults):
            return None
        fault = self.faults[self._played % len(self.faults)]
        if not self.when.fits(request) or not _can(fault, request, reused=reused):
            return None
        self._met += 1
        if self._met < self.when.nth or self._random.random() >= self.when.rate:
            return None
        self._played += 1
        return fault


class Script:
    """All rules; the first that has a fault for a request decides. Thread-safe."""

    def __init__(self) -> None:
        """Begin without rules."""
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()

    def add(self, faults: Sequence[Fault], when: Match) -> None:
        """Add a rule that plays the faults in order, one for each request that fits."""
        with self._lock:
            self._rules.append(_Rule(faults, when))

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._rules.clear()

    def play(self, request: Request, *, reused: bool) -> Fault | None:
        """Return the fault for this request, if any; ``reused``: its connection has served other requests."""
        with self._lock:
            return next(filter(None, (rule.play(request, reused=reused) for rule in self._rules)), None)

    def regions(self, bucket: str) -> frozenset[str]:
        """Return the regions that a bucket has moved to: only signatures for these regions are accepted."""
        with self._lock:
            return frozenset(
                fault.region
                for rule in self._rules
                if rule.when.bucket in ("", bucket)
                for fault in rule.faults
                if fault.region
            )


def _can(fault: Fault, request: Request, *, reused: bool) -> bool:
    return (
        request.verb in fault.verbs
        and (not fault.ranged or "range" in request.headers)
        and (not fault.reused or reused)
        and (not fault.region or fault.region != request.region)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a fault server.

    Attributes:
        dialect: The dialect that it speaks: a name in ``dialects.DIALECTS``, or the full name of a module that defines
            ``WORDS``.
        port: Port on loopback; 0 for any free port.
        access_key: The only key id that it accepts.
        secret_key: Its secret.
        tokens: The bearer tokens, or tokens of temporary keys, that it accepts; ``FaultServer.admit`` changes them.
        region: The region that requests must be signed for.
        latency_ms: Delay before the first byte of each answer.
        least_part_bytes: Least size of all parts of an upload but the last; S3's is 5 MiB.
        conditions: How it treats ``If-Match`` and ``If-None-Match`` on a write: ``heeded``; ``bare``, which accepts
            ETags only without their quotes, and ignores conditions where an upload is completed (Ceph 16); ``ignored``;
            ``refused`` (501 NotImplemented).

    """

    dialect: str = "s3"
    port: int = 0
    access_key: str = "penstock-testing"
    secret_key: str = field(default="not-a-secret", repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)
    region: str = "us-east-1"
    latency_ms: float = 0.0
    least_part_bytes: int = 5 << 20
    conditions: Literal["heeded", "bare", "ignored", "refused"] = "heeded"
