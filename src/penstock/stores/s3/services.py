"""Services that speak S3's dialect, as data: their endpoints, and the variables that their users set.

AIStore's token, from the environment variable or file that its command line and its SDK use.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from penstock.errors import ConfigError
from penstock.stores.http.network import first, variables

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = ["AWS", "SERVICES", "Service", "at", "auth_token", "keys", "named", "shared", "where"]

_NAMES = {"{account}": "(?P<account>[a-z0-9-]+(?:\\.[a-z0-9-]+)?)", "{region}": "(?P<region>[A-Za-z0-9-]+)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Service that speaks the S3 dialect: its default location, and the variables that override it.

    Attributes:
        name: Name in messages.
        endpoint: Endpoint, with ``{region}`` and ``{account}`` for region and account. None for AWS's own, empty if
            every user has a different one, which must be named.
        region: Signing region; empty if it must be named.
        addressing: How buckets are addressed there; None: ``virtual`` on AWS itself, ``path`` elsewhere.
        virtual_only: The service refuses path style.
        endpoints: Environment variables that name another endpoint; the first that is set counts.
        path: Added to an endpoint that has no path.
        regions: Environment variables that name the region; the first that is set counts.
        accounts: Environment variables that name the account; the first that is set counts.
        account_in_url: A URL may name the account behind the bucket: ``scheme://bucket@account/key``.
        keys: Variables of key id, secret and session token.
        keyless: Requests without keys are sent unsigned.
        tokens: The service takes bearer tokens, as AIStore does (``s3.aistore``).
        hosts: Domains of its endpoints: an endpoint in one of them is this service's.
        aws_files: Use settings and credentials that AWS's tools share, too: the profile in their files, the variables
            of their credential chain. A profile that was passed explicitly always counts.
        aws_roles: Use the rest of that chain, too: roles, single sign-on, processes, instance metadata.

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
        """Return whether an endpoint is this service's, by its host."""
        host = f".{urlsplit(url).hostname or ''}"
        return any(host.endswith(f".{domain}") for domain in self.hosts)

    def told(self, url: str, what: Literal["region", "account"]) -> str:
        """Return the region or account that an endpoint of this service names; empty if it names none."""
        pattern = re.escape(urlsplit(self.endpoint or "").netloc).replace(r"\{", "{").replace(r"\}", "}")
        for name, group in _NAMES.items():
            pattern = pattern.replace(name, group)
        match = re.fullmatch(pattern, urlsplit(url).netloc)
        return (match.groupdict().get(what) or "") if match else ""


AWS = Service()

# By the word for ``S3Options.provider``. Endpoints, regions and addressing come from each service's own manual
# (docs/stores.md); variables from its own tools, or from the library that its users know.
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
        # Its customer secret keys are stored where AWS's tools look for keys.
        aws_roles=False,
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
        keys=("", "", ""),  # it does not verify signatures
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
    """Return the settings that locate a service, options and variables, for messages."""
    named = [("endpoint=", service.endpoints), ("region=", service.regions), ("account=", service.accounts)]
    return ", ".join(f"{option} or {min(names, key=len)}" for option, names in named if names)


def keys(service: Service) -> str:
    """Return the settings that name a service's credentials, options and variables, for messages."""
    if service.keyless:
        return "no keys are needed"
    profile = ", profile= or AWS_PROFILE" if service.aws_files else ""
    return f"access_key= or {service.keys[0]}{profile}"


def shared(service: Service) -> Service:
    """Return a service with AWS's variables and files after its own: for ``s3://``, where they apply to its store."""
    return replace(
        service,
        endpoints=tuple(dict.fromkeys((*service.endpoints, *AWS.endpoints))),
        regions=tuple(dict.fromkeys((*service.regions, *AWS.regions))),
        aws_files=True,
        aws_roles=True,
    )


def named(word: str) -> Service:
    """Return the service of a word for ``S3Options.provider``; raise ``ConfigError`` for an unknown word."""
    if word not in SERVICES:
        near = get_close_matches(word, SERVICES, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(SERVICES)}"
        message = f"S3Options has no provider {word!r}: {meant}"
        raise ConfigError(message)
    return SERVICES[word]


def at(url: str | None) -> str:
    """Return the word of the service that an endpoint belongs to; empty for an unknown endpoint."""
    return next((word for word, service in SERVICES.items() if url is not None and service.has(url)), "")


_FILE = "~/.config/ais/cli/auth.token"  # where ``ais auth login`` writes it


def auth_token(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the origin of a token, and the token: from ``AIS_AUTHN_TOKEN``, else from ``AIS_AUTHN_TOKEN_FILE``.

    The default file is the one of AIStore's command line. Without a token, both texts are empty.

    Raises:
        ConfigError: The named file does not exist; the file or the token is invalid.

    """
    if token := environ.get("AIS_AUTHN_TOKEN"):
        return "AIS_AUTHN_TOKEN", _clean(token, "AIS_AUTHN_TOKEN")
    named, text = first(variables(environ, "AIS_AUTHN_TOKEN_FILE"))
    path = Path(os.path.expanduser(text or _FILE))  # noqa: PTH111  pathlib's raises without HOME
    try:
        held = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if text is None:
            return "", ""
        raise ConfigError(f"{named} names the file {path}, which is not there") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {path} cannot be read: {type(error).__name__}") from None
    try:
        value = json.loads(held)
    except (ValueError, RecursionError):
        value = held
    token = value.get("token") if isinstance(value, dict) else held.strip()
    return f"the token file {path}", _clean(token, f"the token file {path}")


def _clean(token: object, named: str) -> str:
    if not isinstance(token, str) or not token or not all("!" <= char <= "~" for char in token):
        raise ConfigError(f"{named} holds no token: text of visible ASCII characters, or JSON with token")
    return token
