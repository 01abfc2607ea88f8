"""What Google Cloud Storage calls things, of the verbs that S3's family shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.drivers.gcs.codes import GOOGLE_CODES
from penstock.drivers.gcs.crc import HEADER, body_headers, is_stored
from penstock.drivers.gcs.signing import bearer, google_query, hmac_keys
from penstock.drivers.http.verify import Verification
from penstock.drivers.s3.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from penstock.drivers.s3.vocabulary import Bucket, Sign

__all__ = ["REGION", "google"]

REGION = "auto"  # of signatures: the service has none that they depend on
_HOST = "storage.googleapis.com"
_IF = "x-goog-if-generation-match"


def google(*, keys: bool, user_project: str = "") -> Vocabulary:
    """Return the vocabulary for HMAC ``keys``, or else for bearer tokens; ``user_project`` pays, unless empty."""
    signer: Callable[[Bucket, str, str, Callable[[], Any]], Sign]
    signer = hmac_keys(user_project) if keys else bearer(user_project)
    return Vocabulary(
        prefix="x-goog-",
        codes=GOOGLE_CODES,
        # The generation, because an ETag of XML is not what conditions take; the stored size, because Content-Length
        # is missing where the service decompresses.
        verification=Verification(
            version="x-goog-generation", size="x-goog-stored-content-length", digests={HEADER: is_stored}
        ),
        version_element="Generation",
        signer=signer,
        presigner=google_query(user_project),
        body_headers=body_headers,
        endpoint=lambda _region: f"https://{_HOST}",
        domain=lambda _region: _HOST,
        pin=_IF,
        copy_pin="x-goog-copy-source-if-generation-match",
        create=(_IF, "0"),
        replace=_IF,
        quotes=False,
        # Otherwise objects that are stored as gzip come decompressed, whole, and without a length.
        read_headers={"accept-encoding": "gzip"},
    )
