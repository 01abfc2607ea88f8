"""Faults as values, rules that assign them to requests, and the settings of a fault server.

``FAULTS`` lists all faults. Rules apply in the order in which they were added.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.testing.faults.message import Request

_STEPS = frozenset({"create", "part", "copy-part", "complete", "abort", "uploads", "move"})
VERBS = frozenset({"head", "list", "get", "put", "copy", "delete"}) | _STEPS
_WITH_BODY = frozenset({"list", "get", "copy", "create", "copy-part", "complete", "uploads", "move"})  # in the answer
_WITH_XML = _WITH_BODY - {"get"}
_READS = frozenset({"get"})
_MOVED_TO = "eu-penstock-1"
_MOVED = "the bucket is in another region, which the answer names"
# libcurl 8 refuses a header line beyond 100 KiB, and more than 300 KiB of header lines in all.
_LINE_BYTES = 8 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one request; ``dataclasses.replace`` makes a variant.

    Attributes:
        name: Short name, as on the command line and in the records.
        about: Description in one sentence.
        verbs: Requests it can happen to (names in ``VERBS``); others are left alone.
        ranged: The fault can happen to a ``Range`` only.
        reused: The fault can happen only on a connection that has served another request before.
        region: The fault happens to requests signed for a region different from this one, which the answer names.
        status: Refuse with this and ``code``, and do nothing; 0 to carry out the request. 200 also refuses.
        code: S3's code for the refusal; without one the body is 100 KB of HTML, as proxies send.
        headers: Headers added to the answer.
        undone: Fail before anything is done; otherwise only the answer fails.
        change: Change to the answer: a different ``etag``; a byte ``corrupt`` (of an upload: on its way to the server);
            for a range the ``whole`` object, or the ``part`` but with status 200, or the ``next`` range, labelled as
            such; ``garbage`` instead of XML.
        longer: Number of surplus bytes that ``Content-Length`` promises; negative for too few.
        unsized: Send no ``Content-Length``: the end of the connection is the end of the body.
        copies: Number of times that the answer is sent.
        cut: Break off before the first byte (``start``), or half-way through the ``headers`` or the ``body``.
        how: Break off with a ``reset`` of the connection, by a ``close`` in good order, or with a ``stall`` that lasts
            until the client goes away.
        bytes_per_s: Speed of the answer, in bytes per second; 0 for full speed.

    Example:
        >>> from dataclasses import replace
        >>> from penstock.testing.faults import FAULTS
        >>> slower = replace(FAULTS["503"], name="429", status=429)
        >>> FAULTS["503"].code, slower.status
        ('SlowDown', 429)
    """

    name: str
    about: str
    verbs: frozenset[str] = VERBS
    ranged: bool = False
    reused: bool = False
    region: str = ""
    status: int = 0
    code: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    undone: bool = False
    change: Literal["", "etag", "corrupt", "whole", "part", "next", "garbage"] = ""
    longer: int = 0
    unsized: bool = False
    copies: int = 1
    cut: Literal["", "start", "headers", "body"] = ""
    how: Literal["reset", "close", "stall"] = "close"
    bytes_per_s: int = 0


def _padding(lines: int, line_bytes: int = _LINE_BYTES) -> tuple[tuple[str, str], ...]:
    return tuple((f"x-padding-{number}", "x" * line_bytes) for number in range(lines))


def _fault(name: str, about: str, verbs: frozenset[str] = VERBS, **rest: Any) -> Fault:  # noqa: ANN401  its fields
    return Fault(name=name, about=about, verbs=verbs, **rest)


_ALL = (
    _fault("reset", "the connection is reset, nothing was done", undone=True, cut="start", how="reset"),
    _fault("empty", "the connection is closed without an answer, nothing was done", undone=True, cut="start"),
    _fault(
        "idle",
        "a kept-alive connection is closed just as the next request arrives",
        reused=True,
        undone=True,
        cut="start",
    ),
    _fault("lost", "the request is carried out, then the connection is reset", cut="start", how="reset"),
    _fault("reset-headers", "reset half-way through the answer's headers", cut="headers", how="reset"),
    _fault("reset-body", "reset half-way through the answer's body", _WITH_BODY, cut="body", how="reset"),
    _fault("truncate", "closed half-way through the body", _WITH_BODY, cut="body"),
    _fault(
        "truncate-unsized",
        "closed half-way through a body without Content-Length",
        _WITH_BODY,
        unsized=True,
        cut="body",
    ),
    _fault("stall", "no answer at all, nothing was done", undone=True, cut="start", how="stall"),
    _fault("stall-body", "silence half-way through the body", _WITH_BODY, cut="body", how="stall"),
    _fault("slow", "the answer comes at 100 kB/s", bytes_per_s=100_000),
    _fault("drip", "the answer drips at 5 bytes/s", bytes_per_s=5),
    _fault("500", "500 InternalError", status=500, code="InternalError"),
    _fault("502", "502 with 100 KB of HTML from a proxy", status=502),
    _fault("503", "503 SlowDown", status=503, code="SlowDown"),
    _fault(
        "503-after", "503 SlowDown with Retry-After: 1", status=503, code="SlowDown", headers=(("Retry-After", "1"),)
    ),
    _fault("504", "504 with 100 KB of HTML from a proxy", status=504),
    _fault("429", "429 TooManyRequests", status=429, code="TooManyRequests"),
    _fault("408", "408 RequestTimeout", status=408, code="RequestTimeout"),
    _fault("expired", "403 ExpiredToken", status=403, code="ExpiredToken"),
    _fault("skewed", "403 RequestTimeTooSkewed", status=403, code="RequestTimeTooSkewed"),
    _fault("denied", "403 AccessDenied", status=403, code="AccessDenied"),
    *(
        _fault(name, f"{name} {code}: {_MOVED}", region=_MOVED_TO, status=int(name), code=code)
        for name, code in (("301", "PermanentRedirect"), ("307", "TemporaryRedirect"))
    ),
    _fault(
        "malformed",
        "400 AuthorizationHeaderMalformed: signed for the wrong region; the answer names the right one",
        region=_MOVED_TO,
        status=400,
        code="AuthorizationHeaderMalformed",
    ),
    _fault(
        "error-200",
        "status 200 with an <Error> in the body, nothing was done",
        frozenset({"complete", "copy", "copy-part"}),
        status=200,
        code="InternalError",
    ),
    _fault("longer", "Content-Length promises 7 bytes too many", _WITH_BODY, longer=7),
    _fault("shorter", "Content-Length promises 7 bytes too few", _WITH_BODY, longer=-7),
    _fault(
        "etag",
        "the answer names another ETag",
        frozenset({"get", "put", "part", "complete", "copy", "copy-part"}),
        change="etag",
    ),
    _fault(
        "corrupt",
        "one byte of the object (of an upload: on its way to the server) is another",
        frozenset({"get", "put", "part", "complete"}),
        change="corrupt",
    ),
    _fault("range-whole", "a range is answered with 200 and the whole object", _READS, ranged=True, change="whole"),
    _fault(
        "range-200", "a range is answered with 200, Content-Range and just the part", _READS, ranged=True, change="part"
    ),
    _fault("range-other", "a range is answered with 206 and another range", _READS, ranged=True, change="next"),
    _fault("duplicate", "the answer is sent twice on a kept-alive connection", copies=2),
    _fault("garbage", "HTML instead of the XML of the answer", _WITH_XML, change="garbage"),
    _fault("headers", "280 KiB of headers, just below libcurl's bound", headers=_padding(35)),
    _fault("headers-many", "320 KiB of headers, beyond libcurl's bound", headers=_padding(40)),
    _fault("headers-long", "one header of 110 KiB, beyond libcurl's bound", headers=_padding(1, 110 << 10)),
)

FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}
# For a dialect's ``Words.faults`` where no answer names another region: these faults cannot happen.
WITHOUT_REGIONS = {name: replace(FAULTS[name], verbs=frozenset()) for name in ("301", "307", "malformed")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The requests that a rule applies to: all given conditions must hold.

    Attributes:
        verb: A name in ``VERBS``; empty for any.
        bucket: The bucket; empty for any.
        key: The object's full key; None for any.
        part: Number of a part of an upload; 0 for any.
        nth: Number, from 1, of the matching request to begin with.
        times: Number of times that the rule's faults are repeated; None for no limit.
        rate: Share of these requests that fail, drawn from ``seed``.
        seed: Seed of the draws.

    Example:
        >>> from penstock.testing.faults import FAULTS, FaultServer, Match
        >>> with FaultServer.within() as server:
        ...     server.fail(FAULTS["503"], when=Match(verb="get", key="train/0", times=2))
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
        """Return whether the rule applies to a request.

        Args:
            request: The request.
        """
        return (
            self.verb in ("", request.verb)
            and self.bucket in ("", request.bucket)
            and self.key in (None, request.key)
            and (not self.part or request.parameters.get("partNumber") == str(self.part))
        )


class _FaultRule:
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
        self._rules: list[_FaultRule] = []
        self._lock = threading.Lock()

    def add(self, faults: Sequence[Fault], when: Match) -> None:
        """Add a rule that plays the faults in order, one for each request that fits."""
        with self._lock:
            self._rules.append(_FaultRule(faults, when))

    def clear(self) -> None:
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
        dialect: The dialect that it speaks: a name in ``dialect.DIALECTS``, or the full name of a module that defines
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

    Example:
        >>> from penstock.testing.faults import FaultServer, Settings
        >>> with FaultServer.within(Settings(latency_ms=30, conditions="ignored")) as server:
        ...     print(server.scheme)
        s3
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
