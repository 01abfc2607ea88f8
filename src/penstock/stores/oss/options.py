"""Options of Alibaba Cloud OSS."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.errors import ConfigError
from penstock.options.parts import StoreOptions, check_sources
from penstock.options.private import PUBLIC

if TYPE_CHECKING:
    from collections.abc import Callable

WHERE = "endpoint= or OSS_ENDPOINT, region= or OSS_REGION"  # settings that locate it, for messages
# The host of a region, perhaps after a bucket or "s3"; "-internal" is for access from Alibaba's own networks.
_ENDPOINT = re.compile(r"(?:[a-z0-9-]+\.)?oss-([a-z0-9-]{1,40}?)(?:-internal)?\.aliyuncs\.com")
# Dual-stack, like cn-beijing.oss.aliyuncs.com.
_DUAL = re.compile(r"(?:[a-z0-9-]+\.)?([a-z0-9-]{1,40})\.oss\.aliyuncs\.com")
_NO_REGION = ("accelerate", "accelerate-overseas")


def region_of(host: str) -> str:
    """Return the region in a host name of OSS; empty if it names none (acceleration, a custom domain)."""
    match = _ENDPOINT.fullmatch(host) or _DUAL.fullmatch(host)
    return match[1] if match and match[1] not in _NO_REGION else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OSSOptions(StoreOptions):
    """Location and credentials of Alibaba Cloud OSS. These options override the environment and every file.

    Attributes:
        region: The bucket's region, such as ``cn-hangzhou``; default: the region in the endpoint's host, then
            ``OSS_REGION``.
        endpoint: Base URL of the service, without the bucket; default ``OSS_ENDPOINT``, then
            ``https://oss-REGION.aliyuncs.com``. With ``addressing="cname"`` the domain that is bound to the bucket.
        internal: Reach the region from within Alibaba's network (``oss-REGION-internal.aliyuncs.com``).
        addressing: ``virtual`` (``bucket.host/key``), ``cname`` (the endpoint's host is the bucket), ``path``
            (``host/bucket/key``, which OSS itself refuses), or ``auto``: path where the host is an IP address, else
            virtual.
        access_key: AccessKey ID; with ``secret_key``. Default: ``OSS_ACCESS_KEY_ID``, then the credential chain.
        secret_key: AccessKey secret; never shown, logged or written. Options with it are pickled for workers and
            nowhere else.
        session_token: Security token of temporary credentials.
        credentials_file: Alibaba's file of credentials in JSON, read again before they expire; default
            ``ALIBABA_CLOUD_CREDENTIALS_FILE``, then ``~/.alibabacloud/credentials``.
        ecs_role: The RAM role of this ECS instance whose credentials are used; default
            ``ALIBABA_CLOUD_ECS_METADATA``, else the instance's own role.
        credentials: Your function that returns ``ps.credentials.Credentials``; called on callers' threads, before they
            expire.
        credentials_process: A program that prints credentials in JSON, as AWS's ``credential_process`` does.
        anonymous: Send unsigned requests (public data).
        requester_pays: Pay for requests to buckets in the pay-by-requester mode.
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Resources shared with other processes of the machine.

    Example:
        >>> options = ps.OSSOptions(region="cn-hangzhou", internal=True, ecs_role="training")
        >>> options.region
        'cn-hangzhou'
    """

    region: str | None = field(default=None, metadata=PUBLIC)
    endpoint: str | None = field(default=None, metadata=PUBLIC)
    internal: bool = False
    addressing: Literal["auto", "virtual", "cname", "path"] = field(default="auto", metadata=PUBLIC)
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    credentials_file: str | None = field(default=None, metadata=PUBLIC)
    ecs_role: str | None = field(default=None, metadata=PUBLIC)
    credentials: Callable[[], object] | None = field(default=None, hash=False)  # may be unhashable
    credentials_process: str | tuple[str, ...] | None = None
    anonymous: bool = False
    requester_pays: bool = field(default=False, metadata={"elsewhere": ("user_project",)})

    def __post_init__(self) -> None:
        sources = ("access_key", "credentials", "credentials_process", "credentials_file", "ecs_role")
        check_sources(self, "anonymous", *sources)
        if self.addressing not in ("auto", "virtual", "cname", "path"):
            raise ConfigError(f"addressing must be 'auto', 'virtual', 'cname' or 'path', got {self.addressing!r}")
        if self.internal and self.endpoint is not None:
            raise ConfigError("internal=True selects OSS's own endpoint: leave out endpoint=")
