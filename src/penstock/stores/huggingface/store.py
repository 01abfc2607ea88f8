"""``hf://``: repositories of the Hugging Face Hub, read only."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from sys import maxsize
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.engine import endpoint as endpoints
from penstock.engine.contracts.driver import Abilities, Limits
from penstock.errors import ConfigError, conceal
from penstock.stores.http.network import ca_file, first, make_transport, variables
from penstock.stores.huggingface.options import HFOptions
from penstock.stores.store import Opening, Store

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

_HUB = "https://huggingface.co"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"
# Revisions with a slash are written with %2F, except for the hub's own.
_REVISION = r"refs/(?:convert|pr)/[^/@]+|[^/@]+"
_REPOSITORY = re.compile(rf"(datasets|models|spaces)/({_NAME}/{_NAME})(?:@({_REVISION}))?")
_SPLIT = re.compile(rf"((?:datasets|models|spaces)/[^/@]*/[^/@]*(?:@(?:{_REVISION}))?)(?:/(.*))?", re.DOTALL)
_PAGE = re.compile(rf"{_HUB}/(?:(datasets|spaces)/)?({_NAME}/{_NAME})/(?:resolve|blob|raw)/([^/?#]+)/([^?#]+)")


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Where the hub is and how it is reached; resolved."""

    endpoint: str  # empty for the hub itself, whose files are the same for all
    ca_file: str | None
    proxy: str | None = field(repr=False)  # may hold a password


class HuggingFace(Store):
    """``hf://datasets/ORG/NAME[@REVISION]/path``, and the same for models and spaces. Its bucket is the repository."""

    name = "the Hugging Face Hub"
    schemes = ("hf",)
    # All of a listing is one page, because the hub does not promise an order.
    limits = Limits(page_keys=maxsize, key_bytes=4096)
    abilities = Abilities(digest=None, seeks=False, sums=True, ranges=None)
    options = HFOptions
    where = "endpoint= or HF_ENDPOINT"
    example = "HFOptions(token=…)"

    def open(self, opening: Opening) -> tuple[Driver, Transport]:
        from penstock.stores.huggingface.driver import HubDriver, Repository

        match = _REPOSITORY.fullmatch(opening.bucket)
        if match is None:
            raise ConfigError(self.bucket_fault(opening.bucket), url=opening.root)
        hub, token = opening.settings.endpoint or _HUB, find_token(opening.options, opening.environ)
        if token and hub.startswith("http:") and not endpoints.is_here(hub):
            raise ConfigError(f"the token would be sent to {hub} unencrypted: use https, or pass anonymous=True")
        conceal(token)
        driver = HubDriver(opening.root, Repository(hub, match[1], match[2], unquote(match[3] or "main")), token)
        driver.abilities = self.abilities
        return driver, make_transport(opening, hub, self.where)

    def split(self, rest: str) -> tuple[str, str]:
        match = _SPLIT.fullmatch(rest)
        return (match[1], match[2] or "") if match else super().split(rest)

    def bucket_fault(self, bucket: str) -> str:
        if _REPOSITORY.fullmatch(bucket):
            return ""
        if bucket == "buckets":
            return (
                "Storage Buckets speak S3: write s3://BUCKET/key and pass S3Options(provider='hf-buckets', account=…)"
            )
        return f"{bucket[:80]!r} cannot be a repository: write hf://datasets/ORG/NAME[@REVISION]/path, or hf://models/…"

    def key_fault(self, key: str) -> str:
        *folders, name = key.split("/")
        wrong = not {"", ".", ".."}.isdisjoint(folders) or name in (".", "..")
        return "no file of a repository has '//', '.' or '..' in its path" if wrong else ""

    def resolve(self, options: HFOptions, environ: Mapping[str, str]) -> tuple[Hashable, Hashable]:
        named, text = first([("HFOptions.endpoint", options.endpoint), *variables(environ, "HF_ENDPOINT")])
        hub = "" if text is None else endpoints.normal(text, named)
        settings = HubSettings("" if hub == _HUB else hub, ca_file(options.transport, environ), options.transport.proxy)
        return settings, sha256(find_token(options, environ).encode()).digest()

    def advice(self, text: str) -> str:
        if match := _PAGE.match(text):
            kind, name, revision, path = match.groups()
            return f"for this file write hf://{kind or 'models'}/{name}@{revision}/{unquote(path)}"
        return ""


def find_token(options: HFOptions, environ: Mapping[str, str]) -> str:
    """Return the token of the options, else of the environment, else of the login; empty without one."""
    if options.token is not None or options.anonymous:
        return options.token or ""
    if environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return ""
    named = environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN")
    if named is None:
        home = environ.get("HF_HOME") or f"{environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
        try:
            path = Path(environ.get("HF_TOKEN_PATH") or f"{home}/token").expanduser()
            named = path.read_text("utf-8")
        except (OSError, RuntimeError, ValueError):
            return ""
    token = named.strip()
    if not (token.isascii() and (token.isprintable() or not token)):
        raise ConfigError("the token of HF_TOKEN, or of the file of the login, must be printable ASCII")
    return token
