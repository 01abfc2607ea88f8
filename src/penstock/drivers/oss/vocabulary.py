"""What OSS calls things, of the verbs that S3's family shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.drivers.http.verify import Verification
from penstock.drivers.oss.codes import OSS_CODES
from penstock.drivers.oss.crc import HEADER, body_headers, is_crc64, stored_as
from penstock.drivers.oss.signing import PUT_HEADERS, Signer, oss_query
from penstock.drivers.s3.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.drivers.s3.vocabulary import Bucket, Sign
    from penstock.protocols.credentials import Credentials

__all__ = ["ALIBABA", "internal_endpoint", "sign_as_payer"]


def _signer(bucket: Bucket, host: str, region: str, credentials: Callable[[], Credentials | None]) -> Sign:
    del host  # is not signed
    return Signer(bucket, region, credentials).sign


def sign_as_payer(bucket: Bucket, host: str, region: str, credentials: Callable[[], Credentials | None]) -> Sign:
    """Sign, and agree to pay for the request ("Pay-by-requester")."""
    del host
    return Signer(bucket, region, credentials, headers={"x-oss-request-payer": "requester"}).sign


def _endpoint(region: str) -> str:
    return f"https://oss-{region}.aliyuncs.com"


def internal_endpoint(region: str) -> str:
    """Return OSS's endpoint for a region within Alibaba's own network."""
    return f"https://oss-{region}-internal.aliyuncs.com"


ALIBABA = Vocabulary(
    prefix="x-oss-",
    codes=OSS_CODES,
    # On every GET and HEAD, of the whole object.
    verification=Verification(digests={HEADER: is_crc64}),
    escaped_token=True,
    signer=_signer,
    presigner=oss_query,
    presigned_headers=PUT_HEADERS,
    body_headers=body_headers,
    stored_as=stored_as,
    endpoint=_endpoint,
    domain=lambda _region: "aliyuncs.com",
    copy_pin="x-oss-copy-source-if-match",
    copy_root="/",
    create=("x-oss-forbid-overwrite", "true"),
    replace="",
    conditions_begin=True,
    # Otherwise a range beyond the end brings the whole object with 200 (OSS API reference, GetObject).
    read_headers={"x-oss-range-behavior": "standard"},
)
