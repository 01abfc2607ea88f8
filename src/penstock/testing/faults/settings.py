"""How a fault server is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server is set up.

    Attributes:
        dialect: What it speaks: a name in ``dialects.DIALECTS``, or a module of your own, by its full name, that has
            ``WORDS``.
        port: On loopback; 0 for any that is free.
        access_key: The one key it knows.
        secret_key: Its secret.
        tokens: The tokens that it takes, of bearers or of temporary keys; ``FaultServer.admit`` changes them.
        region: What requests must be signed for.
        latency_ms: Before the first byte of each answer.
        least_part_bytes: Least size of all parts of an upload but the last; S3's is 5 MiB.
        conditions: What it makes of ``If-Match`` and ``If-None-Match`` on a write: ``heeded``; ``bare``, with ETags
            known without their quotes only, and none heeded where an upload is completed (Ceph 16); ``ignored``;
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
