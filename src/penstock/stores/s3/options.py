"""Options of S3 and of the stores that speak its dialect."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.errors import ConfigError
from penstock.options.parts import StoreOptions, check_sources
from penstock.options.private import PUBLIC

if TYPE_CHECKING:
    from collections.abc import Callable

_MEMBER = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*|[0-9.]+/[0-9]{1,2}|[0-9a-f:]+(/[0-9]{1,3})?").fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options(StoreOptions):
    """Location and credentials of an S3-compatible store. These options override the environment and every file.

    Attributes:
        endpoint: Base URL of an S3-compatible server, with a path where it has one; default ``AWS_ENDPOINT_URL_S3``,
            ``AWS_ENDPOINT_URL``, the profile's ``endpoint_url``, then AWS's own for the region.
        region: Signing region; default ``AWS_REGION``, ``AWS_DEFAULT_REGION``, the profile's, then ``us-east-1``.
        access_key: Key id; with ``secret_key``. Default: the credential chain.
        secret_key: Secret; never shown, logged or written. Options with it are pickled for workers and nowhere else.
        session_token: Token of temporary credentials.
        profile: Name in the shared AWS files; default ``AWS_PROFILE``.
        credentials: A function of your own that returns ``ps.credentials.Credentials``; asked again before they expire.
            Workers get it by reference, so define it at a module's level.
        credentials_process: A program, with its arguments, that prints credentials as JSON (docs/credentials.md).
        anonymous: Send unsigned requests (public data).
        requester_pays: Pay for requests to buckets with Requester Pays; default ``AWS_REQUEST_PAYER=requester``, as
            in GDAL.
        addressing: ``path`` (``host/bucket/key``), ``virtual`` (``bucket.host/key``), or ``auto``: virtual on AWS
            itself, path wherever an endpoint is given.
        provider: The service that speaks S3's dialect, for its endpoint, limits and environment variables: ``aws``,
            ``r2``, ``oci``, ``b2``, ``wasabi``, ``tigris``, ``coreweave``, ``ais``, ``minio``, ``ceph``,
            ``s8k``, ``gcs`` or ``hf-buckets``. Default: the URL's scheme, else the service that the endpoint's host
            belongs to.
        account: The account in the endpoint, where the service has one: R2's account id, with its jurisdiction if it
            has one (``ID.eu``); OCI's namespace. Default: the service's environment variable.
        cluster: Hosts, domains and networks (``10.0.0.0/16``) of an AIStore cluster's servers, which its gateway
            redirects to. Default: the gateway's own domain; for a private address those of its /16.
        dual_stack: Reach AWS over IPv6 too; default ``AWS_USE_DUALSTACK_ENDPOINT``, then the profile's.
        fips: Reach AWS by its FIPS endpoints; default ``AWS_USE_FIPS_ENDPOINT``, then the
            profile's.
        accelerate: Use S3 Transfer Acceleration, which the bucket must have enabled; default the profile's.
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Resources shared with other processes of the machine.

    Example:
        >>> options = ps.S3Options(region="us-east-1", access_key="testing", secret_key="testing")
        >>> ps.stat("s3://bucket/train/3/0000.png", store=options).key
        'train/3/0000.png'
    """

    endpoint: str | None = field(default=None, metadata=PUBLIC)
    region: str | None = field(default=None, metadata=PUBLIC)
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = field(default=None, metadata=PUBLIC)
    credentials: Callable[[], object] | None = field(default=None, hash=False)  # may be unhashable
    credentials_process: str | tuple[str, ...] | None = None
    anonymous: bool = False
    requester_pays: bool = field(default=False, metadata={"elsewhere": ("user_project",)})
    addressing: Literal["auto", "path", "virtual"] = field(default="auto", metadata=PUBLIC)
    provider: str | None = field(default=None, metadata=PUBLIC)
    account: str | None = field(default=None, metadata=PUBLIC)
    cluster: tuple[str, ...] = field(default=(), metadata=PUBLIC)
    dual_stack: bool | None = None
    fips: bool | None = None
    accelerate: bool | None = None

    def __post_init__(self) -> None:
        check_sources(self, "anonymous", "access_key", "credentials", "credentials_process")
        if faults := [each for each in self.cluster if not _MEMBER(each)]:
            raise ConfigError(f"cluster must be hosts, domains and networks such as 10.0.0.0/16, got {faults[0]!r}")
        if self.addressing not in ("auto", "path", "virtual"):
            raise ConfigError(f"addressing must be 'auto', 'path' or 'virtual', got {self.addressing!r}")
