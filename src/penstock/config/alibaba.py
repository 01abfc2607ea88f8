"""Alibaba's names: regions and endpoints of OSS."""

from __future__ import annotations

import re

__all__ = ["region_of"]

# The host of a region, perhaps with a bucket or "s3" before it; "-internal" is reached from Alibaba's own networks.
_ENDPOINT = re.compile(r"(?:[a-z0-9-]+\.)?oss-([a-z0-9-]{1,40}?)(?:-internal)?\.aliyuncs\.com")
# Dual-stack, like cn-beijing.oss.aliyuncs.com.
_DUAL = re.compile(r"(?:[a-z0-9-]+\.)?([a-z0-9-]{1,40})\.oss\.aliyuncs\.com")
_NO_REGION = ("accelerate", "accelerate-overseas")


def region_of(host: str) -> str:
    """Return the region that a host of OSS names; empty where it names none (acceleration, a domain of one's own)."""
    match = _ENDPOINT.fullmatch(host) or _DUAL.fullmatch(host)
    return match[1] if match and match[1] not in _NO_REGION else ""
