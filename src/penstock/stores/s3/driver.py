"""Verbs of the S3 family of dialects: each becomes a signed request, each response a result or an error.

``BucketRoute`` has the host and the signature of a bucket's requests: only those of the service that the user named.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from functools import partial
from hashlib import sha256
from html import escape as html_escape
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from penstock.engine.contracts.driver import MOVED, Abilities, Ending, Payload
from penstock.engine.contracts.exchange import Exchange, Request
from penstock.errors import ChecksumMismatch, Damaged, InvalidURL, Unsupported, Unusable
from penstock.stores.http.answers import Answers, Reads, child_texts, parse_xml
from penstock.stores.http.headers import (
    WEEK_S,
    escape,
    is_strong,
    lifetime,
    query_string,
    read_metadata,
    trim_headers,
    write_metadata,
)
from penstock.stores.http.listing import columns, read_page, read_uploads, read_versions, version_rows
from penstock.stores.http.verify import heeds_ranges
from penstock.stores.s3.checksums import WithMD5, md5_of, sha256_of
from penstock.stores.s3.dialect import Amazon
from penstock.stores.s3.signing import EMPTY_SHA256, UNSIGNED, Address
from penstock.values import VERSION, ObjectMeta, Presigned, Span, tag_of, version_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from ipaddress import IPv4Address, IPv6Address

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.credentials import Identity, Renewable
    from penstock.engine.contracts.driver import Attributes, UploadPart
    from penstock.engine.contracts.exchange import Response
    from penstock.stores.s3.dialect import BucketAddress, Dialect, Sign
    from penstock.values import Page, Uploads

# A page: 1,000 keys of 1,024 bytes, each escaped, with its other fields.
_LISTING_BYTES = 16 << 20
_MD5 = "content-md5"
# Begins a token that continues a listing after a key. No token of a server holds it: XML cannot.
_AFTER = "\0"
# Follows the key in a token of MinIO or RustFS.
_CACHE_TAG = re.compile(r"\[\w+_cache:[^\]]*\]$")
_PLAIN = re.compile(r"[A-Za-z0-9/_.~-]+").fullmatch  # keys that need no escaping: nearly all


class S3Driver(Reads):
    """Driver of one bucket, in its dialect; see ``contracts.driver`` for the verbs' contract.

    Each verb is one request.
    """

    abilities = Abilities(forms=("usual", "bare", "none"), jumps=True, ranges=None)
    # Sent with each listing, because some stores have another default (OSS: 100).
    page_keys = 1000

    def __init__(
        self, bucket: BucketAddress, region: str, identity: Identity[Any], dialect: Dialect | None = None
    ) -> None:
        """Address ``bucket`` as ``identity``; if the service names another region than ``region``, follow it."""
        dialect = dialect or Amazon()
        self._bucket = bucket.name
        self._dialect = dialect
        self._route = BucketRoute(bucket, region, identity, dialect)
        self._answers = Answers(dialect.codes, identity, self._route)
        self._verify = dialect.verification
        self._wants = self._verify.range_headers, self._verify.whole_headers
        self._sized = self._verify.sized_headers
        self._sent = {**dialect.read_headers}, {**dialect.read_headers, **dialect.whole_headers}
        self._metadata_prefix = f"{dialect.prefix}meta-"
        # For ``read``: an attribute of the instance is found sooner than one of the dialect's class.
        self._pin, self._quotes = dialect.pin, dialect.quotes
        self.identity = identity
        self._wants_md5 = False

    def url(self, key: str) -> str:
        return self._route.url(key)

    def prepare(self) -> None:
        self.identity.refresh_if_due()

    def head(self, key: str, *, sums: bool = False) -> Exchange[ObjectMeta]:
        """Describe one object; ``sums`` also requests its checksum, which needs the key's rights if it is encrypted."""
        return self._look_up(key, "", sums=sums)

    def head_version(self, key: str, etag: str = "", *, sums: bool = False) -> Exchange[ObjectMeta]:
        found = self._look_up(key, etag, sums=sums)

        def parse(response: Response) -> ObjectMeta:
            meta = found.parse(response)
            if etag:
                return replace(meta, etag=etag) if meta.etag == tag_of(etag) else meta
            # Without the header, the object is from before versions were kept.
            version = response.headers.get(self._dialect.version_header, "null")
            if not (is_strong(meta.etag) and is_strong(version)):
                raise Damaged("the server names no version that a read could ask for", url=self.url(key))
            return replace(meta, etag=f"{meta.etag}{VERSION}{version}")

        return Exchange(found.request, parse)

    def _look_up(self, key: str, etag: str, *, sums: bool) -> Exchange[ObjectMeta]:
        def parse(response: Response) -> ObjectMeta:
            if response.fault is not None or response.status != 200:  # noqa: PLR2004  OK
                raise self._answers.error(response, "look up", key, etag)
            return self._describe(key, response.headers, read_metadata(response.headers, self._metadata_prefix))

        headers = self._dialect.whole_headers if sums else None
        return Exchange(self._request("HEAD", key, query=self._version_query(etag), headers=headers), parse)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """List a page of at most ``page_keys`` keys, which the server escapes, since XML cannot hold every key."""
        if token.startswith(_AFTER):
            token, start_after = "", token.removeprefix(_AFTER)
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url", "max-keys": str(self.page_keys)}
        optional = {"continuation-token": token, "start-after": start_after, "delimiter": delimiter}
        query |= {name: value for name, value in optional.items() if value}

        def parse(response: Response) -> Page:
            version, escaped = self._dialect.version_element, self._dialect.escaped_token
            entries = columns(response.body, version)
            if entries is not None:
                response = replace(response, body=entries.rest)
            with self._answers.locating(prefix):
                root = self._answers.document(response, "list", prefix, "ListBucketResult")
                page = read_page(root, version, escaped_token=escaped, entries=entries)
            return _continued_by_key(page, prefix, delimiter)

        return Exchange(self._listing(query), parse)

    def versioning(self, prefix: str) -> Exchange[bool]:
        def parse(response: Response) -> bool:
            self._answers.headers(response, "look up whether the bucket keeps versions (GetBucketVersioning)", prefix)
            with self._answers.locating(prefix):
                # Servers differ in the name of the root.
                return child_texts(parse_xml(response.body)).get("Status") == "Enabled"

        self._check_versions(prefix)
        return Exchange(self._request("GET", "", query={"versioning": ""}, bucket=True), parse)

    def list_versions(
        self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = ""
    ) -> Exchange[Page]:
        query = {"versions": "", "prefix": prefix, "encoding-type": "url", "max-keys": str(self.page_keys)}
        key, _, version = token.rpartition("\0")
        optional = {"key-marker": key or start_after, "version-id-marker": version, "delimiter": delimiter}
        query |= {name: value for name, value in optional.items() if value}

        def parse(response: Response) -> Page:
            rows = version_rows(response.body)
            if rows is not None:
                response = replace(response, body=rows[0])
            with self._answers.locating(prefix):
                root = self._answers.document(response, "list versions", prefix, "ListVersionsResult")
                # Ceph lists the versions of the key to begin after once more.
                return read_versions(root, rows[1] if rows else [], after="" if token else start_after)

        self._check_versions(prefix)
        return Exchange(self._listing(query), parse)

    def _check_versions(self, prefix: str) -> None:
        if not self._dialect.version_field:
            message = "cannot read versions by id: this kind of store has none; leave out versions=True"
            raise Unsupported(message, url=self.url(prefix))

    def _version_query(self, etag: str) -> dict[str, str]:
        """Return the field of a query that names the version id of ``etag``; empty if there is none."""
        version, field = version_id(etag), self._dialect.version_field
        return {field: version} if version and field else {}

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        """Read one span; send no ``Range`` for a whole object, and a HEAD for an empty span."""
        key, start, _, etag, whole, _, _ = span
        method, search = "GET", ""
        headers = self._sent[whole].copy()
        if not whole:
            if target.size:
                headers["range"] = f"bytes={start}-{start + target.size - 1}"
            else:
                method = "HEAD"  # no Range means "nothing"
        if is_strong(etag):
            headers[self._pin] = f'"{etag}"' if self._quotes else etag
        elif VERSION in etag:
            headers |= self._pinned(self._pin, etag)
            search = query_string(self._version_query(etag))
        route = self._route
        path = route.base + (key if _PLAIN(key) else escape(key))
        origin, search, sign = route.next(path, search) if route.redirects else (route.origin, search, route.sign)
        url = f"{origin}{path}?{search}" if search else origin + path
        request = Request(method, url, sign(method, path, search, headers), self._wants[whole], target)
        return Exchange(request, partial(self._verified, span, target))

    def _whole(self, key: str, etag: str) -> Request:
        headers = {**self._dialect.read_headers, **self._dialect.whole_headers, **self._pinned(self._dialect.pin, etag)}
        return self._request("GET", key, query=self._version_query(etag), headers=headers)

    def suffix(self, key: str, etag: str, target: Buffer) -> Exchange[Ending | None]:
        dialect = self._dialect
        headers = {**dialect.read_headers, "range": f"bytes=-{target.size}", **self._pinned(dialect.pin, etag)}
        request = self._request("GET", key, query=self._version_query(etag), headers=headers)
        request.target, request.wants, request.shorter = target, self._verify.suffix_headers, True
        return Exchange(request, partial(self._ended, key, etag, target))

    def _ended(self, key: str, etag: str, target: Buffer, response: Response) -> Ending | None:
        if response.status == 416:  # noqa: PLR2004  Range Not Satisfiable: an empty object has no last byte
            return None
        with self._answers.locating(key):
            if response.status not in (200, 206):
                raise self._answers.error(response, "read", key, etag)
            ending = self._verify.suffix(response, etag, target.size)
        self._learn_ranges(heeds_ranges(response))
        return ending

    def put(self, key: str, body: Payload, attributes: Attributes) -> Exchange[str]:
        headers = write_metadata(attributes, self._metadata_prefix)
        headers |= self._conditions(create_only=attributes.create_only, replaces=attributes.replaces)
        action = "replace" if attributes.replaces else "write"
        headers |= self._digested(body)
        parse = self._compared(self._versioned(action, key), body, key)
        return Exchange(self._request("PUT", key, headers=headers, body=body), self._learning(parse, headers))

    def delete(self, key: str) -> Exchange[None]:
        return Exchange(self._request("DELETE", key), self._answers.deletion("delete", key))

    def make_bucket(self) -> Exchange[None]:
        """Create the bucket; Amazon's own endpoints want its region in the body, except for the first one."""
        body = None
        if self._route.location:
            tag = "LocationConstraint"
            text = (
                f"<CreateBucketConfiguration><{tag}>{self._route.location}</{tag}></CreateBucketConfiguration>".encode()
            )
            body = Payload(text, sha256(text).hexdigest())
        return self._on_bucket("PUT", "create", body)

    def remove_bucket(self) -> Exchange[None]:
        return self._on_bucket("DELETE", "delete")

    def _on_bucket(self, method: str, action: str, body: Payload | None = None) -> Exchange[None]:
        def parse(response: Response) -> None:
            self._answers.headers(response, action, "")

        return Exchange(self._request(method, "", body=body, bucket=True), parse)

    def copy(self, source: str, key: str, etag: str = "") -> Exchange[str]:
        """Copy within the bucket, server side; objects up to 5 GiB."""
        return self._copying(key, self._copy_source(source, etag), {}, source)

    def _copy_source(self, source: str, etag: str) -> dict[str, str]:
        path = quote(f"{self._dialect.copy_root}{self._bucket}/{source}", safe="/-_.~")
        return {f"{self._dialect.prefix}copy-source": path, **self._pinned(self._dialect.copy_pin, etag)}

    def _copying(self, key: str, headers: dict[str, str], query: dict[str, str], source: str) -> Exchange[str]:
        def parse(response: Response) -> str:
            name = source if response.status in (404, 412) else key
            header = "etag" if query else self._verify.version
            return self._answers.version(response, header, "copy", name, "CopyObjectResult")

        return Exchange(self._request("PUT", key, query=query, headers=headers), parse)

    def create(self, key: str, attributes: Attributes) -> Exchange[str]:
        headers = write_metadata(attributes, self._metadata_prefix)
        if self._dialect.conditions_begin:
            headers |= self._conditions(create_only=attributes.create_only, replaces=attributes.replaces)

        def parse(response: Response) -> str:
            action = "begin an upload to"
            root = self._answers.document(response, action, key, "InitiateMultipartUploadResult", "UploadId")
            upload = child_texts(root).get("UploadId", "")
            if not upload:
                raise Damaged("the server opened an upload without an id", url=self.url(key))
            return upload

        return Exchange(self._request("POST", key, query={"uploads": ""}, headers=headers), parse)

    def part(self, key: str, upload: str, part: UploadPart, body: Payload) -> Exchange[str]:
        query = {"partNumber": str(part.number), "uploadId": upload}

        def parse(response: Response) -> str:
            return self._answers.version(response, "etag", "write a part of", key)

        headers = self._digested(body)
        request = self._request("PUT", key, query=query, headers=headers, body=body)
        return Exchange(request, self._learning(self._compared(parse, body, key), headers))

    def copy_part(self, key: str, upload: str, part: UploadPart, span: Span) -> Exchange[str]:
        headers = self._copy_source(span.key, span.etag)
        headers[f"{self._dialect.prefix}copy-source-range"] = f"bytes={span.start}-{(span.stop or 0) - 1}"
        query = {"partNumber": str(part.number), "uploadId": upload}
        return self._copying(key, headers, query, span.key)

    def complete(
        self, key: str, upload: str, etags: Sequence[str], *, create_only: bool = False, replaces: str = ""
    ) -> Exchange[str]:
        """Join the parts to an object. A 200 may still be an error, since S3 answers before it is done."""
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{html_escape(etag)}&quot;</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        joined = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        body = Payload(joined, sha256(joined).hexdigest())
        headers = self._conditions(create_only=create_only, replaces=replaces)
        request = self._request("POST", key, query={"uploadId": upload}, headers=headers, body=body)
        action = "replace" if replaces else "write"
        return Exchange(request, self._versioned(action, key, "CompleteMultipartUploadResult"))

    def abort(self, key: str, upload: str) -> Exchange[None]:
        request = self._request("DELETE", key, query={"uploadId": upload})
        return Exchange(request, self._answers.deletion("abort an upload to", key))

    def uploads(self, prefix: str, *, token: str = "") -> Exchange[Uploads]:
        # Without encoding-type: Ceph 16 escapes keys on request, but does not say so in the answer.
        query = {"uploads": "", "prefix": prefix}
        if token:
            query["key-marker"], _, query["upload-id-marker"] = token.rpartition("\0")

        def parse(response: Response) -> Uploads:
            with self._answers.locating(prefix):
                root = self._answers.document(response, "list the uploads to", prefix, "ListMultipartUploadsResult")
                return read_uploads(root)

        return Exchange(self._listing(query), parse)

    def presign(self, key: str, method: Literal["GET", "PUT"], expires_s: float | None, now: float) -> Presigned:
        """Return a URL with its signature in the query, for seven days at most."""
        if not key:
            raise InvalidURL("this names a bucket, not an object in it", url=self.url(key))
        credentials = self.identity.current()
        if credentials is None:
            raise Unsupported("cannot presign without credentials: pass keys, not anonymous", url=self.url(key))
        with self._answers.locating(key):
            seconds, note = lifetime(expires_s, WEEK_S, self._lasting(credentials), now)
            url = self._route.presigned(method, key, seconds, now)
        headers = {**self._dialect.presigned_headers} if method == "PUT" else {}
        return Presigned(url, method, int(now) + seconds, headers, note)

    def _lasting(self, credentials: Renewable) -> Renewable:
        """Return the credentials that limit the lifetime of a signed URL."""
        return credentials

    def _pinned(self, header: str, etag: str) -> dict[str, str]:
        """Return the header that binds a request to a version; empty if the version cannot be sent."""
        etag = tag_of(etag)
        return {header: f'"{etag}"' if self._dialect.quotes else etag} if is_strong(etag) else {}

    def _conditions(self, *, create_only: bool, replaces: str) -> dict[str, str]:
        dialect, form = self._dialect, self.abilities.form
        if form == "none":
            return {}
        if create_only:
            return dict((dialect.create,))
        if not dialect.replace or form == "bare":
            return {dialect.replace: replaces} if dialect.replace and is_strong(replaces) else {}
        return self._pinned(dialect.replace, replaces)

    def _versioned(self, action: str, key: str, root: str = "") -> Callable[[Response], str]:
        """Return a parser of answers that name the written version, in a header or (with ``root``) in XML."""
        return lambda response: self._answers.version(response, self._verify.version, action, key, root)

    def _digested(self, body: Payload) -> Mapping[str, str]:
        """Return the headers for the body's digest, where the signature does not hold it."""
        headers = self._dialect.body_headers(body.digest) if body.digest else {}
        return {**headers, _MD5: md5_of(body)} if self._wants_md5 else headers

    def _learning(self, parse: Callable[[Response], str], sent: Mapping[str, str]) -> Callable[[Response], str]:
        """Wrap ``parse``: learn that the bucket requires the MD5 of bodies, and have the request sent again.

        S3 requires it, or a checksum, where new objects are locked ("Content-MD5 OR x-amz-checksum- HTTP header is
        required for Put Object requests with Object Lock parameters"). A checksum sent by Penstock would replace the
        one that S3 computes, and S3 would refuse it for parts of an upload that did not announce it.
        """

        def learned(response: Response) -> str:
            try:
                return parse(response)
            except Unusable as error:
                if _MD5 not in sent and "content-md5" in error.message.lower():
                    self._wants_md5, error.code, error.retries = True, MOVED, 1
                    # New bodies are digested while they are written; waiting ones before they are sent again.
                    self.abilities = replace(self.abilities, digest=WithMD5)
                raise

        return learned

    def _compared(self, parse: Callable[[Response], str], body: Payload, key: str) -> Callable[[Response], str]:
        """Wrap ``parse``: raise ``ChecksumMismatch``, without a code, if the store names another digest."""
        dialect = self._dialect
        if not dialect.compares_writes or not body.digest:
            return parse

        def compared(response: Response) -> str:
            version = parse(response)
            if not dialect.stored_as(response.headers, body.digest):
                raise ChecksumMismatch("the stored bytes differ from those sent", url=self.url(key))
            return version

        return compared

    def _listing(self, query: Mapping[str, str]) -> Request:
        request = self._request("GET", "", query=query)
        request.most_bytes, request.deferred = _LISTING_BYTES, True
        return request

    def _request(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Payload | None = None,
        bucket: bool = False,
    ) -> Request:
        if not (key or bucket or "prefix" in (query or {})):
            raise InvalidURL("this names a bucket, not an object in it", url=self.url(key))
        path = self._route.base + escape(key) if key else self._route.root
        search = query_string(query) if query else ""
        digest = EMPTY_SHA256 if body is None else sha256_of(body) or UNSIGNED
        origin, search, sign = self._route.next(path, search)
        lines = sign(method, path, search, trim_headers(headers or {}), digest)
        if body is None or "content-type" not in (headers or {}):
            # Without it, libcurl would send the type of a form.
            lines = (*lines, "Content-Type:")
        url = f"{origin}{path}?{search}" if search else origin + path
        # A gateway redirects before it reads the body: sending the body would be useless, and would lose the answer.
        expect = "Expect: 100-continue" if body is not None and self._dialect.cluster else "Expect:"
        return Request(method, url, (*lines, expect), body=body.data if body is not None else None)


def _continued_by_key(page: Page, prefix: str, delimiter: str) -> Page:
    """Return a page that continues after its last name if the server's token points beyond it.

    Such tokens leave keys out: MinIO of March 2024 to July 2025 (minio#21463). Other tokens are kept: some servers
    leave keys out after ``start-after``.
    """
    names = [each.key for each in page.entries[-1:]] + [*page.prefixes[-1:]]
    try:
        text = b64decode(page.token, validate=True).decode()
    except ValueError:
        return page
    last, named = max(names, key=str.encode, default=""), _CACHE_TAG.sub("", text)
    # Any text begins with an empty prefix; and with a delimiter, other servers repeat a common prefix that the listing
    # is to begin after.
    sure = named != text or (prefix and not delimiter)
    if not (names and sure and named.startswith(prefix) and named.encode() > last.encode()):
        return page
    return replace(page, token=_AFTER + last)


_MOST_HOPS = 3
# Redirects kept; a request that is given up leaves an unused one.
_MOST_REDIRECTS = 1024


class BucketRoute:
    """Current address of a bucket.

    Attributes:
        base: Prefix of the paths of objects, ending in ``/``.
        root: Path of the bucket itself.
        origin: ``scheme://host[:port]``.
        sign: Signs requests to ``origin``.
        redirects: By path, the origins of the next requests, each with the query to send there (without ``?``).
    """

    def __init__(self, bucket: BucketAddress, region: str, identity: Identity[Any], dialect: Dialect) -> None:
        self._bucket = bucket
        self._identity = identity
        self._dialect = dialect
        path = urlsplit(bucket.endpoint or "").path
        self.base = f"{path}/{bucket.name}/" if bucket.in_path else f"{path}/"
        self.root = self.base.rstrip("/") if bucket.in_path else self.base
        self.origin: str
        self.sign: Sign
        self.redirects: dict[str, list[tuple[str, str]]] = {}
        self._hops: dict[str, set[str]] = {}
        self._settle(region)
        self._is_member = (
            is_of_cluster(urlsplit(self.origin).hostname or "", bucket.cluster) if dialect.cluster else None
        )

    @property
    def location(self) -> str:
        """Region that Amazon's own endpoint must be told to create a bucket there; empty if it must not."""
        own = self._bucket.endpoint is None and isinstance(self._dialect, Amazon)
        return self._region if own and self._region != "us-east-1" else ""

    def url(self, key: str) -> str:
        return f"{self._bucket.scheme}://{self._bucket.shown or self._bucket.name}/{key}"

    def next(self, path: str, search: str = "") -> tuple[str, str, Sign]:
        """Return origin, query and signature of the next request for ``path``: a redirect's once, else the bucket's."""
        pending = self.redirects.get(path)
        if not pending:
            self._hops.pop(path, None)
            return self.origin, search, self.sign
        origin, own = pending.pop()
        if not pending:
            del self.redirects[path]
        sign = self.sign if origin == self.origin else self._signer(urlsplit(origin).netloc)
        return origin, own or search, sign

    def presigned(self, method: str, key: str, expires_s: int, now: float) -> str:
        host, name, path = urlsplit(self.origin).netloc, escape(key), self.base + escape(key)
        address = Address(self._bucket.name, name, host, self._region, method, path, expires_s, now)
        return f"{self.origin}{path}?{self._dialect.signed_query(address, self._identity.current())}"

    def follow_region(self, region: str) -> bool:
        """Send later requests to ``region``; return False if its endpoint is outside the service's current domain.

        An endpoint that the user gave keeps its host; only the signature changes its region.
        """
        if region != self._region:
            domain = self._dialect.domain
            if self._bucket.endpoint is None and domain(region) != domain(self._region):
                return False
            self._settle(region)
        return True

    def follow_redirect(self, key: str, location: str) -> bool:
        """Send the next request for ``key`` to the host of ``location``; return False unless it is the same service's.

        Hosts of the same service are the user's own endpoint, or, if the user gave none, those in the domain of the
        service's own endpoints. The query of ``location`` is dropped. A cluster's gateway may redirect up to three
        times, from one server of its cluster to the next; there the query is kept.
        """
        path = self.base + escape(key) if key else self.root
        if self._is_member is not None:
            return self._follow_gateway(path, location, self._is_member)
        domain = "" if self._bucket.endpoint else self._dialect.domain(self._region)
        origin = find_redirect_origin(self.origin + path, location.partition("?")[0], is_within(domain))
        if origin:
            self._redirect(path, origin, "")
        return bool(origin)

    def _follow_gateway(self, path: str, location: str, is_member: Callable[[str], bool]) -> bool:
        plain, _, search = location.partition("?")
        origin = find_redirect_origin(self.origin + path, plain, is_member, cluster=True)
        hops = self._hops.setdefault(path, set())
        if not origin or len(hops | {origin}) > _MOST_HOPS:
            return False
        hops.add(origin)
        self._redirect(path, origin, query_string(dict(parse_qsl(search, keep_blank_values=True))))
        return True

    def _redirect(self, path: str, origin: str, search: str) -> None:
        if len(self.redirects) >= _MOST_REDIRECTS:
            # A request that loses its redirect is redirected again.
            self.redirects.clear()
            self._hops.clear()
        self.redirects.setdefault(path, []).append((origin, search))

    def _settle(self, region: str) -> None:
        scheme, host = urlsplit(self._bucket.endpoint or self._dialect.endpoint(region))[:2]
        host = f"{self._bucket.name}.{host}" if self._bucket.virtual else host
        self._region = region
        self.origin = f"{scheme}://{host}"
        self.sign = self._signer(host)

    def _signer(self, host: str) -> Sign:
        return self._dialect.signer(self._bucket, host, self._region, self._identity.current)


_PORTS = {"http": 80, "https": 443}


def is_within(domain: str) -> Callable[[str], bool]:
    """Return a test for host names (lower case, no port) below ``domain``; with an empty domain, no host passes."""
    return lambda host: bool(domain) and host.endswith(f".{domain}")


def is_of_cluster(gateway: str, members: Iterable[str] = ()) -> Callable[[str], bool]:
    """Return a test for host names of the cluster whose gateway is ``gateway`` (both without port).

    A host belongs to the cluster if it is the gateway itself or matches ``members`` (hosts, domains, networks such as
    ``10.0.0.0/16``). Without members, a host belongs to it in the gateway's own domain (``a.cluster.example`` and
    ``b.cluster.example``), or if both have private addresses in the same /16 (IPv6: /64).
    """
    named = tuple(members) or _neighbours(gateway)
    domains = tuple(f".{each}" for each in named if "/" not in each)
    networks = [ip_network(each, strict=False) for each in named if "/" in each]

    def is_member(host: str) -> bool:
        address = _address(host)
        if host == gateway or address is None:
            return host == gateway or f".{host}".endswith(domains)
        return any(address in network for network in networks) or host in named

    return is_member


def _neighbours(gateway: str) -> tuple[str, ...]:
    address = _address(gateway)
    if address is None:
        _, _, domain = gateway.partition(".")
        return (domain,) if "." in domain else ()
    if address.is_private:
        return (f"{gateway}/{16 if address.version == 4 else 64}",)  # noqa: PLR2004  IPv4
    return ()


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def find_redirect_origin(url: str, location: str, service: Callable[[str], bool], *, cluster: bool = False) -> str:
    """Return the origin (``scheme://host[:port]``) that a redirect leads to; empty if it must not be followed.

    An absolute ``location`` with the same path and query as ``url`` is followed to the same host and port, to the same
    host with TLS instead of none, or to a host of the ``service`` on the scheme's default port. A redirect from TLS to
    none, with user information, or to another path, which would be another object, is never followed.

    In a ``cluster``, the port and the escaping of the path do not matter; the query is the caller's.
    """
    try:
        here, there = urlsplit(url), urlsplit(location)
        port, present = there.port or _PORTS.get(there.scheme, 0), here.port or _PORTS.get(here.scheme, 0)
        host = (there.hostname or "").lower()
    except ValueError:
        return ""
    if there.scheme not in _PORTS or not host or "@" in there.netloc or not there.netloc.isascii():
        return ""
    if here.scheme == "https" != there.scheme:
        return ""
    if (there.path, there.query) != (here.path, here.query) and not (
        cluster and unquote(there.path) == unquote(here.path)
    ):
        return ""
    same = host == (here.hostname or "").lower()
    secured = here.scheme == "http" and there.scheme == "https" and port == _PORTS["https"]
    if (same and (port == present or secured)) or (service(host) and (cluster or port == _PORTS[there.scheme])):
        return f"{there.scheme}://{there.netloc.lower()}"
    return ""
