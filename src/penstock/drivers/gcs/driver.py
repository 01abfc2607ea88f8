"""Google Cloud Storage's verbs: S3's, a move on a condition, and listings that hide what is still being written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from penstock.drivers.gcs.crc import Crc32c
from penstock.drivers.gcs.vocabulary import REGION
from penstock.drivers.s3 import S3
from penstock.errors import Forbidden, Unusable
from penstock.protocols.credentials import BearerToken, Credentials
from penstock.protocols.driver import STAGED, Abilities, Conditions
from penstock.protocols.exchange import Exchange, Request
from penstock.values import Page, Upload, Uploads

if TYPE_CHECKING:
    from penstock.drivers.s3.vocabulary import Bucket, Vocabulary
    from penstock.protocols.credentials import Identity, Renewable
    from penstock.protocols.exchange import Response

__all__ = ["ABILITIES", "GCS"]

ABILITIES = Abilities(digest=Crc32c, complete=Conditions(create=False, replace=False), jumps=True)
_NAMED = STAGED.encode()  # as a listing has it, escaped or not: neither "." nor "/" nor "-" is
_PARTS, _OBJECTS = "\1", "\2"  # begin tokens of the second and the third part of ``uploads``, as no key does


class GCS(S3):
    """One bucket of Google Cloud Storage.

    Versions are generations. An upload in parts takes no condition: what is written on one goes to a key below
    ``STAGED`` first (``fetch/writing/staging``), which listings do not show and ``uploads`` does.
    """

    abilities = ABILITIES
    copy_part = None  # type: ignore[assignment]  # the XML API copies no parts; a copy of any size is one request

    def __init__(self, bucket: Bucket, identity: Identity[Any], vocabulary: Vocabulary, payer: str = "") -> None:
        """Speak to ``bucket`` as ``identity``; ``payer`` is the project that pays, where it is not empty."""
        super().__init__(bucket, REGION, identity, vocabulary)
        self._payer = payer
        self._renames = True

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List one page, without what is still being written."""
        found = super().list(prefix, token=token, start_after=start_after, delimiter=delimiter)

        def parse(response: Response) -> Page:
            page = found.parse(response)
            if not isinstance(response.body, bytes) or _NAMED not in response.body:  # nearly always
                return page
            entries = tuple(each for each in page.entries if not _waits(each.key))
            return Page(entries, tuple(each for each in page.prefixes if not _waits(each)), page.token)

        return Exchange(found.request, parse)

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        """List one page of unfinished uploads: in parts to their keys, in parts below ``STAGED``, whole objects there.

        The abort of an upload below ``STAGED`` needs the key that it was begun with, so its id names that one too.
        """
        if token.startswith(_OBJECTS):
            return self._staged_objects(prefix, token.removeprefix(_OBJECTS))
        staged = token.startswith(_PARTS)
        found = super().uploads(_beside(prefix) if staged else prefix, token=token.removeprefix(_PARTS))

        def parse(response: Response) -> Uploads:
            page = found.parse(response)
            entries = tuple(each for each in page.entries if each.key.startswith(STAGED) is staged)
            if staged:
                aimed = tuple(_aimed(each.key, each.id, each.begun) for each in entries)
                return Uploads(aimed, f"{_PARTS}{page.token}" if page.token else _OBJECTS)
            return Uploads(entries, page.token or _PARTS)

        return Exchange(found.request, parse)

    def _staged_objects(self, prefix: str, token: str) -> Exchange[Uploads]:
        found = super().list(_beside(prefix), token=token)

        def parse(response: Response) -> Uploads:
            page = found.parse(response)
            entries = tuple(_aimed(each.key, "", each.modified) for each in page.entries)
            return Uploads(entries, f"{_OBJECTS}{page.token}" if page.token else "")

        return Exchange(found.request, parse)

    def abort(self, key: str, upload: str) -> Exchange[None]:
        """Forget an upload and its parts, or an object that waits to be moved."""
        if not upload.startswith(STAGED):
            return super().abort(key, upload)
        staged, _, parts = upload.partition("\0")
        return super().abort(staged, parts) if parts else self.delete(staged)

    def move(
        self, source: str, key: str, etag: str = "", *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Move an object on a condition: by the JSON API with a token, and as a copy otherwise.

        A bucket or a role that does not offer the move is asked for a copy from then on.
        """
        action = "replace" if replaces else "write"
        if self._renames and isinstance(self.identity.current(), BearerToken):
            return self._rename(source, key, etag, "0" if create_only else replaces, action)
        headers = self._copy_source(source, etag) | self._conditions(create_only=create_only, replaces=replaces)
        return Exchange(self._request("PUT", key, headers=headers), self._versioned(action, key, "CopyObjectResult"))

    def _lasting(self, credentials: Renewable) -> Renewable:
        """Return lasting credentials for a token: its account's private key signs addresses, or nothing does."""
        return Credentials("", "") if isinstance(credentials, BearerToken) else credentials

    def _rename(self, source: str, key: str, etag: str, old: str, action: str) -> Exchange[str]:
        bucket, there, here = (quote(each, safe="") for each in (self._bucket, source, key))
        path = f"/storage/v1/b/{bucket}/o/{there}/moveTo/o/{here}"
        asked = {"ifGenerationMatch": old, "ifSourceGenerationMatch": etag, "userProject": self._payer}
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items() if value)
        parts = urlsplit(self._route.origin)
        origin, sign = f"{parts.scheme}://{parts.netloc}", self._route.sign
        lines = (*sign("POST", path, query, {}), "Content-Type:", "Expect:")

        def parse(response: Response) -> str:
            try:
                self._answers.headers(response, action, key)
            except (Forbidden, Unusable) as error:
                self._renames, error.retries = False, 1
                raise
            return _generation(response)

        return Exchange(Request("POST", f"{origin}{path}?{query}" if query else origin + path, lines), parse)


def _waits(key: str) -> bool:
    """Say whether an object waits to be moved, in the whole bucket or in a part of it that a profile shows."""
    return key.startswith(STAGED) or f"/{STAGED}" in key


def _beside(prefix: str) -> str:
    """Return the prefix of what waits for keys that begin with ``prefix``."""
    return f"{STAGED}{quote(prefix, safe='')}"


def _aimed(staged: str, parts: str, begun: float | None) -> Upload:
    """Return what waits at the key ``staged``, in parts or (empty) whole, under the key that it is to have."""
    key, dot, _ = staged.removeprefix(STAGED).rpartition(".")
    return Upload(unquote(key) if dot else staged, f"{staged}\0{parts}" if parts else staged, begun)


def _generation(response: Response) -> str:
    try:
        found = json.loads(response.body if isinstance(response.body, bytes) else b"")
    except ValueError:
        return ""
    generation = found.get("generation", "") if isinstance(found, dict) else ""
    return generation if isinstance(generation, str) else ""
