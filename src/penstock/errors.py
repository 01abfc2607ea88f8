"""Everything that can go wrong, grouped by what the caller does next.

::

    PenstockError                 .url .attempts .elapsed_s; the cause is chained; never a secret in the text
    ├── Unusable                  fix your call:        InvalidURL, ConfigError, UnknownScheme, MissingExtra,
    │                                                   Unsupported
    ├── NotFound                  (also FileNotFoundError)
    ├── Denied                    (also PermissionError) Unauthenticated, Forbidden
    ├── NoSpace                   (also OSError) make room: a disk is full, a quota used up, or memory too short
    ├── Conflict                  someone else wrote:   AlreadyExists, PreconditionFailed, Changed,
    │                                                   DatasetChanged
    ├── Transient                 try later:            Throttled, TimedOut, Unreachable
    ├── Damaged                   do not trust it:      Truncated, ChecksumMismatch, ManifestError, CheckpointError
    ├── StateMismatch             resume state of another shape, version or catalog
    ├── Cancelled                 you called it off yourself (Ctrl-C, close, break)
    └── Bug                       please report

``Transient`` is retried as long as ``RetryOptions`` allow; a few others (``retries``) at once or never.
"""

from __future__ import annotations

import re
import sys
from errno import EDQUOT, ENOSPC
from urllib.parse import quote

__all__ = [
    "AlreadyExists",
    "Bug",
    "Cancelled",
    "Changed",
    "CheckpointError",
    "ChecksumMismatch",
    "ConfigError",
    "Conflict",
    "Damaged",
    "DatasetChanged",
    "Denied",
    "Forbidden",
    "InvalidURL",
    "ManifestError",
    "MissingExtra",
    "NoSpace",
    "NotFound",
    "PenstockError",
    "PreconditionFailed",
    "StateMismatch",
    "Throttled",
    "TimedOut",
    "Transient",
    "Truncated",
    "Unauthenticated",
    "UnknownScheme",
    "Unreachable",
    "Unsupported",
    "Unusable",
    "alias",
    "conceal",
    "printable",
    "public_url",
]

_MOST_CHARACTERS = 4000  # of a text; a key alone may have 1,024, and a server's answer megabytes
_HIDDEN = "[hidden]"
_LEAST_SECRET = 8  # characters: what is shorter stands in too many other words
_MOST_SECRETS = 128
_MOST_ALIASES = 64
_aliases: dict[str, str] = {}  # penstock://profile/ -> the URL of its store; changed as _secrets are
_secrets: dict[str, None] = {}  # in order; changed one step at a time, so threads, forks and Ctrl-C need no lock
# What a server may echo of a request, and libcurl of a URL (a proxy's too).
_TELLING = re.compile(
    r"(?P<kept>AWS4-HMAC-SHA256\W).{0,1000}?signature\W[^\s&,;\"'<>]+"
    r"|(?P<name>(?:signature|\bsig|(?:security|session)[-_]?token|secret[-_]?(?:access[-_]?)?key)[\"']?\s?(?:[=:]|%3D)\s?[\"']?)"
    r"[^\s&,;\"'<>]{8,}"
    r"|(?P<scheme>bearer\s+)[\w.~+/=-]{8,}"
    # In Azure's own URLs a container stands before the @, and has no colon.
    r"|(?P<url>(?<!\baz)(?<!\babfs)(?<!\babfss)(?<!\badl)(?<!\bazure)(?<!\boci)://)[^/\s@]+(?=@)"
    r"|(?P<user>://)[^/\s@:]*:[^/\s@]+(?=@)",
    re.IGNORECASE,
)
# A signature may stand in any part of a query, and an http URL without it still says where something went wrong.
_QUERY = re.compile(r"(?P<url>\bhttps?://[^\s?\"'<>]*\?)[^\s\"'<>]+", re.IGNORECASE)
_WORDS = ("sig", "token", "secret", "bearer", "@")  # of which one is in all of that


def conceal(*secrets: str) -> None:
    """Have no error made from now on quote these: code that reads a secret calls this once."""
    long = [each for each in secrets if len(each) >= _LEAST_SECRET]
    for each in (*long, *(quote(each, safe="") for each in long)):
        _secrets[each] = None
    for each in list(_secrets)[:-_MOST_SECRETS]:
        _secrets.pop(each, None)  # another thread may have seen the same ones


def alias(url: str, other: str) -> None:
    """Have errors at a URL that begins with ``url`` also give its other address, below ``other``; and the reverse."""
    _aliases.pop(other, None)
    _aliases[other] = url
    for each in list(_aliases)[:-_MOST_ALIASES]:
        _aliases.pop(each, None)


def _also(url: str) -> str:
    """Return the other address of a URL; empty where it has none."""
    pairs = [pair for other, one in list(_aliases.items()) for pair in ((other, one), (one, other))]
    near = max((pair for pair in pairs if url.startswith(pair[0])), key=lambda pair: len(pair[0]), default=None)
    return "" if near is None else near[1] + url[len(near[0]) :]


def _discreet(text: str) -> str:
    """Return ``text`` without what is, or looks like, a secret, and not endlessly long."""
    for secret in list(_secrets):
        text = text.replace(secret, _HIDDEN)
    if "?" in text and "://" in text:
        text = _QUERY.sub(r"\g<url>…", text)
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}…"
    lower = text.lower()
    if not any(word in lower for word in _WORDS):  # nearly all, and the search takes 30 times as long
        return text
    return _TELLING.sub(lambda found: f"{found[found.lastgroup or 0]}{_HIDDEN}", text)


def public_url(url: str) -> str:
    """Return a URL as it may be shown: the query of a web server's may hold a signature, so it is left out."""
    head, mark, _ = url.partition("?")
    return f"{head}?…" if mark and head[:8].lower().startswith(("http://", "https://")) else url


def printable(text: str) -> str:
    """Return ``text`` with control characters, line breaks, surrogates and bidirectional overrides as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


class PenstockError(Exception):
    """The root: catch it to catch everything Penstock raises on purpose.

    Args:
        message: What happened and what to do about it. What ``conceal`` was told, and what looks like a signature, a
            token or a password, is replaced; beyond 4,000 characters it is cut.
        url: The object or place it happened to, without query or user information.
        attempts: How many requests were made before giving up.
        elapsed_s: Seconds from the first attempt to giving up.

    Attributes:
        retries: How many more attempts may help, if ``RetryOptions`` allow them: none for most errors.
        retry_after_s: What the server asked for, if it did.
        code: The store's own name for the error, where it gave one.

    """

    retries = 0

    def __init__(self, message: str, *, url: str = "", attempts: int = 0, elapsed_s: float = 0.0) -> None:
        message = _discreet(message)
        super().__init__(message)
        self.message = message
        self.url = url
        self.attempts = attempts
        self.elapsed_s = elapsed_s
        self.retry_after_s: float | None = None
        self.code = ""

    def __str__(self) -> str:
        """Return the message, the URL (of a profile, the store's too), and the effort spent, in one printable line."""
        text = self.message
        urls = [_discreet(public_url(each)) for each in (self.url, _also(self.url) if self.url else "") if each]
        if where := " = ".join(each for each in urls if each not in text):
            text = f"{text} [{where}]"
        text = printable(text)  # a server's words and other users' keys may hold terminal escapes
        if self.attempts > 1:
            text = f"{text} (gave up after {self.attempts} attempts in {self.elapsed_s:.1f} s)"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        """Cross process boundaries whole: DataLoader re-raises a worker's error in the parent."""
        return (_rebuild, (type(self), self.message), self.__dict__.copy())


def _rebuild(kind: type[PenstockError], message: str) -> PenstockError:
    # DataLoader calls kind(message) as well, so every class keeps the one-argument constructor.
    return kind(message)


class Unusable(PenstockError):
    """The call cannot work as written: change it."""


class InvalidURL(Unusable, ValueError):
    """A URL that cannot be parsed, or lacks its bucket or key."""


class ConfigError(Unusable):
    """An option, profile or environment variable with a value that cannot work."""


class UnknownScheme(Unusable):
    """No driver is registered for the URL's scheme."""


class MissingExtra(Unusable, ImportError):
    """An optional library is not installed; the text names the extra to install."""


class Unsupported(Unusable):
    """The store does not offer this verb (list, put, multipart, copy, delete): nothing was changed."""


class NotFound(PenstockError, FileNotFoundError):
    """No such object, bucket or upload.

    Attributes:
        missing: What is not there, where the store says it: ``object`` or ``bucket``.

    """

    missing = ""


class Denied(PenstockError, PermissionError):
    """The store knows the request and refuses it."""


class Unauthenticated(Denied):
    """Credentials are missing, unknown, expired, or signed wrongly."""


class Forbidden(Denied):
    """The credentials are good and may not do this."""


class NoSpace(PenstockError, OSError):
    """A disk is full, or a quota used up: make room. What was being written is not there, nor any part of it."""

    ERRNOS = (ENOSPC, EDQUOT)


class Conflict(PenstockError):
    """Someone else wrote in the meantime."""


class AlreadyExists(Conflict, FileExistsError):
    """A create-only write found an object in its place."""


class PreconditionFailed(Conflict):
    """A conditional request's condition did not hold."""


class Changed(Conflict):
    """The object is no longer the one that was listed or opened."""


class DatasetChanged(Changed):
    """What all samples come from is no longer what was opened: an array was deleted while it was read."""


class Transient(PenstockError):
    """Try later; Penstock already did, within its retry budget."""

    retries = sys.maxsize


class Throttled(Transient):
    """The store asked for fewer requests (429, 503 SlowDown)."""


class TimedOut(Transient, TimeoutError):
    """No progress for too long; never raised for a slow transfer that moves."""


class Unreachable(Transient, ConnectionError):
    """No connection, or one that broke."""


class Damaged(PenstockError):
    """The bytes are not what they should be: do not use them."""


class Truncated(Damaged):
    """Fewer bytes arrived than promised, again and again."""


class ChecksumMismatch(Damaged):
    """A digest of the bytes differs from the one recorded for them."""

    retries = 2  # on the wire bytes are damaged once; what is damaged three times is damaged where it lies


class ManifestError(Damaged, ValueError):
    """A manifest that does not parse; the text says which line."""


class CheckpointError(Damaged):
    """A checkpoint that is incomplete or inconsistent."""


class StateMismatch(PenstockError, ValueError):
    """A resume state of another shape, version or catalog."""


class Cancelled(PenstockError):
    """The operation was cancelled by this process (Ctrl-C, ``close``, ``break``)."""


class Bug(PenstockError):
    """Penstock broke a promise of its own: please report it with the traceback."""
