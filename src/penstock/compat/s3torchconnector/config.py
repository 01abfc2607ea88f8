"""The region, endpoint and client configuration of the S3 connector as options of a store."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.compat.hints import not_honoured
from penstock.errors import ConfigError, InvalidURL
from penstock.options import ReadOptions, RetryOptions, S3Options, WriteOptions
from penstock.providers.urls import parse
from penstock.values import whole

__all__ = ["S3ClientConfig", "s3_url", "store_options"]

_GBPS, _PART_BYTES, _ATTEMPTS = 10.0, 8 << 20, 10  # the original's defaults: Penstock's own apply where they are kept
_LEAST_PART, _MOST_PART = 5 << 20, 5 << 30  # of S3
_PARTS_HELD = 4


@dataclass(frozen=True)
class S3ClientConfig:
    """How a client talks to S3. Fields that are left alone are Penstock's own defaults, which adapt.

    Attributes:
        throughput_target_gbps: Not honoured, and named in a warning: Penstock uses as many requests at once as raise
            the rate.
        part_size: Bytes of a part of an upload, and of a range of a parallel read (5 MiB to 5 GiB).
        unsigned: Send unsigned requests.
        force_path_style: Address ``host/bucket/key``. Penstock does so anyway wherever an endpoint is given.
        max_attempts: Most requests of an operation. Left alone, Penstock retries for 120 s without progress.
        profile: Name in the shared AWS files.

    """

    throughput_target_gbps: float = _GBPS
    part_size: int = _PART_BYTES
    unsigned: bool = False
    force_path_style: bool = False
    max_attempts: int = _ATTEMPTS
    profile: str | None = None


def store_options(
    region: str | None, endpoint: str | None = None, s3client_config: S3ClientConfig | None = None
) -> S3Options:
    """Return the options that these arguments mean; None leaves each to environment and profile, as usual.

    Raises:
        ConfigError: A value that cannot work.

    """
    config = S3ClientConfig() if s3client_config is None else s3client_config
    if not isinstance(config, S3ClientConfig):
        raise ConfigError(f"s3client_config is an S3ClientConfig of this package, not {config!r}")
    whole(config.part_size, "S3ClientConfig.part_size")
    if config.throughput_target_gbps != _GBPS:
        not_honoured("S3ClientConfig.throughput_target_gbps", "Penstock adapts the number of requests to the network")
    if not _LEAST_PART <= config.part_size <= _MOST_PART:
        raise ConfigError(f"S3ClientConfig.part_size is 5 MiB to 5 GiB, not {config.part_size!r} bytes")
    own_part = config.part_size != _PART_BYTES
    buffer_bytes = max(WriteOptions().buffer_bytes, _PARTS_HELD * config.part_size)
    return S3Options(
        region=region,
        endpoint=endpoint,
        anonymous=config.unsigned,
        profile=config.profile,
        addressing="path" if config.force_path_style else "auto",
        retry=RetryOptions() if config.max_attempts == _ATTEMPTS else RetryOptions(attempts=config.max_attempts),
        read=ReadOptions(split_bytes=config.part_size) if own_part else ReadOptions(),
        write=WriteOptions(part_bytes=config.part_size, buffer_bytes=buffer_bytes) if own_part else WriteOptions(),
    )


def s3_url(url: str) -> str:
    """Return an ``s3://`` URL itself. ``InvalidURL``, a ``ValueError``, for anything else, as the original."""
    if not str(url).startswith("s3://"):
        raise InvalidURL("Only s3:// URIs are supported", url=str(url))
    parse(url)
    return url
