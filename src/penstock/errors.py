"""All errors of Penstock, grouped by the caller's next action.

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
    ├── Cancelled                 cancelled by you (Ctrl-C, close, break)
    └── Bug                       please report

``Transient`` errors are retried as long as ``RetryOptions`` allow; a few others (``retries``) at once or never.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
]

# Longest text of an error: a key alone may have 1,024 characters, and a server's response megabytes.
_MOST_CHARACTERS = 4000
_HIDDEN = "[hidden]"
# Beginnings of nouns that are spoken with a vowel: of letters spelled out, of words, and of NumPy's array.
_VOWEL = re.compile(r"[AEFHILMNORSX][A-Z0-9]|(?i:[aeio]|u(?!int|ni|s[ae]|uid|rl|path)|ndarray)")
# Shortest secret in characters: shorter ones occur in too many other words.
_LEAST_SECRET = 8
_MOST_SECRETS = 128
_MOST_ALIASES = 64
# Maps penstock://profile/ to the URL of its store; changed like _secrets.
_aliases: dict[str, str] = {}
# In order of insertion; changed one step at a time, so threads, forks and Ctrl-C need no lock.
_secrets: dict[str, None] = {}
# Parts of a request that a server may echo, and of a URL that libcurl may quote (a proxy's too).
_TELLING = re.compile(
    r"(?P<kept>AWS4-HMAC-SHA256\W).{0,1000}?signature\W[^\s&,;\"'<>]+"
    r"|(?P<name>(?:signature|\bsig|(?:security|session)[-_]?token|secret[-_]?(?:access[-_]?)?key)[\"']?\s?(?:[=:]|%3D)\s?[\"']?)"
    r"[^\s&,;\"'<>]{8,}"
    r"|(?P<scheme>bearer\s+)[\w.~+/=-]{8,}"
    # In Azure's own URLs a container without a colon precedes the @.
    r"|(?P<url>(?<!\baz)(?<!\babfs)(?<!\babfss)(?<!\badl)(?<!\bazure)(?<!\boci)://)[^/\s@]+(?=@)"
    r"|(?P<user>://)[^/\s@:]*:[^/\s@]+(?=@)",
    re.IGNORECASE,
)
# Any part of a query may contain a signature; an http URL without its query still names the place.
_QUERY = re.compile(r"(?P<url>\bhttps?://[^\s?\"'<>]*\?)[^\s\"'<>]+", re.IGNORECASE)
# Every match of _TELLING contains one of these.
_WORDS = ("sig", "token", "secret", "bearer", "@")


def conceal(*secrets: str) -> None:
    """Hide these secrets in all errors made from now on; code that reads a secret calls this once."""
    long = [each for each in secrets if len(each) >= _LEAST_SECRET]
    for each in (*long, *(quote(each, safe="") for each in long)):
        _secrets[each] = None
    for each in list(_secrets)[:-_MOST_SECRETS]:
        _secrets.pop(each, None)  # another thread may have removed it


def alias(url: str, other: str) -> None:
    """Make errors at a URL that begins with ``url`` also show its other address, below ``other``; and vice versa."""
    _aliases.pop(other, None)
    _aliases[other] = url
    for each in list(_aliases)[:-_MOST_ALIASES]:
        _aliases.pop(each, None)


def _also(url: str) -> str:
    """Return the other address of a URL, by the longest prefix; empty if none matches, or two match equally."""
    pairs = [pair for other, one in list(_aliases.items()) for pair in ((other, one), (one, other))]
    fitting = [pair for pair in pairs if url.startswith(pair[0])]
    longest = max((len(near) for near, _ in fitting), default=0)
    # Two profiles may have the same URL: do not name the one that the program did not use.
    near = [pair for pair in fitting if len(pair[0]) == longest]
    return near[0][1] + url[longest:] if len(near) == 1 else ""


def _discreet(text: str) -> str:
    """Return ``text``, shortened, without known secrets and anything that looks like one."""
    for secret in list(_secrets):
        text = text.replace(secret, _HIDDEN)
    if "?" in text and "://" in text:
        text = _QUERY.sub(r"\g<url>…", text)
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}…"
    lower = text.lower()
    # True for nearly all texts; the search takes 30 times as long.
    if not any(word in lower for word in _WORDS):
        return text
    return _TELLING.sub(lambda found: f"{found[found.lastgroup or 0]}{_HIDDEN}", text)


def discreet(text: str) -> str:
    """Return a key, URL or foreign text for a log: signatures, tokens and passwords are hidden.

    Text without any of these is returned unchanged; other text is shortened like an error's.
    """
    lower = text.lower()
    suspicious = ("?" in text and "://" in text) or any(word in lower for word in _WORDS)
    # Cut first: the search would take minutes for a key of one mebibyte.
    return _discreet(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…") if suspicious else text


def public_url(url: str) -> str:
    """Return a URL without the query of a web server's URL, which may contain a signature."""
    head, mark, _ = url.partition("?")
    return f"{head}?…" if mark and head[:8].lower().startswith(("http://", "https://")) else url


def printable(text: str) -> str:
    """Return ``text`` with control characters, line breaks, surrogates and bidirectional overrides as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def add_article(noun: str) -> str:
    """Return a noun with its indefinite article, as spoken: ``an int``, ``a uint8``, ``an S3Client``, ``a UPath``."""
    return f"{'an' if _VOWEL.match(noun) else 'a'} {noun}"


def kind_of(value: object) -> str:
    """Return the type of a value with its article, for messages: ``an int``; ``None`` unchanged."""
    return "None" if value is None else add_article(type(value).__name__)


def worse_of(one: PenstockError | None, other: PenstockError | None) -> PenstockError | None:
    """Return the failure to act on first; of equal failures, the first. ``Transient`` only if a retry may help both."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=_severity)


def _severity(error: PenstockError) -> int:
    worst_first: tuple[type, ...] = (Damaged, NoSpace, Denied, Unusable)
    usual = len(worst_first) + isinstance(error, Transient)
    return next((at for at, kind in enumerate(worst_first) if isinstance(error, kind)), usual)


class PenstockError(Exception):
    """The base class: catch it to catch everything that Penstock raises on purpose.

    Args:
        message: The problem and its solution. Secrets given to ``conceal``, and parts that look like a signature, a
            token or a password, are hidden; beyond 4,000 characters it is cut.
        url: The URL of the object or place, without query or user information.
        attempts: Number of requests made before giving up.
        elapsed_s: Seconds from the first attempt to giving up.

    Attributes:
        retries: Number of further attempts that may help, if ``RetryOptions`` allow them: none for most errors.
        retry_after_s: Delay in seconds that the server asked for; None if it did not.
        code: The store's own error code, if it gave one.

    Example:
        >>> try:
        ...     ps.stat("s3://bucket/missing")
        ... except ps.PenstockError as error:
        ...     print(error.url)
        s3://bucket/missing
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
        """Return the message, the URL (for a profile also the store's), and the effort spent, in one printable line."""
        text = self.message
        urls = [_discreet(public_url(each)) for each in (self.url, _also(self.url) if self.url else "") if each]
        if where := " = ".join(each for each in urls if each not in text):
            text = f"{text} [{where}]"
        # Server messages and other users' keys may contain terminal escapes.
        text = printable(text)
        if self.attempts > 1:
            text = f"{text} (gave up after {self.attempts} attempts in {self.elapsed_s:.1f} s)"
        return text

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """Function by which IPython renders the error, without Penstock's own frames.

        A ``Bug``, and with ``PENSTOCK_TRACEBACK=full`` every error, has no such attribute, so IPython shows all frames.
        """
        if isinstance(self, Bug) or os.environ.get("PENSTOCK_TRACEBACK") == "full":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute '_render_traceback_'")
        return partial(_render_outer_frames, self)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with all attributes: DataLoader re-raises a worker's error in the parent process."""
        return (_rebuild, (type(self), self.message), self.__dict__.copy())


_INNER = ("penstock", "IPython")


def _render_outer_frames(error: PenstockError) -> list[str]:
    """Return the lines of a traceback with the frames of the user and of other libraries, and the error with causes."""
    import traceback

    walked = [*traceback.walk_tb(error.__traceback__)]
    outer = [each for each in walked if str(each[0].f_globals.get("__name__")).partition(".")[0] not in _INNER]
    lines = ["Traceback (most recent call last; PENSTOCK_TRACEBACK=full shows the frames inside Penstock):"]
    lines += traceback.StackSummary.extract(iter(outer)).format()
    cause: BaseException | None = error
    while cause is not None:
        lines += traceback.format_exception_only(cause)
        cause = cause.__cause__
        if cause is not None:
            lines.append("caused by:")
    return "".join(each if each.endswith("\n") else f"{each}\n" for each in lines).splitlines()


def _rebuild(kind: type[PenstockError], message: str) -> PenstockError:
    # DataLoader calls kind(message) as well, so every class keeps the one-argument constructor.
    return kind(message)


class Unusable(PenstockError):
    """The call cannot succeed as written and must be changed.

    Example:
        >>> ps.Place(rank=2, world=2)
        Traceback (most recent call last):
        penstock.errors.Unusable: ...
    """


class InvalidURL(Unusable, ValueError):
    """A URL that cannot be parsed, or lacks its bucket or key.

    Example:
        >>> ps.stat("s3://bucket")
        Traceback (most recent call last):
        penstock.errors.InvalidURL: this names a bucket, not an object in it [s3://bucket/]
    """


class ConfigError(Unusable):
    """An option, profile or environment variable with a value that cannot work.

    Example:
        >>> ps.S3Options(access_key="id")
        Traceback (most recent call last):
        penstock.errors.ConfigError: ...
    """


class UnknownScheme(Unusable):
    """No driver is registered for the URL's scheme.

    Example:
        >>> ps.open("gopher://bucket/key")
        Traceback (most recent call last):
        penstock.errors.UnknownScheme: ...
    """


class MissingExtra(Unusable, ImportError):
    """An optional library is not installed; the text names the extra to install."""


@contextmanager
def require_extras(need: str, **extras: str) -> Iterator[None]:
    """Raise ``MissingExtra`` with the extra to install if an import in the block fails for a missing library.

    Args:
        need: The operation and its requirement, such as "ps.Path needs universal_pathlib".
        **extras: The extra that installs each optional library that the block may import.

    Raises:
        MissingExtra: A library is not installed, or cannot be imported; the message then includes the cause.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        missing = error.name or next((each for each in extras if sys.modules.get(each) is None), "")
        library = missing.partition(".")[0]
        if library not in extras:
            raise
        # An installed but broken library: report its error as the cause.
        cause = "" if isinstance(error, ModuleNotFoundError) and error.name == library else f" ({error})"
        raise MissingExtra(f"{need}: pip install 'penstock[{extras[library]}]'{cause}") from error


class Unsupported(Unusable, NotImplementedError):
    """The store does not support this verb (list, put, multipart, copy, delete); nothing was changed.

    Example:
        >>> ps.open("https://example.com/notes.txt", "w")
        Traceback (most recent call last):
        penstock.errors.Unsupported: ...
    """


class NotFound(PenstockError, FileNotFoundError):
    """No such object, bucket or upload.

    Attributes:
        missing: The missing thing, if the store reports it: ``object``, ``bucket``, or ``target`` of a link.

    Example:
        >>> ps.stat("s3://bucket/missing")
        Traceback (most recent call last):
        penstock.errors.NotFound: ...
    """

    missing = ""


class Denied(PenstockError, PermissionError):
    """The store understands the request and refuses it."""


class Unauthenticated(Denied):
    """Credentials are missing, unknown, expired, or signed wrongly."""


class Forbidden(Denied):
    """The credentials are valid but do not permit this operation."""


class NoSpace(PenstockError, OSError):
    """A disk is full, or a quota is used up: make room. Nothing of the failed write remains."""

    ERRNOS = (ENOSPC, EDQUOT)


class Conflict(PenstockError):
    """Another writer wrote in the meantime."""


class AlreadyExists(Conflict, FileExistsError):
    """A create-only write found an existing object.

    Example:
        >>> with ps.open("s3://bucket/train/3/0000.png", "xb") as file:
        ...     file.write(b"new")
        Traceback (most recent call last):
        penstock.errors.AlreadyExists: ...
    """


class PreconditionFailed(Conflict):
    """A conditional request's condition did not hold."""


class Changed(Conflict):
    """The object is no longer the one that was listed or opened.

    Example:
        >>> ps.copy("s3://bucket/train/3/0000.png", "s3://bucket/a.png")
        >>> reader = ps.open("s3://bucket/a.png")
        >>> ps.copy("s3://bucket/train/3/0001.png", "s3://bucket/a.png")
        >>> reader.read()
        Traceback (most recent call last):
        penstock.errors.Changed: ...
    """


class DatasetChanged(Changed):
    """The source of all samples changed after it was opened, such as an array deleted during the read."""


class Transient(PenstockError):
    """A temporary failure, after Penstock's own retries: try later.

    Example:
        >>> from penstock.errors import Transient
        >>> try:
        ...     size = ps.stat("s3://bucket/train/3/0000.png").size
        ... except Transient:
        ...     size = None  # unknown: ask again later
    """

    retries = sys.maxsize


class Throttled(Transient):
    """The store asked for fewer requests (429, 503 SlowDown)."""


class TimedOut(Transient, TimeoutError):
    """No progress for too long; never raised for a slow transfer that makes progress."""


class Unreachable(Transient, ConnectionError):
    """No connection, or one that broke.

    Example:
        >>> closed = ps.S3Options(endpoint="http://127.0.0.1:1", retry=ps.RetryOptions(attempts=1))
        >>> ps.stat("s3://bucket/train/3/0000.png", store=closed)
        Traceback (most recent call last):
        penstock.errors.Unreachable: ...
    """


class Damaged(PenstockError):
    """The bytes are wrong: do not use them."""


class Truncated(Damaged):
    """Fewer bytes arrived than promised, repeatedly."""


class ChecksumMismatch(Damaged):
    """A digest of the bytes differs from the one recorded for them."""

    # Damage in transit rarely repeats; data damaged three times is damaged at rest.
    retries = 2


class ManifestError(Damaged, ValueError):
    """A manifest that cannot be parsed; the message names the line.

    Example:
        >>> with ps.open("list.jsonl", "w") as file:
        ...     file.write("{")
        1
        >>> ps.MapDataset.from_manifest("list.jsonl", base="s3://bucket/")
        Traceback (most recent call last):
        penstock.errors.ManifestError: ...list.jsonl, line 1: not JSON (...)
    """


class CheckpointError(Damaged):
    """A checkpoint that is incomplete or inconsistent.

    Example:
        >>> ps.load("s3://bucket/train/3/0000.png")
        Traceback (most recent call last):
        penstock.errors.CheckpointError: ...
    """


class StateMismatch(PenstockError, ValueError):
    """A resume state that does not match in shape, version or catalog.

    Example:
        >>> loader = ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/train/3/"), batch_size=8)
        >>> loader.load_state_dict({"epoch": 1})
        Traceback (most recent call last):
        penstock.errors.StateMismatch: ...
    """


class Cancelled(PenstockError):
    """The operation was cancelled by this process (Ctrl-C, ``close``, ``break``); never retried."""


class Bug(PenstockError):
    """A violated internal assumption of Penstock: please report it with the traceback."""
