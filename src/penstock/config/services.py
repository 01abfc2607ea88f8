"""The services that speak S3's dialect, as data: where each is, and which variables its users set."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AWS", "SERVICES", "Service", "at", "keys", "named", "shared", "where"]

_NAMES = {"{account}": "(?P<account>[a-z0-9-]+(?:\\.[a-z0-9-]+)?)", "{region}": "(?P<region>[A-Za-z0-9-]+)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service that speaks the S3 dialect: where it is unless somebody says otherwise, and which variables say so.

    Attributes:
        name: Its name in messages.
        endpoint: Its endpoint; ``{region}`` and ``{account}`` in it stand for region and account. None for AWS's own,
            empty where each user has another, which has to be named.
        region: Signing region; empty where it has to be named.
        addressing: How buckets are addressed there; None: ``virtual`` on AWS itself, ``path`` elsewhere.
        virtual_only: It refuses path style.
        endpoints: Environment variables that name another endpoint, the first that is set counts.
        path: What is added to an endpoint that has no path.
        regions: The same for the region.
        accounts: The same for the account.
        account_in_url: A URL may name the account behind the bucket: ``scheme://bucket@account/key``.
        keys: The variables of key id, secret and session token.
        keyless: Without keys requests go unsigned.
        tokens: It takes bearer tokens, as AIStore does (``config.aistore``).
        hosts: Domains of its endpoints: an endpoint in one of them is this service's.
        aws_files: Settings and credentials that AWS's tools share count too: the profile in their files, the variables
            of their credential chain. A profile that was passed explicitly always counts.
        aws_roles: So does the rest of that chain: roles, single sign-on, processes, instance metadata.

    """

    name: str = "S3"
    endpoint: str | None = None
    region: str = "us-east-1"
    addressing: Literal["path", "virtual"] | None = None
    virtual_only: bool = False
    endpoints: tuple[str, ...] = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    path: str = ""
    regions: tuple[str, ...] = ("AWS_REGION", "AWS_DEFAULT_REGION")
    accounts: tuple[str, ...] = ()
    account_in_url: bool = False
    keys: tuple[str, str, str] = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    keyless: bool = False
    tokens: bool = False
    hosts: tuple[str, ...] = ()
    aws_files: bool = True
    aws_roles: bool = True

    def has(self, url: str) -> bool:
        """Say whether an endpoint is this service's, by its host."""
        host = f".{urlsplit(url).hostname or ''}"
        return any(host.endswith(f".{domain}") for domain in self.hosts)

    def told(self, url: str, what: Literal["region", "account"]) -> str:
        """Return the region or account that an endpoint of this service names; empty where it names none."""
        pattern = re.escape(urlsplit(self.endpoint or "").netloc).replace(r"\{", "{").replace(r"\}", "}")
        for name, group in _NAMES.items():
            pattern = pattern.replace(name, group)
        match = re.fullmatch(pattern, urlsplit(url).netloc)
        return (match.groupdict().get(what) or "") if match else ""


AWS = Service()

# By the word for ``S3Options.provider``. Endpoints, regions and addressing are those of each service's own manual
# (docs/stores.md); variables are those of its own tools, or of the library where its users meet it.
SERVICES: Mapping[str, Service] = {
    "aws": AWS,
    "r2": Service(
        name="Cloudflare R2",
        endpoint="https://{account}.r2.cloudflarestorage.com",
        region="auto",
        endpoints=("R2_ENDPOINT_URL", "R2_ENDPOINT"),
        regions=("R2_REGION",),
        accounts=("R2_ACCOUNT_ID", "CLOUDFLARE_ACCOUNT_ID"),
        keys=("R2_ACCESS_KEY_ID", "R2_SECRET_ACCESS_KEY", "R2_SESSION_TOKEN"),
        hosts=("r2.cloudflarestorage.com",),
        aws_files=False,
        aws_roles=False,
    ),
    "oci": Service(
        name="OCI Object Storage",
        endpoint="https://{account}.compat.objectstorage.{region}.oci.customer-oci.com",
        region="",
        endpoints=("OCI_S3_ENDPOINT_URL",),
        regions=("OCI_REGION", "OCI_CLI_REGION"),
        accounts=("OCI_NAMESPACE",),
        account_in_url=True,
        hosts=("oci.customer-oci.com", "oraclecloud.com"),
        aws_roles=False,  # its customer secret keys lie where AWS's tools look for keys
    ),
    "b2": Service(
        name="Backblaze B2",
        endpoint="https://s3.{region}.backblazeb2.com",
        region="",
        endpoints=("B2_ENDPOINT_URL", "B2_ENDPOINT"),
        regions=("B2_REGION",),
        keys=("B2_APPLICATION_KEY_ID", "B2_APPLICATION_KEY", "B2_SESSION_TOKEN"),
        hosts=("backblazeb2.com",),
        aws_files=False,
        aws_roles=False,
    ),
    "wasabi": Service(
        name="Wasabi",
        endpoint="https://s3.{region}.wasabisys.com",
        endpoints=("WASABI_ENDPOINT_URL",),
        regions=("WASABI_REGION",),
        keys=("WASABI_ACCESS_KEY_ID", "WASABI_SECRET_ACCESS_KEY", "WASABI_SESSION_TOKEN"),
        hosts=("wasabisys.com",),
        aws_files=False,
        aws_roles=False,
    ),
    "tigris": Service(
        name="Tigris",
        endpoint="https://t3.storage.dev",
        region="auto",
        addressing="virtual",
        endpoints=("TIGRIS_STORAGE_ENDPOINT",),
        regions=("TIGRIS_STORAGE_REGION",),
        keys=("TIGRIS_STORAGE_ACCESS_KEY_ID", "TIGRIS_STORAGE_SECRET_ACCESS_KEY", "TIGRIS_STORAGE_SESSION_TOKEN"),
        hosts=("storage.dev", "tigris.dev"),
        aws_files=False,
        aws_roles=False,
    ),
    "coreweave": Service(
        name="CoreWeave AI Object Storage",
        endpoint="https://cwobject.com",
        addressing="virtual",
        virtual_only=True,
        hosts=("cwobject.com", "cwlota.com"),
        aws_roles=False,
    ),
    "ais": Service(
        name="AIStore",
        endpoint="",
        addressing="path",
        endpoints=("AIS_ENDPOINT",),
        path="/s3",
        keys=("", "", ""),  # it verifies no signature
        keyless=True,
        tokens=True,
        aws_files=False,
        aws_roles=False,
    ),
    "minio": Service(
        name="MinIO",
        endpoint="",
        endpoints=("MINIO_ENDPOINT",),
        regions=("MINIO_REGION",),
        keys=("MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", "MINIO_SESSION_TOKEN"),
        aws_files=False,
        aws_roles=False,
    ),
    "ceph": Service(name="Ceph", endpoint="", aws_roles=False),
    "s8k": Service(name="SwiftStack", endpoint="", aws_roles=False),
    "gcs": Service(
        name="Google Cloud Storage's S3 interoperability",
        endpoint="https://storage.googleapis.com",
        region="auto",
        hosts=("storage.googleapis.com",),
        aws_roles=False,
    ),
}


def where(service: Service) -> str:
    """Return the settings that say where a service is, options and variables, for texts."""
    named = [("endpoint=", service.endpoints), ("region=", service.regions), ("account=", service.accounts)]
    return ", ".join(f"{option} or {min(names, key=len)}" for option, names in named if names)


def keys(service: Service) -> str:
    """Return the settings that say who asks, options and variables, for texts."""
    if service.keyless:
        return "no keys are needed"
    profile = ", profile= or AWS_PROFILE" if service.aws_files else ""
    return f"access_key= or {service.keys[0]}{profile}"


def shared(service: Service) -> Service:
    """Return a service with AWS's variables and files after its own: for ``s3://``, where they mean its store."""
    return replace(
        service,
        endpoints=tuple(dict.fromkeys((*service.endpoints, *AWS.endpoints))),
        regions=tuple(dict.fromkeys((*service.regions, *AWS.regions))),
        aws_files=True,
        aws_roles=True,
    )


def named(word: str) -> Service:
    """Return the service of a word for ``S3Options.provider``: ``ConfigError`` for another word."""
    if word not in SERVICES:
        near = get_close_matches(word, SERVICES, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(SERVICES)}"
        message = f"S3Options has no provider {word!r}: {meant}"
        raise ConfigError(message)
    return SERVICES[word]


def at(url: str | None) -> str:
    """Return the word of the service that an endpoint belongs to; empty where no service has it."""
    return next((word for word, service in SERVICES.items() if url is not None and service.has(url)), "")
