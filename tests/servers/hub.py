"""A Hugging Face Hub and its CDN on this machine: trees in pages, signed redirects, quotas, commits, tokens.

It follows what huggingface_hub 2.4 relies on (design/0156: its file system reads the same here), and the hub's pages on
rate limits. Listings are in no order, as the hub promises none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, quote, unquote

from penstock.testing.servers import Scripted, reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.servers import Received

    # Status, body and headers.
    Answer = tuple[int, bytes, dict[str, str]]

LFS_BYTES = 1000  # files of this size and more are in LFS


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def version_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if is_lfs(data) else git_oid(data)


def is_lfs(data: bytes) -> bool:
    return len(data) >= LFS_BYTES


@dataclass
class Hub:
    """Hub with one repository; use it in a ``with`` block.

    Attributes:
        files: Contents at the newest commit, by path; ``push`` makes another commit.
        token: Token that requests must bring; empty: the repository is public.
        gated: Refuse also those with the token.
        quotas: Requests per window, by quota.
        window_s: Length of a window.
        page: Entries on a page of a tree.
        signs_s: Seconds for which a redirect's address is valid.
        damages: Function of the bytes that the CDN sends.
        leaks: Requests that brought a token to the CDN.
        refused: Number of 429 answers, by quota.
        asked: Number of requests, by quota, and those to the CDN.
    """

    files: dict[str, bytes]
    kind: str = "datasets"
    name: str = "org/name"
    token: str = ""
    gated: bool = False
    quotas: dict[str, int] = field(default_factory=dict)
    window_s: float = 300.0
    page: int = 1000
    signs_s: float = 3600.0
    damages: Callable[[bytes], bytes] | None = None
    leaks: list[Received] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=lambda: {"api": 0, "resolvers": 0})
    asked: dict[str, int] = field(default_factory=lambda: {"api": 0, "resolvers": 0, "cdn": 0})

    def __post_init__(self) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self._lock, self._began = threading.Lock(), time.monotonic()
        self._used: dict[tuple[str, int], int] = {}
        self._key = b"signs"
        self.held: list[tuple[int, int | None]] = []
        self.second = threading.Event()
        self.push(self.files)
        self.hub, self.cdn = Scripted(self._answer), Scripted(self._carry)

    def __enter__(self) -> Self:
        self.hub.__enter__()
        self.cdn.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.hub.__exit__()
        self.cdn.__exit__()

    @property
    def url(self) -> str:
        """The hub's address; ``HF_ENDPOINT``."""
        return self.hub.url

    @property
    def root(self) -> str:
        return f"hf://{self.kind}/{self.name}/"

    def push(self, files: dict[str, bytes]) -> str:
        """Commit these files as the newest; return the commit."""
        changed = [data for path, data in files.items() if self.files.get(path) is not data or not self.commits]
        self.blobs |= {hashlib.sha256(data).hexdigest(): data for data in changed}
        self.newest = hashlib.sha1(f"{len(self.commits)}".encode(), usedforsecurity=False).hexdigest()
        self.commits[self.newest] = self.files = files
        return self.newest

    def put(self, path: str, data: bytes) -> str:
        """Commit one more file."""
        with self._lock:
            return self.push(self.files | {path: data})

    def use(self, quota: str, requests: int) -> None:
        """Use up a part of the first window, as other machines would."""
        self._used[quota, 0] = requests

    def expire(self) -> None:
        """Make all signed addresses so far invalid."""
        self._key += b"!"

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()

    # -- the hub --

    def _answer(self, received: Received, send: Callable[[bytes], object]) -> bool:
        path, _, query = received.path.partition("?")
        quota = "api" if path.startswith("/api/") and "/resolve-cache/" not in path else "resolvers"
        status, body, headers = self._limited(quota)
        if not status and "/api/resolve-cache/" not in path:
            status, body, headers = self._refusal(received) or (0, b"", headers)
            headers = self._limits(quota) | headers
        if not status:
            status, body, more = self._route(received, path, parse_qs(query))
            headers |= more
        if received.method == "HEAD":
            headers.setdefault("content_length", str(len(body)))
            body = b""
        send(reply(status, body, **headers))
        return True

    def _limited(self, quota: str) -> Answer:
        with self._lock:
            window = int((time.monotonic() - self._began) / self.window_s)
            self.asked[quota] += 1
            self._used[quota, window] = self._used.get((quota, window), 0) + 1
            over = quota in self.quotas and self._used[quota, window] > self.quotas[quota]
            self.refused[quota] += over
        return (429, b'{"error":"rate limited"}', self._limits(quota)) if over else (0, b"", self._limits(quota))

    def _limits(self, quota: str) -> dict[str, str]:
        if quota not in self.quotas:
            return {}
        passed = time.monotonic() - self._began
        used = self._used.get((quota, int(passed / self.window_s)), 0)
        left, ends = max(0, self.quotas[quota] - used), self.window_s - passed % self.window_s
        policy = f'"fixed window";"{quota}";q={self.quotas[quota]};w={max(1, int(self.window_s))}'
        return {"ratelimit": f'"{quota}";r={left};t={int(ends) + 1}', "ratelimit_policy": policy}

    def _refusal(self, received: Received) -> Answer | None:
        sent = received.headers.get("authorization", "")
        if self.gated:
            return (
                (403 if sent else 401),
                b"",
                {"x_error_code": "GatedRepo", "x_error_message": "Access is restricted."},
            )
        if self.token and sent != f"Bearer {self.token}":
            return 401, b"", {"x_error_code": "RepoNotFound", "x_error_message": "Invalid username or password."}
        return None

    def _route(self, received: Received, path: str, query: dict[str, list[str]]) -> Answer:  # noqa: PLR0911  a row for each address
        place = self.name if self.kind == "models" else f"{self.kind}/{self.name}"
        api = f"/api/{self.kind}/{self.name}"
        if path.startswith(f"/{place}/resolve/"):
            revision, _, file = path.removeprefix(f"/{place}/resolve/").partition("/")
            return self._resolve(unquote(revision), unquote(file))
        if path.startswith(f"/api/resolve-cache/{self.kind}/{self.name}/"):
            commit, _, file = path.removeprefix(f"/api/resolve-cache/{self.kind}/{self.name}/").partition("/")
            data = self.commits[commit][unquote(file)]
            status, body, headers = _ranged(received, data)
            return status, body, headers | {"etag": f'"{git_oid(data)}"', "x_repo_commit": commit}
        if path in (api, f"{api}/revision/main") or path.startswith(f"{api}/revision/"):
            newest = self._commit(unquote(path.removeprefix(api).removeprefix("/revision/")) or "main")
            if newest is None:
                return 404, b"", {"x_error_code": "RevisionNotFound"}
            info = {
                "_id": "1",
                "id": self.name,
                "sha": newest,
                "private": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
            }
            return 200, json.dumps(info).encode(), {"content_type": "application/json"}
        if path.startswith(f"{api}/tree/"):
            revision, _, folder = path.removeprefix(f"{api}/tree/").partition("/")
            return self._tree(unquote(revision), unquote(folder), query, path)
        if path.startswith(f"{api}/paths-info/"):
            named = self._commit(unquote(path.removeprefix(f"{api}/paths-info/")))
            asked = parse_qs(received.body.decode()).get("paths", [])
            rows = [row for row in self._rows(named or "", "", recursive=True) if row["path"] in asked]
            return 200, json.dumps(rows).encode(), {"content_type": "application/json"}
        return 404, b"", {"x_error_code": "RepoNotFound"}

    def _commit(self, revision: str) -> str | None:
        commit = self.newest if revision == "main" else revision
        return commit if commit in self.commits else None

    def _resolve(self, revision: str, file: str) -> Answer:
        commit = self._commit(revision)
        if commit is None:
            return 404, b"", {"x_error_code": "RevisionNotFound"}
        data = self.commits[commit].get(file)
        if data is None:
            return 404, b"", {"x_error_code": "EntryNotFound", "x_repo_commit": commit}
        headers = {"x_repo_commit": commit, "x_linked_size": str(len(data))}
        if not is_lfs(data):
            location = f"/api/resolve-cache/{self.kind}/{self.name}/{commit}/{quote(file)}"
            return 307, b"", headers | {"x_linked_etag": f'"{git_oid(data)}"', "location": location}
        digest, until = hashlib.sha256(data).hexdigest(), int(time.time() + self.signs_s)
        location = f"{self.cdn.url}/xet/{digest}?Expires={until}&Signature={self._sign(f'{digest}{until}')}"
        return 302, b"Found", headers | {"x_linked_etag": f'"{digest}"', "location": location}

    def _rows(self, commit: str, folder: str, *, recursive: bool) -> list[dict[str, Any]]:
        base = f"{folder}/" if folder else ""
        folders: dict[str, None] = {}
        files: list[dict[str, Any]] = []
        for path, data in self.commits[commit].items():
            if not path.startswith(base):
                continue
            parts = path[len(base) :].split("/")
            for depth in range(1, len(parts)):
                if recursive or depth == 1:
                    folders["/".join(parts[:depth])] = None
            if recursive or len(parts) == 1:
                lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
                row = {"type": "file", "oid": git_oid(data), "size": len(data), "path": path}
                files.append(row | ({"lfs": lfs} if is_lfs(data) else {}))
        # Folders first, files from the last to the first: in no order.
        return [{"type": "directory", "oid": "0" * 40, "size": 0, "path": base + each} for each in folders] + files[
            ::-1
        ]

    def _tree(self, revision: str, folder: str, query: dict[str, list[str]], path: str) -> Answer:
        commit = self._commit(revision)
        if commit is None:
            return 404, b"", {"x_error_code": "RevisionNotFound"}
        rows = self._rows(commit, folder, recursive=query.get("recursive", ["false"])[0].lower() == "true")
        if folder and not rows:
            return 404, b"", {"x_error_code": "EntryNotFound"}
        at = int(query.get("cursor", ["0"])[0])
        headers = {"content_type": "application/json"}
        if at + self.page < len(rows):
            again = f"recursive={query.get('recursive', ['false'])[0]}&cursor={at + self.page}"
            headers["link"] = f'<{self.url}{path}?{again}>; rel="next"'
        return 200, json.dumps(rows[at : at + self.page]).encode(), headers

    # -- the CDN --

    def _carry(self, received: Received, send: Callable[[bytes], object]) -> bool:
        with self._lock:
            self.asked["cdn"] += 1
        if "authorization" in received.headers:
            self.leaks.append(received)
        path, _, query = received.path.partition("?")
        digest, asked = path.removeprefix("/xet/"), parse_qs(query)
        until = asked.get("Expires", ["0"])[0]
        if asked.get("Signature") != [self._sign(f"{digest}{until}")] or int(until) < time.time():
            send(reply(403, b"<Error><Code>AccessDenied</Code></Error>"))
            return True
        if received.range and received.range in self.held:
            # The first request for such a range waits for the second one.
            self.held.remove(received.range)
            self.second.wait(30)
            return False
        status, body, headers = _ranged(received, self.blobs[digest])
        if received.range and received.range[0] == 777:
            self.second.set()
        if self.damages is not None:
            body = self.damages(body)
        send(reply(status, body, etag='"made-up-by-the-cdn"', **headers))
        return True


def _ranged(received: Received, data: bytes) -> Answer:
    if received.range is None:
        return 200, data, {}
    start, stop = received.within(len(data))
    stop = min(stop, len(data))
    return 206, data[start:stop], {"content_range": f"bytes {start}-{stop - 1}/{len(data)}"}
