"""Opening of buckets in the S3 family of dialects: from settings to address, credentials, driver and transport."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.engine import endpoint as endpoints
from penstock.engine.contracts.driver import Abilities, Limits
from penstock.engine.endpoint import path_style
from penstock.errors import ConfigError
from penstock.stores.http.network import connected
from penstock.stores.provider import Opening, Provider, bucket_names
from penstock.stores.s3 import services
from penstock.stores.s3.options import S3Options
from penstock.stores.s3.services import AWS, auth_token
from penstock.stores.s3.settings import aws_endpoint, remembered, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport
    from penstock.stores.http.answers import Codes
    from penstock.stores.s3.services import Service
    from penstock.stores.s3.settings import StoreSettings
    from penstock.stores.s3.vocabulary import Bucket, Vocabulary

__all__ = ["FAMILY", "opener", "parted", "resolver"]

_MIB, _GIB = 1 << 20, 1 << 30
_ELSEWHERE = "; the gateway points to a server outside of its cluster: name it in S3Options(cluster=…)"


def resolver(service: Service) -> Callable[[S3Options, Mapping[str, str]], tuple[Hashable, Hashable]]:
    """Return the ``Provider.resolve`` of a service that speaks this dialect, for a preset with its own scheme.

    AWS's variables and files count, too, if they name an endpoint of this very service.
    """

    @remembered
    def resolved(options: S3Options, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
        meant = service
        if options.provider is not None and services.named(options.provider) is not service:
            raise ConfigError(f"provider={options.provider!r} contradicts the URL's scheme, which is {service.name}'s")
        if service.hosts and service.has(aws_endpoint(options, environ) or ""):
            meant = services.shared(service)
        return parted(resolve(options, environ, meant))

    return resolved


def parted(found: StoreSettings) -> tuple[Hashable, Hashable]:
    """Return settings and identity separately, as ``Provider.resolve`` does."""
    return replace(found, identity=b""), found.identity


def opener(words: Callable[[], Vocabulary]) -> Callable[[Opening], tuple[Driver, Transport]]:
    """Return the ``Provider.open`` of a dialect of the S3 family; ``words`` imports its vocabulary when called."""

    def opened(opening: Opening) -> tuple[Driver, Transport]:
        from penstock.stores.credentials import RefreshingCredentials
        from penstock.stores.s3.credentials import source
        from penstock.stores.s3.driver import S3
        from penstock.stores.s3.vocabulary import sign_as_payer

        options, settings = opening.options, opening.settings
        bucket, spoken = _bucket(opening), words()
        if settings.service != AWS:
            spoken = replace(spoken, codes=_codes(settings.service, spoken.codes))
        elif settings.endpoint is None:
            spoken = replace(spoken, endpoint=partial(_own_endpoint, settings.own))
        if settings.service.tokens:
            _check_token(bucket, opening)
        elif settings.requester_pays:
            spoken = replace(spoken, signer=sign_as_payer)
        credentials = RefreshingCredentials(source(options, opening.environ, settings.service))
        driver = S3(bucket, settings.region, credentials, spoken)
        driver.abilities = replace(opening.provider.abilities, sums=bool(spoken.verification.digests))
        driver.page_keys = opening.provider.limits.page_keys
        where = bucket.endpoint or "https://s3.amazonaws.com"
        return driver, connected(opening, where)

    return opened


def _bucket(opening: Opening) -> Bucket:
    """Return the bucket's address; raise ``ConfigError`` if its name, its account and the service do not match."""
    from penstock.stores.s3.vocabulary import Bucket

    settings, service, endpoint = opening.settings, opening.settings.service, opening.settings.endpoint
    name, _, account = opening.bucket.partition("@") if service.account_in_url else (opening.bucket, "", "")
    if endpoint is not None and "{account}" in endpoint:
        if not account:
            how = f"write {name}@ACCOUNT for the bucket, pass S3Options(account=…) or set {service.accounts[0]}"
            raise ConfigError(f"{service.name} needs an account: {how}", url=opening.root)
        endpoint = endpoint.replace("{account}", account)
    elif account and account != service.told(endpoint or "", "account"):
        raise ConfigError(f"the URL names the account {account!r}, and the endpoint is {endpoint}", url=opening.root)
    virtual = not path_style(name, settings.addressing, endpoint)
    if not virtual and (service.virtual_only or "s3-accelerate" in settings.own):
        message = f"{service.name} takes buckets in the host's name only, and {name!r} cannot stand there"
        raise ConfigError(message, url=opening.root)
    return Bucket(name, endpoint, virtual, opening.scheme, shown=opening.bucket, cluster=opening.options.cluster)


def _check_token(bucket: Bucket, opening: Opening) -> None:
    """Raise ``ConfigError`` if a token would be sent unencrypted to another machine."""
    where, _ = auth_token(opening.environ)
    endpoint = bucket.endpoint or ""
    explicit = opening.options.access_key is not None or opening.options.anonymous
    if where and not explicit and endpoint.startswith("http:") and not endpoints.is_here(endpoint):
        message = f"{where} would be sent to {endpoint} unencrypted: use https, or unset it where no token is needed"
        raise ConfigError(message, url=opening.root)


def _codes(service: Service, codes: Codes) -> Codes:
    """Return S3's code table with the advice for a service; another dialect's table as it is."""
    from penstock.stores.s3.codes import S3_CODES, s3_codes

    if codes is not S3_CODES:
        return codes
    region = service.regions[0] if service.regions else "AWS_REGION"
    elsewhere = _ELSEWHERE if service.tokens else ""
    return s3_codes(service.name, services.keys(service), region, services.where(service), elsewhere)


def _own_endpoint(pattern: str, region: str) -> str:
    from penstock.stores.s3.vocabulary import own_endpoint

    return own_endpoint(pattern, region)


def _amazon() -> Vocabulary:
    from penstock.stores.s3.vocabulary import AMAZON

    return AMAZON


_named = bucket_names(r"[A-Za-z0-9._-]{3,255}", "3 to 255 letters, digits, '.', '-' and '_'")


def _bucket_fault(bucket: str) -> str:
    if bucket.endswith("--x-s3"):
        return "S3's directory buckets (Express One Zone, '…--x-s3') list in no order: name a general purpose bucket"
    return _named(bucket)


# Base of the presets of services, ``s3://`` among them.
FAMILY = Provider(
    name="S3",
    schemes=("s3",),
    open=opener(_amazon),
    # Wider than AWS's rules (lower case, 3-63): Ceph, MinIO and old us-east-1 buckets hold capitals, "_" and more.
    bucket_fault=_bucket_fault,
    limits=Limits(
        least_part_bytes=5 * _MIB,
        most_part_bytes=5 * _GIB,
        most_parts=10_000,
        put_bytes=5 * _GIB,
        # S3 takes 5 GiB, but answers after the copy: 1 GiB is done before a missing answer counts as a stall (20 s).
        copy_bytes=_GIB,
        # With eight at once 50 MB/s, and each is answered before it counts as stalled.
        copy_part_bytes=128 * _MIB,
        key_bytes=1024,
        # AWS takes 2 KiB; Ceph as much as fits into a header.
        metadata_bytes=8 << 10,
    ),
    # The form of conditions is learned: Ceph 16 differs from AWS, and older stores support none.
    abilities=Abilities(forms=("usual", "bare", "none"), jumps=True, ranges=None),
    options=S3Options,
    resolve=resolver(AWS),
    example="S3Options(endpoint=…, access_key=…, secret_key=…)",
    where=services.where(AWS),
    extra="penstock[s3]",
)
