"""What a web server's HTTP statuses mean: STATUSES of all dialects, with what to do about them here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.drivers.http.codes import STATUSES, Codes, Meaning
from penstock.errors import Forbidden, NotFound, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["WEB_CODES"]

_STATUSES: Mapping[int, Meaning] = {
    **STATUSES,
    401: Meaning(Unauthenticated, "; pass HTTPOptions(token=…) or HTTPOptions(username=…, password=…)"),
    403: Meaning(
        Forbidden, "; it needs credentials (HTTPOptions) or has no index; a signed URL may have expired or be cut short"
    ),
    404: Meaning(NotFound, "; no such file: check the path"),
    407: Meaning(Unauthenticated, "; the proxy wants credentials: pass TransportOptions(proxy=…)"),
    410: Meaning(NotFound, "; it is gone for good"),
    451: Meaning(Forbidden, "; it may not be shown for legal reasons"),
}

# Only S3-alikes and Azure send codes; there they say what a refusal means, and no web server has any of its own.
WEB_CODES = Codes(service="HTTP", codes={}, statuses=_STATUSES, where="the URL")
