"""``s3://``: AWS and whatever speaks its dialect; a preset for one service replaces a few of these fields."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.config.endpoint import path_style
from penstock.config.resolve import AWS, Service, resolve
from penstock.options import S3Options
from penstock.protocols.driver import Abilities
from penstock.protocols.limits import Limits
from penstock.providers.http import connected
from penstock.providers.provider import Opening, Provider, bucket_names

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from penstock.drivers.s3.vocabulary import Vocabulary
    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Transport

__all__ = ["PROVIDER", "opener", "resolver"]

_AWS = re.compile(r"https?://(?:([^/@:?#]+)\.)?s3[.-][^/@:?#]*amazonaws\.com(?:\.cn)?(?::\d+)?/([^?#]*)", re.IGNORECASE)
_MIB, _GIB = 1 << 20, 1 << 30


def resolver(service: Service) -> Callable[[S3Options, Mapping[str, str]], tuple[Hashable, Hashable]]:
    """Return the ``Provider.resolve`` of a service that speaks this dialect, for a preset."""

    def resolved(options: S3Options, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
        found = resolve(options, environ, service)
        return replace(found, identity=b""), found.identity

    return resolved


def opener(words: Callable[[], Vocabulary]) -> Callable[[Opening], tuple[Driver, Transport]]:
    """Return the ``Provider.open`` of a dialect of S3's family; ``words`` imports its vocabulary when it is called."""

    def opened(opening: Opening) -> tuple[Driver, Transport]:
        from penstock.drivers.credentials import source
        from penstock.drivers.refreshing import RefreshingCredentials
        from penstock.drivers.s3 import S3, Bucket

        options, settings = opening.options, opening.settings
        virtual = not path_style(opening.bucket, settings.addressing, settings.endpoint)
        bucket = Bucket(opening.bucket, settings.endpoint, virtual, opening.scheme)
        credentials = RefreshingCredentials(source(options, opening.environ, settings.service))
        driver = S3(bucket, settings.region, credentials, words())
        driver.abilities, driver.page_keys = opening.provider.abilities, opening.provider.limits.page_keys
        where = settings.endpoint or "https://s3.amazonaws.com"
        return driver, connected(options.transport, where, ca_file=settings.ca_file, proxy=settings.proxy)

    return opened


def _amazon() -> Vocabulary:
    from penstock.drivers.s3.vocabulary import AMAZON

    return AMAZON


def _advice(text: str) -> str:
    if match := _AWS.match(text):
        place = "/".join(part for part in match.groups() if part)
        return f"for this object write s3://{unquote(place)}"
    return ""


PROVIDER = Provider(
    name="S3",
    schemes=("s3",),
    open=opener(_amazon),
    # Wider than AWS's rules (lower case, 3-63): Ceph, MinIO and old us-east-1 buckets hold capitals, "_" and more.
    bucket_fault=bucket_names(r"[A-Za-z0-9._-]{3,255}", "3 to 255 letters, digits, '.', '-' and '_'"),
    limits=Limits(
        least_part_bytes=5 * _MIB,
        most_part_bytes=5 * _GIB,
        most_parts=10_000,
        put_bytes=5 * _GIB,
        # S3 takes 5 GiB, but answers when the copy is there: 1 GiB is done before no answer counts as a stall (20 s).
        copy_bytes=_GIB,
        copy_part_bytes=128 * _MIB,  # with eight at once 50 MB/s, and each is answered before it counts as stalled
        key_bytes=1024,
        metadata_bytes=8 << 10,  # AWS takes 2 KiB; Ceph as much as a header may be long
    ),
    # How a store wants its conditions said is learned: Ceph 16 differs from AWS, and older stores know none.
    abilities=Abilities(forms=("usual", "bare", "none"), ranges=None),
    options=S3Options,
    resolve=resolver(AWS),
    example="S3Options(endpoint=…, access_key=…, secret_key=…)",
    advice=_advice,
    extra="penstock[s3]",
)
