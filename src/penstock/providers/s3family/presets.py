"""Presets over S3: the services that speak its dialect, each with what differs (design/0030)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config import services
from penstock.config.services import SERVICES
from penstock.protocols.driver import Abilities, Conditions
from penstock.providers.provider import Provider, bucket_names
from penstock.providers.s3family.opening import FAMILY, opener, resolver

if TYPE_CHECKING:
    from penstock.drivers.s3.vocabulary import Vocabulary
    from penstock.protocols.limits import Limits

__all__ = ["AIS", "B2", "OCI", "PRESETS", "R2", "TIGRIS", "preset"]

_MIB, _GIB = 1 << 20, 1 << 30
_NONE = Conditions(create=False, replace=False)
_S3 = FAMILY.abilities
_UNCONDITIONAL = replace(_S3, put=_NONE, complete=_NONE, forms=("none",), form="none")


def _plain() -> Vocabulary:
    from penstock.drivers.s3.vocabulary import PLAIN

    return PLAIN


def _cluster() -> Vocabulary:
    from penstock.drivers.s3.vocabulary import CLUSTER

    return CLUSTER


def _made(word: str, *schemes: str, limits: Limits = FAMILY.limits, abilities: Abilities = _S3) -> Provider:
    service = SERVICES[word]
    return replace(
        FAMILY,
        name=service.name,
        schemes=schemes or FAMILY.schemes,
        limits=limits,
        abilities=abilities,
        resolve=resolver(service),
        where=services.where(service),
        example="S3Options(access_key=…, secret_key=…)",
    )


def _without_checksums(provider: Provider) -> Provider:
    """Ask for no checksums: the store refuses, or does not know, the headers."""
    return replace(provider, open=opener(_plain))


# Parts of one size, and 5 MiB less than S3 in one request (developers.cloudflare.com/r2/platform/limits).
R2 = _made("r2", "r2", limits=replace(FAMILY.limits, equal_parts=True, put_bytes=5 * _GIB - 5 * _MIB))
# bucket@namespace, as Oracle's own tools (ocifs, the HDFS connector) write it.
OCI = replace(
    _made("oci", "oci"),
    bucket_fault=bucket_names(
        r"[A-Za-z0-9._-]{1,256}(@[a-z0-9-]{1,63})?", "letters, digits, '.', '-' and '_', and perhaps @namespace"
    ),
)
# PUT with a condition is 501, and some clusters refuse x-amz-checksum-*.
B2 = _without_checksums(_made("b2", "b2", abilities=_UNCONDITIONAL))
TIGRIS = _made("tigris", "tigris", "t3")
AIS = replace(_made("ais", "ais", abilities=_UNCONDITIONAL), open=opener(_cluster))
PRESETS = {
    each.name: each
    for each in (
        R2,
        OCI,
        B2,
        TIGRIS,
        AIS,
        _made("wasabi"),
        _made("coreweave"),
        # A completion that ignores its condition is no error: a look before it, and one after, have to do.
        _made("minio", abilities=replace(_S3, complete=_NONE)),
        _made("ceph", abilities=replace(_S3, complete=_NONE)),
        _without_checksums(_made("s8k")),
        # If-None-Match is ignored in silence (ClickHouse#115266), and a completion with a condition is 400.
        _without_checksums(_made("gcs", abilities=_UNCONDITIONAL)),
    )
}


def preset(name: str) -> Provider | None:
    """Return the preset of a service, by its name in messages; None where there is none."""
    return PRESETS.get(name)
