"""Stores that speak S3's dialect, one class each: AWS, and the services that differ from it in a few values.

Endpoints, regions and addressing come from each service's own manual (docs/stores.md); variables from its own tools, or
from the library that its users know.
"""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote

from penstock.engine import endpoint as endpoints
from penstock.engine.contracts.driver import Abilities, Conditions, Limits
from penstock.engine.endpoint import path_style
from penstock.errors import ConfigError
from penstock.stores.http.network import make_transport
from penstock.stores.s3.options import S3Options
from penstock.stores.s3.settings import Service, aws_endpoint, remember_settings, resolve

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport
    from penstock.stores.s3.dialect import BucketAddress, Dialect
    from penstock.stores.s3.settings import StoreSettings
    from penstock.stores.store import Opening, Store

_MIB, _GIB = 1 << 20, 1 << 30
_CONSOLE = re.compile(
    r"https?://(?:[a-z0-9-]+\.)?console\.aws\.amazon\.com/s3/(?:buckets|object)/([^/?#]+)/?\??([^#]*)", re.IGNORECASE
)
_ARN = re.compile(r"arn:aws[a-z-]*:s3:(?:::(.+))?")
# Schemes that other tools have for servers in S3's dialect.
_SPEAKS_S3 = re.compile(r"(?:minio|ceph|wasabi|garage|spaces|cosn?|obs|tos|bos|ks3)://([^?#]*)", re.IGNORECASE)
_AWS = re.compile(r"https?://(?:([^/@:?#]+)\.)?s3[.-][^/@:?#]*amazonaws\.com(?:\.cn)?(?::\d+)?/([^?#]*)", re.IGNORECASE)


class S3(Service):
    """Service that speaks S3's dialect under a separate scheme. A subclass defines the differences from AWS.

    ``checksums``: the service knows S3's headers for checksums.
    """

    schemes: tuple[str, ...] = ("s3",)
    # Wider than AWS's rules (lower case, 3-63): Ceph, MinIO and old us-east-1 buckets hold capitals, "_" and more.
    buckets = r"[A-Za-z0-9._-]{3,255}"
    bucket_rule = "3 to 255 letters, digits, '.', '-' and '_'"
    limits = Limits(
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
    )
    # The form of conditions is learned: Ceph 16 differs from AWS, and older stores support none.
    abilities = Abilities(forms=("usual", "bare", "none"), jumps=True, ranges=None)
    options = S3Options
    example = "S3Options(access_key=…, secret_key=…)"
    extra = "penstock[s3]"
    payer_advice = ""
    checksums: bool = True

    @remember_settings
    def resolve(self, options: S3Options, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
        """Return settings and identity; AWS's variables and files count if they name an endpoint of this service."""
        if options.provider is not None and find_service(options.provider) != self:
            raise ConfigError(f"provider={options.provider!r} contradicts the URL's scheme, which is {self.name}'s")
        meant = self.shared() if self.hosts and self.has(aws_endpoint(options, environ) or "") else self
        return _split_identity(resolve(options, environ, meant))

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        from penstock.stores.credentials import RefreshingCredentials
        from penstock.stores.s3.credentials import AmazonCredentials
        from penstock.stores.s3.dialect import S3_CODES, codes_of
        from penstock.stores.s3.driver import S3Driver

        settings, bucket, kind = opening.settings, _bucket(opening), self.dialect()
        if settings.service.tokens:
            _check_token(bucket, opening)
        codes = codes_of(settings.service) if kind.codes is S3_CODES else kind.codes
        dialect = kind(codes, own=settings.own, payer=settings.requester_pays and not settings.service.tokens)
        credentials = RefreshingCredentials(AmazonCredentials(opening.options, opening.environ, settings.service))
        driver = S3Driver(bucket, settings.region, credentials, dialect)
        driver.abilities = replace(self.abilities, sums=bool(dialect.verification.digests))
        driver.page_keys = self.limits.page_keys
        return driver, make_transport(opening, bucket.endpoint or "https://s3.amazonaws.com", self.where)

    def dialect(self) -> type[Dialect]:
        """Return the class of the service's dialect, imported when a bucket is opened."""
        from penstock.stores.s3.dialect import Amazon, Dialect

        return Amazon if self.checksums else Dialect

    def bucket_fault(self, bucket: str) -> str:
        if bucket.endswith("--x-s3"):
            directories = "S3's directory buckets (Express One Zone, '…--x-s3') list in no order"
            return f"{directories}: name a general purpose bucket"
        return super().bucket_fault(bucket)


class AWS(S3):
    """``s3://``: AWS, or the service that ``S3Options.provider`` names or that the endpoint belongs to."""

    example = "S3Options(endpoint=…, access_key=…, secret_key=…)"
    payer_advice = Service.payer_advice

    @remember_settings
    def resolve(self, options: S3Options, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
        """Return settings and identity, for the service that is named or that the endpoint belongs to."""
        word = options.provider
        found = None if word is not None else resolve(options, environ, self)
        word = at(found.endpoint) if found is not None else word
        if found is None or word:
            found = resolve(options, environ, find_service(word or "aws").shared())
        return _split_identity(found)

    def variant(self, settings: StoreSettings) -> Store | None:
        if settings.service is self:  # in most cases
            return None
        return next((each for each in SERVICES.values() if each.name == settings.service.name != self.name), None)

    def advice(self, text: str) -> str:
        if match := _AWS.match(text):
            place = "/".join(part for part in match.groups() if part)
            return f"for this object write s3://{unquote(place)}"
        if match := _CONSOLE.match(text):
            prefix = parse_qs(match[2]).get("prefix", [""])[0]
            return f"for these objects write s3://{match[1]}/{prefix}"
        if match := _ARN.match(text):
            return f"write s3://{match[1] or 'ALIAS/key, with the alias of the access point'}"
        if match := _SPEAKS_S3.match(text):
            return f"write s3://{match[1]} and pass S3Options(endpoint=…) (--endpoint, AWS_ENDPOINT_URL)"
        return ""

    def shared(self) -> AWS:
        return self


_NONE = Conditions(create=False, replace=False)
_UNCONDITIONAL = replace(S3.abilities, put=_NONE, complete=_NONE, forms=("none",), form="none")
# These ignore the condition of a completion without an error: checks before and after it replace the condition.
_UNCOMPLETED = replace(S3.abilities, complete=_NONE)


class R2(S3):
    """Cloudflare R2."""

    name = "Cloudflare R2"
    schemes = ("r2",)
    # Parts of equal size, and 5 MiB less than S3 in one request (developers.cloudflare.com/r2/platform/limits).
    limits = replace(S3.limits, equal_parts=True, put_bytes=5 * _GIB - 5 * _MIB)
    endpoint = "https://{account}.r2.cloudflarestorage.com"
    region = "auto"
    endpoints = ("R2_ENDPOINT_URL", "R2_ENDPOINT")
    regions = ("R2_REGION",)
    accounts = ("R2_ACCOUNT_ID", "CLOUDFLARE_ACCOUNT_ID")
    keys = ("R2_ACCESS_KEY_ID", "R2_SECRET_ACCESS_KEY", "R2_SESSION_TOKEN")
    hosts = ("r2.cloudflarestorage.com",)
    aws_files = aws_roles = False


class OCI(S3):
    """Oracle's Object Storage. A bucket is ``bucket@namespace``, as in ocifs and the HDFS connector."""

    name = "OCI Object Storage"
    schemes = ("oci",)
    buckets = r"[A-Za-z0-9._-]{1,256}(@[a-z0-9-]{1,63})?"
    bucket_rule = "letters, digits, '.', '-' and '_', and perhaps @namespace"
    endpoint = "https://{account}.compat.objectstorage.{region}.oci.customer-oci.com"
    region = ""
    endpoints = ("OCI_S3_ENDPOINT_URL",)
    regions = ("OCI_REGION", "OCI_CLI_REGION")
    accounts = ("OCI_NAMESPACE",)
    account_in_url = True
    hosts = ("oci.customer-oci.com", "oraclecloud.com")
    # Its customer secret keys are stored where AWS's tools look for keys.
    aws_roles = False

    def bucket_fault(self, bucket: str) -> str:
        """Return the fault of a bucket's name; the endings of S3's directory buckets are allowed."""
        return Service.bucket_fault(self, bucket)


class B2(S3):
    """Backblaze B2: PUT with a condition is 501, and some clusters refuse ``x-amz-checksum-*``."""

    name = "Backblaze B2"
    schemes = ("b2",)
    abilities = _UNCONDITIONAL
    checksums = False
    endpoint = "https://s3.{region}.backblazeb2.com"
    region = ""
    endpoints = ("B2_ENDPOINT_URL", "B2_ENDPOINT")
    regions = ("B2_REGION",)
    keys = ("B2_APPLICATION_KEY_ID", "B2_APPLICATION_KEY", "B2_SESSION_TOKEN")
    hosts = ("backblazeb2.com",)
    aws_files = aws_roles = False


class Wasabi(S3):
    """Wasabi."""

    name = "Wasabi"
    endpoint = "https://s3.{region}.wasabisys.com"
    endpoints = ("WASABI_ENDPOINT_URL",)
    regions = ("WASABI_REGION",)
    keys = ("WASABI_ACCESS_KEY_ID", "WASABI_SECRET_ACCESS_KEY", "WASABI_SESSION_TOKEN")
    hosts = ("wasabisys.com",)
    aws_files = aws_roles = False


class Tigris(S3):
    """Tigris."""

    name = "Tigris"
    schemes = ("tigris", "t3")
    endpoint = "https://t3.storage.dev"
    region = "auto"
    addressing = "virtual"
    endpoints = ("TIGRIS_STORAGE_ENDPOINT",)
    regions = ("TIGRIS_STORAGE_REGION",)
    keys = ("TIGRIS_STORAGE_ACCESS_KEY_ID", "TIGRIS_STORAGE_SECRET_ACCESS_KEY", "TIGRIS_STORAGE_SESSION_TOKEN")
    hosts = ("storage.dev", "tigris.dev")
    aws_files = aws_roles = False


class CoreWeave(S3):
    """CoreWeave AI Object Storage."""

    name = "CoreWeave AI Object Storage"
    endpoint = "https://cwobject.com"
    addressing = "virtual"
    virtual_only = True
    hosts = ("cwobject.com", "cwlota.com")
    aws_roles = False


class AIStore(S3):
    """NVIDIA AIStore. It does not verify signatures, but may require tokens."""

    name = "AIStore"
    schemes = ("ais",)
    abilities = _UNCONDITIONAL
    endpoint = ""
    addressing = "path"
    endpoints = ("AIS_ENDPOINT",)
    path = "/s3"
    keys = ("", "", "")
    keyless = True
    tokens = True
    aws_files = aws_roles = False

    def dialect(self) -> type[Dialect]:
        from penstock.stores.s3.dialect import Cluster

        return Cluster


class MinIO(S3):
    """MinIO."""

    name = "MinIO"
    abilities = _UNCOMPLETED
    endpoint = ""
    endpoints = ("MINIO_ENDPOINT",)
    regions = ("MINIO_REGION",)
    keys = ("MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", "MINIO_SESSION_TOKEN")
    aws_files = aws_roles = False


class Ceph(S3):
    """Ceph's gateway."""

    name = "Ceph"
    abilities = _UNCOMPLETED
    endpoint = ""
    aws_roles = False


class SwiftStack(S3):
    """SwiftStack."""

    name = "SwiftStack"
    checksums = False
    endpoint = ""
    aws_roles = False


class GoogleS3(S3):
    """Google Cloud Storage's S3 interface.

    It ignores If-None-Match silently (ClickHouse#115266), and a completion with a condition is 400.
    """

    name = "Google Cloud Storage's S3 interoperability"
    abilities = _UNCONDITIONAL
    checksums = False
    endpoint = "https://storage.googleapis.com"
    region = "auto"
    hosts = ("storage.googleapis.com",)
    aws_roles = False


class HuggingFaceBuckets(S3):
    """Hugging Face's Storage Buckets, at its S3 gateway. The account is the namespace: a user or an organization.

    A completion's condition is not in its manual, and it does not parse checksums.
    """

    name = "Hugging Face Storage Buckets"
    abilities = _UNCOMPLETED
    checksums = False
    endpoint = "https://s3.hf.co/{account}"
    addressing = "path"
    account_form = "[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
    hosts = ("s3.hf.co",)
    aws_roles = False

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        # The gateway redirects reads to other hosts, which no S3 client may follow with its signature, except for
        # clients that name botocore or another SDK: to them it sends the bytes itself.
        options = opening.options
        agent = f"{options.transport.user_agent_extra} like botocore".strip()
        asked = replace(options, transport=replace(options.transport, user_agent_extra=agent))
        return super().open(replace(opening, options=asked))


# By the word for ``S3Options.provider``.
SERVICES: Mapping[str, S3] = {
    "aws": AWS(),
    "r2": R2(),
    "oci": OCI(),
    "b2": B2(),
    "wasabi": Wasabi(),
    "tigris": Tigris(),
    "coreweave": CoreWeave(),
    "ais": AIStore(),
    "minio": MinIO(),
    "ceph": Ceph(),
    "s8k": SwiftStack(),
    "gcs": GoogleS3(),
    "hf-buckets": HuggingFaceBuckets(),
}


def find_service(word: str) -> S3:
    """Return the service for a word of ``S3Options.provider``; raise ``ConfigError`` for an unknown word."""
    if word not in SERVICES:
        near = get_close_matches(word, SERVICES, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(SERVICES)}"
        raise ConfigError(f"S3Options has no provider {word!r}: {meant}")
    return SERVICES[word]


def at(url: str | None) -> str:
    """Return the word of the service that an endpoint belongs to; empty for an unknown endpoint."""
    return next((word for word, service in SERVICES.items() if url is not None and service.has(url)), "")


def _split_identity(found: StoreSettings) -> tuple[Hashable, Hashable]:
    return replace(found, identity=b""), found.identity


def _bucket(opening: Opening) -> BucketAddress:
    """Return the bucket's address; raise ``ConfigError`` if its name, its account and the service do not match."""
    from penstock.stores.s3.dialect import BucketAddress

    settings, service, endpoint = opening.settings, opening.settings.service, opening.settings.endpoint
    name, _, account = opening.bucket.partition("@") if service.account_in_url else (opening.bucket, "", "")
    if endpoint is not None and "{account}" in endpoint:
        if not account:
            how = f"write {name}@ACCOUNT for the bucket, pass S3Options(account=…) or set {service.accounts[0]}"
            raise ConfigError(f"{service.name} needs an account: {how}", url=opening.root)
        endpoint = endpoint.replace("{account}", account)
    elif account and account != service.part_of(endpoint or "", "account"):
        raise ConfigError(f"the URL names the account {account!r}, and the endpoint is {endpoint}", url=opening.root)
    virtual = not path_style(name, settings.addressing, endpoint)
    if not virtual and (service.virtual_only or "s3-accelerate" in settings.own):
        message = f"{service.name} needs the bucket in the host name, but {name!r} is not valid there"
        raise ConfigError(message, url=opening.root)
    return BucketAddress(name, endpoint, virtual, opening.scheme, shown=opening.bucket, cluster=opening.options.cluster)


def _check_token(bucket: BucketAddress, opening: Opening) -> None:
    """Raise ``ConfigError`` if a token would be sent unencrypted to another machine."""
    from penstock.stores.s3.credentials import auth_token

    where, _ = auth_token(opening.environ)
    endpoint = bucket.endpoint or ""
    explicit = opening.options.access_key is not None or opening.options.anonymous
    if where and not explicit and endpoint.startswith("http:") and not endpoints.is_here(endpoint):
        message = f"{where} would be sent to {endpoint} unencrypted: use https, or unset it where no token is needed"
        raise ConfigError(message, url=opening.root)
