"""Settings of a fault server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Settings"]


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
