"""``s3://``: AWS, and whatever speaks its dialect."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.config import services
from penstock.config.resolve import resolve
from penstock.config.services import AWS
from penstock.providers.s3family.opening import FAMILY, opener, parted, resolver

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from penstock.config.resolve import StoreSettings
    from penstock.options import S3Options
    from penstock.providers.provider import Provider

__all__ = ["PROVIDER", "opener", "resolver"]

_AWS = re.compile(r"https?://(?:([^/@:?#]+)\.)?s3[.-][^/@:?#]*amazonaws\.com(?:\.cn)?(?::\d+)?/([^?#]*)", re.IGNORECASE)


def _resolve(options: S3Options, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
    """Resolve for ``s3://``: of the service that is named, or that the endpoint belongs to."""
    word = options.provider
    found = None if word is not None else resolve(options, environ)
    word = services.at(found.endpoint) if found is not None else word
    if found is None or word:
        found = resolve(options, environ, services.shared(services.named(word or "aws")))
    return parted(found)


def _variant(settings: StoreSettings) -> Provider | None:
    """Return the preset of the service that the settings are of."""
    if settings.service == AWS:
        return None
    from penstock.providers.s3family.presets import preset

    return preset(settings.service.name)


def _advice(text: str) -> str:
    if match := _AWS.match(text):
        place = "/".join(part for part in match.groups() if part)
        return f"for this object write s3://{unquote(place)}"
    return ""


PROVIDER = replace(FAMILY, resolve=_resolve, variant=_variant, advice=_advice)
