"""``s3://``: AWS, and every store that speaks its dialect."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.engine.contracts.driver import Abilities, Conditions
from penstock.stores.provider import Provider, bucket_names
from penstock.stores.s3 import services
from penstock.stores.s3.opening import FAMILY, opener, parted, resolver
from penstock.stores.s3.services import AWS, SERVICES
from penstock.stores.s3.settings import remembered, resolve

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from penstock.engine.contracts.driver import Limits
    from penstock.stores.s3.options import S3Options
    from penstock.stores.s3.settings import StoreSettings
    from penstock.stores.s3.vocabulary import Vocabulary

__all__ = ["PRESETS", "PROVIDER", "R2", "opener", "resolver"]

_AWS = re.compile(r"https?://(?:([^/@:?#]+)\.)?s3[.-][^/@:?#]*amazonaws\.com(?:\.cn)?(?::\d+)?/([^?#]*)", re.IGNORECASE)


@remembered
def _resolve(options: S3Options, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
    """Resolve for ``s3://``, with the service that is named or that the endpoint belongs to."""
    word = options.provider
    found = None if word is not None else resolve(options, environ)
    word = services.at(found.endpoint) if found is not None else word
    if found is None or word:
        found = resolve(options, environ, services.shared(services.named(word or "aws")))
    return parted(found)


def _variant(settings: StoreSettings) -> Provider | None:
    """Return the preset of the settings' service; None for AWS."""
    if settings.service is AWS or settings.service == AWS:  # in most cases the very same: comparing takes longer
        return None
    return preset(settings.service.name)


def _advice(text: str) -> str:
    if match := _AWS.match(text):
        place = "/".join(part for part in match.groups() if part)
        return f"for this object write s3://{unquote(place)}"
    return ""


PROVIDER = replace(FAMILY, resolve=_resolve, variant=_variant, advice=_advice)


_MIB, _GIB = 1 << 20, 1 << 30
_NONE = Conditions(create=False, replace=False)
_S3 = FAMILY.abilities
_UNCONDITIONAL = replace(_S3, put=_NONE, complete=_NONE, forms=("none",), form="none")


def _plain() -> Vocabulary:
    from penstock.stores.s3.vocabulary import PLAIN

    return PLAIN


def _cluster() -> Vocabulary:
    from penstock.stores.s3.vocabulary import CLUSTER

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
    """Send no checksum headers, which the store refuses or does not know."""
    return replace(provider, open=opener(_plain))


# Parts of equal size, and 5 MiB less than S3 in one request (developers.cloudflare.com/r2/platform/limits).
R2 = _made("r2", "r2", limits=replace(FAMILY.limits, equal_parts=True, put_bytes=5 * _GIB - 5 * _MIB))
# bucket@namespace, as Oracle's own tools (ocifs, the HDFS connector) write buckets.
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
        # These ignore the condition of a completion without an error: checks before and after it replace the condition.
        _made("minio", abilities=replace(_S3, complete=_NONE)),
        _made("ceph", abilities=replace(_S3, complete=_NONE)),
        _without_checksums(_made("s8k")),
        # If-None-Match is ignored silently (ClickHouse#115266), and a completion with a condition is 400.
        _without_checksums(_made("gcs", abilities=_UNCONDITIONAL)),
    )
}


def preset(name: str) -> Provider | None:
    """Return the preset of a service, by its name in messages; None without a preset."""
    return PRESETS.get(name)
