"""Store options for the region, endpoint and client configuration of the S3 connector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.compat.arguments import not_honoured
from penstock.errors import ConfigError, InvalidURL
from penstock.options import ReadOptions, RetryOptions, WriteOptions
from penstock.stores.s3.options import S3Options
from penstock.stores.urls import parse
from penstock.values import whole

# The original's defaults. Fields that keep them use Penstock's own defaults.
_GBPS, _PART_BYTES, _ATTEMPTS = 10.0, 8 << 20, 10
_LEAST_PART, _MOST_PART = 5 << 20, 5 << 30  # limits of S3
_PARTS_HELD = 4


@dataclass(frozen=True)
class S3ClientConfig:
    """Client settings of the S3 connector. Fields that keep their defaults use Penstock's own, which adapt.

    Attributes:
        throughput_target_gbps: Not honoured, with a warning: Penstock adds concurrent requests while they raise the
            rate.
        part_size: Bytes per part of an upload, and per range of a parallel read (5 MiB to 5 GiB).
        unsigned: Send unsigned requests.
        force_path_style: Use addresses ``host/bucket/key``. Penstock does so in any case if an endpoint is given.
        max_attempts: Maximum number of requests per operation. By default, Penstock retries until 120 s pass without
            progress.
        profile: Profile name in the shared AWS files.
        requester_pays: Pay for requests to buckets with Requester Pays.
    """

    throughput_target_gbps: float = _GBPS
    part_size: int = _PART_BYTES
    unsigned: bool = False
    force_path_style: bool = False
    max_attempts: int = _ATTEMPTS
    profile: str | None = None
    requester_pays: bool = False


def store_options(
    region: str | None, endpoint: str | None = None, s3client_config: S3ClientConfig | None = None
) -> S3Options:
    """Return the store options for these arguments; None leaves a value to the environment and the profile."""
    config = S3ClientConfig() if s3client_config is None else s3client_config
    if not isinstance(config, S3ClientConfig):
        raise ConfigError(f"s3client_config must be an S3ClientConfig of this package, got {config!r}")
    whole(config.part_size, "S3ClientConfig.part_size")
    if config.throughput_target_gbps != _GBPS:
        not_honoured("S3ClientConfig.throughput_target_gbps", "Penstock adapts the number of requests to the network")
    if not _LEAST_PART <= config.part_size <= _MOST_PART:
        raise ConfigError(f"S3ClientConfig.part_size must be 5 MiB to 5 GiB, got {config.part_size!r} bytes")
    own_part = config.part_size != _PART_BYTES
    buffer_bytes = max(WriteOptions().buffer_bytes, _PARTS_HELD * config.part_size)
    unsigned: dict[str, Any] = {"anonymous": True} if config.unsigned else {}  # else from the environment
    return S3Options(
        region=region,
        endpoint=endpoint,
        **unsigned,
        profile=config.profile,
        requester_pays=config.requester_pays,
        addressing="path" if config.force_path_style else "auto",
        retry=RetryOptions() if config.max_attempts == _ATTEMPTS else RetryOptions(attempts=config.max_attempts),
        read=ReadOptions(split_bytes=config.part_size) if own_part else ReadOptions(),
        write=WriteOptions(part_bytes=config.part_size, buffer_bytes=buffer_bytes) if own_part else WriteOptions(),
    )


def s3_url(url: str) -> str:
    """Return an ``s3://`` URL unchanged. Raise ``InvalidURL`` (a ``ValueError``, as in the original) otherwise."""
    if not str(url).startswith("s3://"):
        raise InvalidURL("Only s3:// URIs are supported", url=str(url))
    parse(url)
    return url
