"""A repository of the Hugging Face Hub as a read-only store: each verb becomes a request, each response a result.

A version is what the hub names a file's content by: its SHA-256, of files in LFS or Xet, or else its Git blob. The hub
redirects reads to a CDN, by addresses that are signed for an hour or so; they are kept for later reads. Reads are held
to the commit of the newest listing, or else to the commit that the first answer names.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import islice
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from penstock.engine.contracts.driver import MOVED, RANGE_IGNORED, UNKNOWN_BYTES, Abilities, Beginning
from penstock.engine.contracts.exchange import Exchange, Request
from penstock.engine.listing.listing import Entries
from penstock.errors import (
    Changed,
    ConfigError,
    Damaged,
    Forbidden,
    NotFound,
    PenstockError,
    Throttled,
    Unauthenticated,
    Unsupported,
    Unusable,
)
from penstock.stores.direct import key_bytes, too_large
from penstock.stores.http.answers import STATUSES, Codes, Meaning, Ranged, make_beginning
from penstock.stores.http.headers import escape, parse_date, parse_size, strip_quotes
from penstock.stores.http.listing import ListingWalks, parse_iso_date
from penstock.stores.http.verify import REPLACED, RunningHash, Verification, heeds_ranges
from penstock.stores.web.route import MOST_HOPS, asked_from, check_encoding, make_moved_error, target_of
from penstock.values import Checksum, ObjectMeta, Page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.engine.buffer import Buffer
    from penstock.engine.contracts.exchange import Response
    from penstock.values import Running, Span

_REDIRECTS = (301, 302, 303, 307, 308)
# What a CDN may answer to a signature that has expired.
_EXPIRED = (400, 401, 403, 404, 410)
_PUBLIC = ("Accept-Encoding: identity",)
_COMMIT = re.compile(r"[0-9a-f]{40}").fullmatch
_SHA256 = re.compile(r"[0-9a-f]{64}").fullmatch
_NEXT = re.compile(r"<([^<>]+)>;\s*rel\W+next\b").search
_LEFT = re.compile(r"\br\s*=\s*([0-9]{1,9})\s*;\s*t\s*=\s*([0-9]{1,6})\b").search
_QUOTA = re.compile(r"\bq\s*=\s*([0-9]{1,9})\b").search
_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_POINTER_BYTES = 1024  # by the format's specification
_LISTING_BYTES = 64 << 20
_MOST_TARGETS = 1 << 14  # some 15 MB
_EARLY_S = 30.0  # before a signed address expires, the next one is requested
_SUM = "x-lfs-sha256"  # the drivers' own name for the SHA-256 of an answer's file


def begin_sha256(stored: str) -> Running:
    return RunningHash(sha256(), b64encode(bytes.fromhex(stored)).decode())


_VERIFY = Verification(digests={_SUM: begin_sha256})
_WANTS = (
    *("etag", "content-length", "content-range", "content-encoding", "transfer-encoding", "x-linked-etag"),
    *("x-linked-size", "x-repo-commit", "ratelimit", "ratelimit-policy"),
)

_ASK = "; pass HFOptions(token=…), set HF_TOKEN or run hf auth login"
_CODES = {
    "RepoNotFound": Meaning(
        NotFound, "; no such repository, or a private one: check the name and the token (HF_TOKEN)", missing="bucket"
    ),
    "RevisionNotFound": Meaning(NotFound, "; no such branch, tag or commit: check what follows '@'", missing="bucket"),
    "EntryNotFound": Meaning(NotFound, "; no such file in this revision: check the path", missing="object"),
    "GatedRepo": Meaning(
        Forbidden, "; the repository is gated: accept its terms on its page, and pass that user's token (HF_TOKEN)"
    ),
}
_HUB_CODES = Codes(
    service="Hugging Face Hub",
    codes=_CODES,
    statuses={
        **STATUSES,
        401: Meaning(Unauthenticated, f"; the repository is private, or the token invalid{_ASK}"),
        403: Meaning(Forbidden, f"; the token has no access to this repository{_ASK}"),
        404: Meaning(NotFound, "; no such file: check the path, and {where}"),
        429: Meaning(Throttled, "; the rate limit of the token, or of this address without one, is used up"),
    },
    header="x-error-code",
    where="endpoint= or HF_ENDPOINT",
)


class Repository(NamedTuple):
    """A repository at a hub: ``kind`` is ``datasets``, ``models`` or ``spaces``; ``revision`` is not escaped."""

    hub: str
    kind: str
    name: str
    revision: str

    @property
    def page(self) -> str:
        return f"{self.hub}/{self.name}" if self.kind == "models" else f"{self.hub}/{self.kind}/{self.name}"

    @property
    def api(self) -> str:
        return f"{self.hub}/api/{self.kind}/{self.name}"


@dataclass(slots=True)
class _FileAddress:
    """Address that the hub has redirected a file's reads to, until a time of the monotonic clock.

    Its query may hold a signature, so its repr shows the host only. ``etag`` is the version of the bytes there.
    """

    url: str
    hub: bool
    etag: str = ""
    until: float = inf
    hops: int = 0
    public: bool = False
    tried: bool = False

    def __repr__(self) -> str:
        return f"_FileAddress({urlsplit(self.url).netloc!r})"


class TreeWalk:
    """A listing in progress: entries so far, and the request for the next ones; empty before the commit is known."""

    def __init__(self, prefix: str, after: str, *, flat: bool) -> None:
        self.prefix, self.after, self.flat = prefix, after, flat
        self.url = ""
        self.found: dict[str, tuple[int, str]] = {}
        self.folders: set[str] = set()

    def add(self, rows: object) -> None:
        bound = key_bytes(self.after)
        if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
            raise Damaged("the listing is not one of the Hugging Face Hub: check endpoint= or HF_ENDPOINT")
        for row in rows:
            kind, path = row.get("type"), str(row.get("path", ""))
            name = f"{path}/" if kind == "directory" else path
            if not name.startswith(self.prefix) or key_bytes(name) <= bound:
                continue
            if kind == "file":
                lfs = row.get("lfs")
                size, etag = row.get("size"), (lfs if isinstance(lfs, dict) else row).get("oid", "")
                if not isinstance(size, int) or not isinstance(etag, str):
                    raise Damaged(f"the listing has an entry {path[:200]!r} without a size or a version")
                self.found[path] = size, etag
            elif kind == "directory" and self.flat:
                self.folders.add(name)

    def page(self) -> Page:
        keys = sorted(self.found)
        sizes, etags = [self.found[key][0] for key in keys], [self.found[key][1] for key in keys]
        return Page(Entries((keys, sizes, etags, [""] * len(keys)), parse_iso_date), tuple(sorted(self.folders)))


class HubDriver(Ranged):
    """Files of one repository; see ``contracts.driver`` for the verbs' contract.

    ``rates``: requests per second that the hub's answers leave for each of its quotas, where they are running out.
    """

    abilities = Abilities(digest=None, sums=True, ranges=None)
    _verify = _VERIFY

    def __init__(self, root: str, repository: Repository, token: str) -> None:
        self._root, self._at = root, repository
        self._lines = (*_PUBLIC, f"Authorization: Bearer {token}") if token else _PUBLIC
        self._origin = _origin(repository.hub)
        self._commit = repository.revision if _COMMIT(repository.revision) else ""
        self._addresses: dict[str, _FileAddress] = {}
        self._walks = ListingWalks(TreeWalk)
        self.rates: dict[str, float] = {}
        self._scarce: set[str] = set()  # quotas of which less than half was left

    def url(self, key: str) -> str:
        return self._root + key

    def prepare(self) -> None: ...

    def hint(self, key: str) -> str:
        """Return where to write instead; ``engine.support.require`` names it where a verb is missing."""
        return f"write to fsspec+{self.url(key).replace('hf://models/', 'hf://', 1)} (pip install huggingface_hub)"

    def quota(self, verb: str, key: str) -> str:
        """Return the name of the hub's quota that the next request counts in; the CDN's is unlimited."""
        if verb in ("list", "uploads"):
            return "api"
        address = self._addresses.get(key)
        return "cdn" if address is not None and not address.hub and verb != "head" else "resolvers"

    def checksum(self, headers: Mapping[str, str]) -> Checksum | None:
        return _VERIFY.checksum(headers)

    def head(self, key: str, *, sums: bool = False) -> Exchange[ObjectMeta]:  # noqa: ARG002  at no cost
        request, way = self._request("HEAD", key)

        def parse(response: Response) -> ObjectMeta:
            with self._locating(key):
                linked = _parse_linked(response.headers)
                redirected = response.status in _REDIRECTS and response.fault is None
                if response.status != 200 or response.fault is not None:  # noqa: PLR2004  OK
                    error = self._error(response, "look up", key, way)
                    if not redirected or None in linked or error.code != MOVED:
                        raise error
                etag = self._admit(response, key, way)
                headers = response.headers
                size = linked[1] if redirected else parse_size(headers.get("content-length", ""))
                if size is None:
                    raise Unsupported("the hub does not report the size of this file: check endpoint= or HF_ENDPOINT")
                checksum = Checksum(_SUM, etag, begin_sha256) if _SHA256(etag) else None
                modified = parse_date(headers.get("last-modified", ""))
                return ObjectMeta(
                    key, size, etag, modified, content_type=headers.get("content-type", ""), checksum=checksum
                )

        return Exchange(request, parse)

    def read(self, span: Span, target: Buffer) -> Exchange[int]:
        if not target.size:
            return self._read_nothing(span)
        lines = () if span.whole else (f"range: bytes={span.start}-{span.start + target.size - 1}",)
        request, way = self._request("GET", span.key, lines, span.etag)
        request.wants, request.target = _WANTS, target
        return Exchange(request, partial(self._verified, span, target, way))

    def _read_nothing(self, span: Span) -> Exchange[int]:
        """Compare the version of an empty span."""
        looking = self.head(span.key)

        def parse(response: Response) -> int:
            response.version = looking.parse(response).etag
            if span.etag and response.version != span.etag:
                raise Changed(REPLACED, url=self.url(span.key))
            return 0

        return Exchange(looking.request, parse)

    def _verified(self, span: Span, target: Buffer, way: _FileAddress, response: Response) -> int:
        with self._locating(span.key):
            try:
                if response.status not in (200, 206):
                    raise self._error(response, "read", span.key, way, span.etag)
                self._admit(response, span.key, way)
                if not span.start:
                    _check_pointer(target.view()[: response.received], span.etag)
                received = _VERIFY.span(response, span, target)
            except PenstockError as error:
                if error.code == RANGE_IGNORED:
                    self._learn_ranges(honoured=False)
                raise
            if not span.whole:
                self._learn_ranges(heeds_ranges(response))
            return received

    def get(
        self, key: str, etag: str, most_bytes: int = UNKNOWN_BYTES, buffer: Buffer | None = None
    ) -> Exchange[bytes | Beginning]:
        request, way = self._request("GET", key, (), etag)
        bound = min(most_bytes, self.abilities.untold_bytes)
        request.target, request.shorter, request.most_bytes, request.wants = buffer, True, bound, _WANTS

        def parse(response: Response) -> bytes | Beginning:
            with self._locating(key):
                if response.status != 200 or (response.fault is not None and not response.overflow):  # noqa: PLR2004  OK
                    raise self._error(response, "read", key, way, etag)
                version = self._admit(response, key, way)
                if buffer is not None:
                    _check_pointer(buffer.view()[: response.received], etag)
                    got = _VERIFY.opened(response, etag, buffer)
                elif response.overflow:
                    got = make_beginning(_VERIFY, response, bound, most_bytes, self.url(key))
                else:
                    got = _VERIFY.whole(response, etag)
                    _check_pointer(got, etag)
                response.version = version
                if not isinstance(got, Beginning):
                    return got
                if got.size > most_bytes:
                    raise too_large(most_bytes, self.url(key))
                return got._replace(etag=version)

        return Exchange(request, parse)

    def list(self, prefix: str, *, token: str = "", start_after: str = "", delimiter: str = "") -> Exchange[Page]:
        """Ask for the commit that the revision names, then for the pages of its tree; the last answer has all entries.

        The hub does not promise an order, so all pages but the last are empty.
        """
        if delimiter not in ("", "/"):
            raise Unsupported("the delimiter must be '/' for a repository", url=self.url(prefix))
        flat = bool(delimiter)
        walk = self._walks.find(token, prefix, flat=flat) if token else TreeWalk(prefix, start_after, flat=flat)
        if not walk.url and _COMMIT(self._at.revision):
            walk.url = self._tree(walk, self._at.revision)
        url = walk.url or f"{self._at.api}/revision/{escape(self._at.revision).replace('/', '%2F')}?expand=sha"
        request = Request("GET", url, self._lines, most_bytes=_LISTING_BYTES, deferred=True)

        def parse(response: Response) -> Page:
            with self._locating(prefix):
                listed = self._parse_listing(response, walk)
            return listed or Page((), token=self._walks.keep(walk, walk.after), advanced=True)

        return Exchange(request, parse)

    def _parse_listing(self, response: Response, walk: TreeWalk) -> Page | None:
        """Return the page of all entries after the last answer of a listing; None before it."""
        if response.status in _REDIRECTS and response.fault is None:
            raise ConfigError("cannot list: the repository was renamed; write the name that its page shows now")
        error = None if response.status == 200 and response.fault is None else self._error(response, "list", "", None)  # noqa: PLR2004  OK
        if error is not None and walk.url and error.code == "EntryNotFound":
            # No such folder: as in any store, nothing begins with its name.
            return walk.page()
        if error is not None:
            raise error
        self._note_quota(response, "api")
        try:
            document: Any = json.loads(response.body if isinstance(response.body, bytes) else b"")
        except ValueError:
            raise Damaged("the answer to a listing is not JSON: check endpoint= or HF_ENDPOINT") from None
        if not walk.url:
            commit = document.get("sha") if isinstance(document, dict) else None
            if not isinstance(commit, str) or not _COMMIT(commit):
                raise Damaged("the hub names no commit of this revision: check endpoint= or HF_ENDPOINT")
            if commit != self._commit:
                self._commit, self._addresses = commit, {}
            walk.url = self._tree(walk, commit)
            return None
        walk.add(document)
        following = _NEXT(response.headers.get("link", ""))
        if following is None:
            return walk.page()
        # A mirror may name the hub, which must not get the mirror's token, nor the other way round.
        there = urlsplit(following[1])
        walk.url = f"{self._origin}{there.path}?{there.query}"
        return None

    def _tree(self, walk: TreeWalk, commit: str) -> str:
        folder = walk.prefix.rpartition("/")[0]
        place = f"{commit}/{escape(folder)}" if folder else commit
        return f"{self._at.api}/tree/{place}?recursive={'false' if walk.flat else 'true'}"

    def _request(
        self, method: str, key: str, lines: tuple[str, ...] = (), etag: str = ""
    ) -> tuple[Request, _FileAddress]:
        way = self._addresses.get(key)
        stale = way is not None and (
            (way.tried and monotonic() > way.until) or bool(etag and way.etag and way.etag != etag)
        )
        if way is None or stale or (method == "HEAD" and not way.hub):
            revision = escape(self._commit or self._at.revision).replace("/", "%2F")
            way = _FileAddress(f"{self._at.page}/resolve/{revision}/{escape(key)}", hub=True)
        lines = (self._lines if way.hub else _PUBLIC) + lines
        return Request(method, way.url, lines, public=way.public), way

    def _error(
        self, response: Response, action: str, key: str, way: _FileAddress | None, etag: str = ""
    ) -> PenstockError:
        """Return the error for an answer; for a redirect, an error that makes the verb run again at its target."""
        if response.fault is not None and response.status < 300:  # noqa: PLR2004  no refusal
            return response.fault
        if way is not None and response.status in _REDIRECTS:
            return self._redirect(response, action, key, way, etag)
        if way is not None and not way.hub and response.status in _EXPIRED:
            # The hub gives another address; an address that has never worked is an error.
            self._addresses.pop(key, None)
            if way.tried:
                return make_moved_error(f"cannot {action}: the CDN answers HTTP {response.status}", self.url(key))
        error = _HUB_CODES.refusal(response, action, self.url(key)).error
        if way is None or way.hub:
            left = self._note_quota(response, "api" if way is None else "resolvers")
            if isinstance(error, Throttled) and left is not None:
                error.retry_after_s = max(left, error.retry_after_s or 0.0)
        return error

    def _redirect(self, response: Response, action: str, key: str, way: _FileAddress, etag: str = "") -> PenstockError:
        self._note_answer(response, way)
        version = _parse_linked(response.headers)[0] or way.etag
        if etag and version and version != etag:
            return Changed(f"{REPLACED}; the revision names another commit now: list again, or pin @COMMIT")
        location = response.headers.get("location", "")
        target = "" if way.hops >= MOST_HOPS else target_of(way.url, location)
        if not target:
            return ConfigError(f"cannot {action}: refused a redirect without TLS, into a private network, or too many")
        hub = way.hub and _origin(target) == self._origin
        public = way.public or asked_from(way.url, response.address)
        if len(self._addresses) >= _MOST_TARGETS:
            for each in list(islice(self._addresses, _MOST_TARGETS // 2)):
                self._addresses.pop(each, None)
        until = monotonic() + _lifetime_s(target, response.headers.get("date", ""))
        self._addresses[key] = _FileAddress(target, hub, version, until, way.hops + 1, public)
        return make_moved_error(f"cannot {action}: redirected", self.url(key))

    def _admit(self, response: Response, key: str, way: _FileAddress) -> str:
        """Put the file's version in place of the answer's ETag, which a CDN makes up; return it, empty if unknown."""
        check_encoding(response, key)
        self._note_answer(response, way)
        way.tried = True
        headers = response.headers
        own = strip_quotes(headers.pop("etag", "")).removeprefix("W/")
        version = _parse_linked(headers)[0] or way.etag or (own if way.hub else "")
        if version:
            headers["etag"] = f'"{version}"'
        if _SHA256(version):
            headers[_SUM] = version
        return version

    def _note_answer(self, response: Response, way: _FileAddress) -> None:
        if way.hub:
            self._note_quota(response, "resolvers")
            commit = response.headers.get("x-repo-commit", "")
            self._commit = self._commit or (commit if _COMMIT(commit) else "")

    def _note_quota(self, response: Response, name: str) -> float | None:
        """Keep the rate that a quota leaves if it is running out; return the seconds until its window ends."""
        left = _LEFT(response.headers.get("ratelimit", ""))
        if left is None:
            return None
        remaining, seconds = int(left[1]), max(1, int(left[2]))
        quota = _QUOTA(response.headers.get("ratelimit-policy", ""))
        if quota is None or remaining < int(quota[1]) / 2:
            self._scarce.add(name)
        if name in self._scarce:
            self.rates[name] = remaining / seconds
        return float(seconds)

    @contextmanager
    def _locating(self, key: str) -> Iterator[None]:
        try:
            yield
        except PenstockError as error:
            error.url = error.url or self.url(key)
            raise


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()


def _parse_linked(headers: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Return version and size of the file that a redirect of the hub leads to."""
    etag = strip_quotes(headers.get("x-linked-etag", "")).removeprefix("W/")
    return etag or None, parse_size(headers.get("x-linked-size", ""))


def _check_pointer(data: memoryview | bytes, etag: str) -> None:
    """Raise ``Unusable`` for the text that stands for a file in Git, in place of its content."""
    if len(data) <= _POINTER_BYTES and bytes(data[: len(_POINTER)]) == _POINTER:
        why = "the hub sends" if _SHA256(etag) else "in the repository is"
        raise Unusable(f"{why} a Git LFS pointer instead of the content: upload the file itself (git lfs push)")


def _lifetime_s(url: str, date: str) -> float:
    """Return for how many seconds a signed address can be used, from when the answer with it was sent."""
    query = {name.lower(): values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    try:
        if "expires" in query:
            end = float(query["expires"])
        else:
            end = datetime.strptime(f"{query['x-amz-date']}+0000", "%Y%m%dT%H%M%SZ%z").timestamp()
            end += float(query["x-amz-expires"])
    except (KeyError, ValueError):
        return inf
    return end - (parse_date(date) or time()) - _EARLY_S
