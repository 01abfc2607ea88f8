"""The verbs of Azure Blob Storage: each becomes an authorised request, each response a result or an error."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from functools import partial
from hashlib import md5
from typing import TYPE_CHECKING, Literal

from penstock.drivers.azure.codes import AZURE_CODES, FULL_FOLDER
from penstock.drivers.azure.folders import Walk
from penstock.drivers.azure.listing import is_folder, page_of, read_blobs, read_uncommitted
from penstock.drivers.azure.signing import AccountKey, Signer
from penstock.drivers.azure.writing import (
    METADATA,
    block_id,
    block_list,
    conditions,
    described,
    described_in,
    held,
    new_upload,
)
from penstock.drivers.direct import direct
from penstock.drivers.http.answers import Answers
from penstock.drivers.http.escape import escape, trimmed
from penstock.drivers.http.headers import is_strong, parse_date, unquoted
from penstock.drivers.http.lifetime import lifetime
from penstock.drivers.http.metadata import read_metadata
from penstock.drivers.http.reads import Reads
from penstock.drivers.http.verify import Verification
from penstock.drivers.http.walks import Walks
from penstock.errors import InvalidURL, NotFound, PenstockError, Unsupported
from penstock.protocols.driver import Abilities, Payload
from penstock.protocols.exchange import Exchange, Request
from penstock.values import ObjectMeta, Page, Presigned, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.buffer import Buffer
    from penstock.drivers.azure.signing import Authorization, Container
    from penstock.protocols.credentials import Identity
    from penstock.protocols.driver import Attributes, Digest, Part
    from penstock.protocols.exchange import Response
    from penstock.values import Uploads

__all__ = ["ABILITIES", "Azure"]

_LISTING_BYTES = 64 << 20  # a page: 5,000 names of 1,024 characters with all properties, and metadata
_PLAIN = re.compile(r"[A-Za-z0-9/_.~-]+").fullmatch  # keys that need no escaping: nearly all
_MOST_ABORTED = 1024
_WALK = "\0"  # begins the tokens of walks; a marker has none
_NOTHING = Page((), advanced=True)
_MOST_S = 10 * 365 * 86_400  # of a signed address: Azure has no bound, and a key does not last longer
_PRESIGNED: dict[str, tuple[str, dict[str, str]]] = {
    "GET": ("r", {}),
    "PUT": ("cw", {"x-ms-blob-type": "BlockBlob"}),  # create, and write over what is there
}


def _begin_md5() -> Digest:
    return md5(usedforsecurity=False)


def _is_md5(stored: str, body: memoryview | bytes) -> bool:
    return b64encode(md5(body, usedforsecurity=False).digest()).decode() == stored


# A body is refused, and nothing stored, where its Content-MD5 is another's.
ABILITIES = Abilities(digest=_begin_md5, seeks=False, ranges=None)
_SUMMED, _UNSUMMED = Verification(digests={"content-md5": _is_md5}), Verification()


class Azure(Reads):
    """One container; see ``protocols.driver`` for the verbs' contract.

    Each verb is one request, but for ``create`` and ``abort``, which are none: blocks belong to the object's name, not
    to an upload, and the service forgets those that were never committed after a week. So an upload is a random name
    in the ids of its blocks, and carries the attributes of its object, which go where it is completed.
    """

    page_keys = 5000

    def __init__(self, container: Container, identity: Identity[Authorization], *, checksums: bool = True) -> None:
        """Speak to ``container`` as ``identity``; ``checksums`` compares whole objects with their stored MD5."""
        self.abilities = ABILITIES
        self._root = container.root
        path, self._container = _split(container)
        self._origin = container.endpoint.removesuffix(path)
        self._base = f"{path}/{self._container}/"
        self.identity = identity
        self._sign = Signer(container, identity.current)
        self._answers = Answers(AZURE_CODES, identity, self)
        self._verify = verify = _SUMMED if checksums else _UNSUMMED
        self._wants = verify.range_headers, verify.whole_headers
        self._sized = verify.sized_headers
        self._aborted: dict[str, None] = {}
        self._hierarchical = False  # as far as is known
        self._walks = Walks(Walk.begin)

    def url(self, key: str) -> str:
        """Return ``scheme://container/key``."""
        return f"{self._root}{key}"

    def prepare(self) -> None:
        """Load or renew credentials when it is time."""
        self.identity.refresh_if_due()

    def follow_region(self, region: str) -> bool:  # noqa: ARG002  as ``drivers.http.answers`` has it
        """Return False: an account is at one place."""
        return False

    def follow_redirect(self, key: str, location: str) -> bool:  # noqa: ARG002  as above
        """Return False: the service never redirects."""
        return False

    def head(self, key: str) -> Exchange[ObjectMeta]:
        """Describe one object; what stands for a folder is ``NotFound``."""

        def parse(response: Response) -> ObjectMeta:
            headers = self._answers.headers(response, "look up", key)
            metadata = read_metadata(headers, METADATA)
            if is_folder(metadata, headers.get("x-ms-resource-type", "")):
                raise NotFound("no such object (a folder is none)", url=self.url(key))
            with self._answers.locating(key):
                size = self._verify.length(headers)
            return ObjectMeta(
                key=key,
                size=size,
                etag=unquoted(headers.get("etag", "")),
                modified=parse_date(headers.get("last-modified", "")),
                metadata=metadata,
                content_type=headers.get("content-type", ""),
            )

        return Exchange(self._request("HEAD", key), parse)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List one page of at most ``page_keys`` keys; those up to ``start_after`` are listed and left out.

        The first names tell whether the account has a hierarchical namespace, which is listed folder by folder.
        """
        flat = bool(delimiter)
        walk: Walk | None = None
        if token.startswith(_WALK):
            walk = self._walks.find(token[1:], prefix, flat=flat)
        elif self._hierarchical:
            walk = Walk.begin(prefix, start_after, flat=flat)
        marker, _, after = token.partition("\0") if token else ("", "", start_after)
        query = walk.query if walk else {"prefix": prefix, "delimiter": delimiter, "marker": marker}

        def parse(response: Response) -> Page:
            with self._answers.locating(prefix):
                found = read_blobs(self._answers.document(response, "list", prefix, "EnumerationResults"))
                if walk is None and not found.hierarchical:
                    return page_of(found, after)
                if delimiter not in ("", "/"):
                    raise Unsupported("an account with a hierarchical namespace has folders: the delimiter is '/'")
                self._hierarchical = True
                here = walk or Walk.begin(prefix, after, flat=flat)
                page, following = here.enter(found) if walk or not marker else (_NOTHING, here)
            return replace(page, token=_WALK + self._walks.keep(following, following.after) if following else "")

        return Exchange(self._listing({"include": "metadata", **query}), parse)

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span; no range is sent where it is the whole object, and a HEAD where it is empty."""
        key, start, _, etag, whole, _ = span
        method, headers = "GET", {}
        if is_strong(etag):
            headers["if-match"] = f'"{etag}"'
        if not whole:
            if target.size:
                headers["x-ms-range"] = f"bytes={start}-{start + target.size - 1}"
            else:
                method = "HEAD"  # no range says "nothing"
        path = self._base + (key if _PLAIN(key) else escape(key))
        search, lines = self._sign.sign(method, path, _NO_QUERY, headers)
        request = Request(method, self._origin + path + search, lines, self._wants[whole], target)
        return Exchange(request, partial(self._verified, span, target))

    def _whole(self, key: str, etag: str) -> Request:
        return self._request("GET", key, headers=held("if-match", etag))

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        """Write one object in one request."""
        headers = {"x-ms-blob-type": "BlockBlob", **described(attributes)}
        headers |= conditions(create_only=attributes.create_only, replaces=attributes.replaces)
        request = self._request("PUT", key, headers=headers, body=body)
        return Exchange(request, self._versioned("replace" if attributes.replaces else "write", key))

    def delete(self, key: str) -> Exchange[None]:
        """Delete one object; a missing one is no error, a missing container is one. A folder is no object."""
        deleted = self._answers.deletion("delete", key)

        def parse(response: Response) -> None:
            try:
                deleted(response)
            except NotFound as error:
                if error.code != FULL_FOLDER:
                    raise

        return Exchange(self._request("DELETE", key), parse)

    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        """Copy within the container, server side; objects up to 256 MiB."""
        headers = {"x-ms-requires-sync": "true", **self._source(source, etag)}
        return Exchange(self._request("PUT", key, headers=headers), self._copied(source, key))

    def _source(self, source: str, etag: str) -> dict[str, str]:
        url = f"{self._origin}{self._base}{escape(source)}"
        return {**self._sign.source(source, url), **held("x-ms-source-if-match", etag)}

    def _copied(self, source: str, key: str) -> Callable[[Response], str]:
        def parse(response: Response) -> str:
            name = source if response.status in (404, 412) else key
            return self._answers.version(response, "etag", "copy", name)

        return parse

    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        """Begin an upload, without a request; returns its id."""
        upload = new_upload(attributes)
        self._require(key)
        return direct(lambda: upload, blocks=False)

    def part(self, key: str, upload: str, part: Part, body: Payload) -> Exchange[str]:
        """Send one block; returns its id, which stands where other stores have an ETag."""
        block = block_id(upload, part)
        parse = self._versioned("write a part of", key)
        request = self._request("PUT", key, query={"comp": "block", "blockid": block}, body=body)
        return Exchange(request, lambda response: (parse(response), block)[1])

    def copy_part(self, key: str, upload: str, part: Part, span: Span) -> Exchange[str]:
        """Copy a span of another object as one block; returns its id."""
        block = block_id(upload, part)
        headers = self._source(span.key, span.etag)
        headers["x-ms-source-range"] = f"bytes={span.start}-{(span.stop or 0) - 1}"
        parse = self._copied(span.key, key)
        request = self._request("PUT", key, query={"comp": "block", "blockid": block}, headers=headers)
        return Exchange(request, lambda response: (parse(response), block)[1])

    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Make the blocks an object."""
        if upload in self._aborted:
            return direct(partial(_raise, NotFound("this upload was aborted", url=self.url(key))), blocks=False)
        body = block_list(etags)
        headers = {**described_in(upload), **conditions(create_only=create_only, replaces=replaces)}
        payload = Payload(body, md5(body, usedforsecurity=False).hexdigest())
        request = self._request("PUT", key, query={"comp": "blocklist"}, headers=headers, body=payload)
        return Exchange(request, self._versioned("replace" if replaces else "write", key))

    def abort(self, key: str, upload: str) -> Exchange[None]:
        """Forget the upload, without a request: the service forgets its blocks a week after the last one came."""
        del key

        def run() -> None:
            while len(self._aborted) >= _MOST_ABORTED:
                self._aborted.pop(next(iter(self._aborted)), None)
            self._aborted[upload] = None

        return direct(run, blocks=False)

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        """List one page of objects of which there are blocks only; all other objects are listed and left out."""
        query = {"include": "uncommittedblobs", "prefix": prefix, "marker": token}

        def parse(response: Response) -> Uploads:
            with self._answers.locating(prefix):
                action = "list the uploads to"
                return read_uncommitted(self._answers.document(response, action, prefix, "EnumerationResults"))

        return Exchange(self._listing(query), parse)

    def presign(self, key: str, method: Literal["GET", "PUT"], expires_s: float | None, now: float) -> Presigned:
        """Return an address with a shared access signature of the account's key, for this object and method alone."""
        self._require(key)
        permissions, headers = _PRESIGNED[method]
        with self._answers.locating(key):
            seconds, note = lifetime(expires_s, _MOST_S, AccountKey(""), now)  # nothing else signs
            url, until = f"{self._origin}{self._base}{escape(key)}", int(now) + seconds
            query = self._sign.granted(key, url, permissions, until)
        return Presigned(f"{url}?{query}", method, until, headers, note)

    def _versioned(self, action: str, key: str) -> Callable[[Response], str]:
        return lambda response: self._answers.version(response, "etag", action, key)

    def _listing(self, query: Mapping[str, str]) -> Request:
        asked = {"restype": "container", "comp": "list", "maxresults": str(self.page_keys)}
        asked |= {name: value for name, value in query.items() if value}
        request = self._built("GET", self._base[:-1], query=asked)
        request.most_bytes = _LISTING_BYTES
        return request

    def _request(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Payload | None = None,
    ) -> Request:
        self._require(key)
        return self._built(method, self._base + escape(key), query=query, headers=headers, body=body)

    def _require(self, key: str) -> None:
        if not key:
            raise InvalidURL("this names a container, not an object in it", url=self.url(key))

    def _built(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Payload | None = None,
    ) -> Request:
        sent = trimmed(headers or {})
        if body is not None and body.digest:
            sent["content-md5"] = b64encode(bytes.fromhex(body.digest)).decode()
        length = 0 if body is None else memoryview(body.data).nbytes
        search, lines = self._sign.sign(method, path, query or _NO_QUERY, sent, length)
        # libcurl would name a type of its own, which is not signed, and wait for a word before a body.
        lines = (*lines, "Content-Type:", "Expect:")
        return Request(method, self._origin + path + search, lines, body=body.data if body is not None else None)


_NO_QUERY: Mapping[str, str] = {}


def _split(container: Container) -> tuple[str, str]:
    """Return the endpoint's path and the container's name as they stand in requests."""
    _, _, rest = container.endpoint.partition("://")
    _, slash, path = rest.partition("/")
    return slash + path, escape(container.name)


def _raise(error: PenstockError) -> str:
    raise error
