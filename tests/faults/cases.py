"""One fault and one verb on a server of their own: what the caller gets, in how many requests, and what then stands."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from time import monotonic

from penstock.errors import Changed, PenstockError
from penstock.options import RetryOptions, TransportOptions, WriteOptions
from penstock.source import open_source
from penstock.stores.azure.options import AzureOptions
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.oss.options import OSSOptions
from penstock.stores.s3.options import S3Options
from penstock.stores.web.options import HTTPOptions
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.testing.faults.dialect import find_words
from penstock.values import ObjectMeta, Span
from tests.limits import limited

COLUMNS = {  # column of the table: the request that meets the fault
    "head": "head",
    "list": "list",
    "read": "get",
    "read of unknown size": "get",
    "range": "get",
    "suffix": "get",
    "batch": "get",
    "put": "put",
    "replace": "put",
    "create": "create",
    "part": "part",
    "complete": "complete",
    "abort": "abort",
    "copy": "copy",
    "copy of a part": "copy-part",
    "delete": "delete",
}
# Of Google Cloud Storage: no parts are copied, and a large object on a condition is moved.
GOOGLE = {column: verb for column, verb in COLUMNS.items() if column != "copy of a part"} | {"move": "move"}
# Of Azure: uploads are begun and aborted without a request.
AZURE = {column: verb for column, verb in COLUMNS.items() if column not in ("create", "abort")}
# Of plain web servers: they are read.
WEB = {column: verb for column, verb in COLUMNS.items() if verb in ("head", "list", "get")}
PLAIN = "tests.faults.web"
BY_DIALECT = {"s3": COLUMNS, "gcs": GOOGLE, "oss": COLUMNS, "azure": AZURE, PLAIN: WEB}
RANGED = {"range", "suffix"}  # columns whose request asks for a part of the object
WAITS = {"stall", "stall-body", "drip", "slow", "503-after"}
ATTEMPTS = 3  # bounded by number, so that a busy machine changes nothing
PART_BYTES = 64 << 10
SUFFIX_BYTES = 50_000  # of the object's 99,999
OLD, NEW, COPIED = b"old" * 33_333, b"new" * 10_000, b"bytes to copy" * 7_000  # of the first and the last two parts
LONG = b"NEW" * 30_000  # two parts
PLAYS, UNMET = 5, "the fault was never met"
BATCH = {f"batch/{number}": bytes([number]) * 20_000 for number in range(8)}
WITNESS = b"witness" * 1000
SUBJECTS = {
    "put": ("key", NEW),
    "replace": ("key", NEW),
    "copy": ("to", COPIED),
    "copy of a part": ("to", COPIED),
    "delete": ("key", None),
}


@dataclass
class Case:
    """What is tried, and what came of it."""

    fault: str
    column: str
    always: bool = False
    dialect: str = "s3"
    outcome: str = ""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)  # of what stood there at first

    def expect(self, holds, what):
        if not holds:
            self.wrong.append(what)

    @property
    def verb(self):
        return BY_DIALECT[self.dialect][self.column]

    @property
    def possible(self):
        fault = find_words(self.dialect).faults.get(self.fault, FAULTS[self.fault])
        if self.verb not in fault.verbs or (fault.ranged and self.column not in RANGED):
            return False
        if fault.region:  # it lasts by itself; an upload learns of it when it begins, a replacement when it looks
            return not self.always and self.column not in ("replace", "part", "complete", "abort", "copy of a part")
        if fault.reused:  # so does this, and what is sent at once makes connections of its own
            return not self.always and self.column != "batch"
        return True


def small_parts():
    """Return write options below S3's least part: less to hash and to send. ``small_limits()`` lets them pass."""
    return WriteOptions(part_bytes=PART_BYTES, buffer_bytes=4 * PART_BYTES)


@contextlib.contextmanager
def small_limits():
    """Have this process's stores take small parts within a block, as ``Settings(least_part_bytes=…)`` does."""
    least = {"least_part_bytes": PART_BYTES}
    with limited(**least), limited("gs", **least), limited("oss", **least):
        yield


def store(server, *, attempts=ATTEMPTS):
    """Return options that give up soon, with credentials that come from the environment, where new ones could be."""
    patient = RetryOptions(base_s=0.01, cap_s=0.05, patience_s=30, first_contact_s=30, attempts=attempts)
    common = {"transport": TransportOptions(stall_timeout_s=2, connect_timeout_s=2), "retry": patient}
    if server.scheme == "gs":
        return GCSOptions(endpoint=server.endpoint, token="good", write=small_parts(), **common)
    if server.scheme == "oss":
        settings, write = server.settings, small_parts()
        keys = {"access_key": settings.access_key, "secret_key": settings.secret_key}
        return OSSOptions(endpoint=server.endpoint, region=settings.region, write=write, **keys, **common)
    if server.scheme == "http":
        return HTTPOptions(**common)
    if server.scheme == "az":
        return AzureOptions(connection_string=_connection_string(server), write=small_parts(), **common)
    return S3Options(endpoint=server.endpoint, region=server.settings.region, write=small_parts(), **common)


def _connection_string(server):
    return server.environment["AZURE_STORAGE_CONNECTION_STRING"]


def run(case):
    """Play a case and fill in what came of it; again if a fault of an old connection met a request over a new one.

    An upload whose parts are in flight when it is aborted closes their connections, so that the machine's load decides.
    """
    for _ in range(PLAYS):
        played = _play(replace(case, wrong=[], versions={}))
        if played.wrong != [UNMET] or not FAULTS[case.fault].reused:
            break
    return played


def _play(case):
    settings = Settings(dialect=case.dialect, tokens=("good",), least_part_bytes=PART_BYTES)
    with FaultServer.within(settings) as server:
        for key, data in {"key": OLD, "to": OLD, "from": COPIED, "witness": WITNESS, **BATCH}.items():
            case.versions[key] = server.put("bucket", key, data)
        source = _source(server)
        source.head("witness")  # there is a connection now, and the store has answered before
        do, key = VERBS[case.column]
        when = Match(
            verb=case.verb,
            key=key,
            # One of two, which are sent at once; where it is about a connection, the one that comes over an old one.
            part=int(case.column in ("part", "copy of a part") and not FAULTS[case.fault].reused),
            times=None if case.always else 1,
        )
        server.fail(FAULTS[case.fault], when=when)
        began = monotonic()
        try:
            do(case, source, server)
            case.outcome = "✓"
        except PenstockError as error:
            case.outcome = type(error).__name__
        case.seconds = monotonic() - began
        if not case.always and case.outcome == "✓":
            case.outcome += f" {_tries(case, server, key)}"
        case.expect(case.fault in {seen.fault for seen in server.seen()}, UNMET)
        server.heal()
        _stands(case, server)
        _goes_on(case, source)
    return case


def _source(server):
    if server.scheme != "http":
        return open_source(f"{server.scheme}://bucket/", store(server))[0]
    source, _ = open_source(f"{server.endpoint}/", store(server))
    return source


def _goes_on(case, source):
    """Read another object: what is left of the exchange must not be taken for its answer."""
    span = Span("witness", 0, len(WITNESS), case.versions["witness"])
    try:
        case.expect(source.read(span) == WITNESS, "the next read is wrong")
    except Changed:
        # libcurl throws a connection away that has bytes waiting. When they come later, the ETag tells.
        case.expect(FAULTS[case.fault].copies > 1, "the next read is refused")


def _tries(case, server, key):
    seen = server.seen(case.verb, "bucket", key)
    met = next((each for each in seen if each.fault == case.fault), None)
    if (
        met is not None and case.column == "part"
    ):  # its number is in its query, which is not recorded; the last is shorter
        seen = [each for each in seen if each.headers["content-length"] == met.headers["content-length"]]
    if met is not None and case.column == "copy of a part":
        seen = [each for each in seen if _source_range(each) == _source_range(met)]
    return len(seen)


def _source_range(seen):
    return next(value for name, value in seen.headers.items() if name.endswith("source-range"))


def _stands(case, server):
    """Check that what is visible is whole: untouched where nothing was written, else the old or the new."""
    found = server.objects("bucket")
    was = {"key": OLD, "to": OLD, "from": COPIED, "witness": WITNESS, **BATCH}
    done = case.outcome.startswith("✓")
    subject, new = SUBJECTS.get(case.column, ("key", LONG))
    writes = case.column in ("create", "part", "complete", "move", *SUBJECTS)
    for key, old in was.items():
        allowed = [old]
        if writes and key == subject:
            allowed = [new] if done else [old, new]
            if not done and FAULTS[case.fault].undone:
                allowed = [old]
        case.expect(found.get(key) in allowed, f"{key} is neither old nor new")
    case.expect(set(found) <= set(was), "something was published that nobody wrote")
    orphaned = case.column == "create" or case.outcome == "Left" or case.dialect == "azure"  # it forgets them itself
    case.expect(orphaned or not server.uploads("bucket"), "an upload was left behind")


def _head(case, source, _server):
    case.expect(source.head("key").size == len(OLD), "wrong size")


def _list(case, source, _server):
    keys = [entry.key for page in source.pages("") for entry in page.entries]
    case.expect(keys == sorted(["key", "to", "from", "witness", *BATCH]), "wrong listing")


def _reads(start, stop):
    def read(_case, source, server):
        etag = server.put("bucket", "key", OLD)
        whole = (start, stop) == (0, len(OLD))
        if source.read(Span("key", start, stop, etag, whole=whole)) != OLD[start:stop]:
            raise Unseen("a wrong byte was delivered")

    return read


def _suffix(_case, source, server):
    etag = server.put("bucket", "key", OLD)
    if source.read(Span("key", -SUFFIX_BYTES, None, etag)) != OLD[-SUFFIX_BYTES:]:
        raise Unseen("a wrong byte was delivered")


def _batch(_case, source, server):
    etags = {key: server.put("bucket", key, data) for key, data in BATCH.items()}
    spans = [Span(key, 0, len(data), etags[key], whole=True) for key, data in BATCH.items()]
    if source.read_many(spans) != list(BATCH.values()):
        raise Unseen("a wrong byte was delivered")


def _put(_case, source, _server):
    with source.open_write("key") as file:
        file.write(NEW)


def _replace(case, source, _server):
    with source.open_write("key", replaces=case.versions["key"]) as file:
        file.write(NEW)


def _move(case, source, _server):
    with source.open_write("key", replaces=case.versions["key"]) as file:
        file.write(LONG)


def _multipart(_case, source, _server):
    with source.open_write("key") as file:
        file.write(LONG)


class _Leaving(Exception):
    pass


def _abort(_case, source, server):
    with contextlib.suppress(_Leaving), source.open_write("key") as file:
        file.write(LONG)
        raise _Leaving
    if server.uploads("bucket"):
        raise Left("the upload is still there")


def _copy(case, source, _server):
    source.copy("from", "to", ObjectMeta("from", len(COPIED), case.versions["from"]))  # as it was listed


def _copy_in_parts(_case, source, _server):
    fetcher = source._fetcher()
    fetcher.limits = replace(fetcher.limits, copy_bytes=PART_BYTES)  # of a gibibyte, else
    source.copy("from", "to")


class Unseen(PenstockError):
    """Bytes were delivered that are not the object's."""


class Left(PenstockError):
    """The upload could not be aborted; it is invisible, and ``rm --incomplete`` finds it."""


VERBS = {
    "head": (_head, "key"),
    "list": (_list, ""),
    "read": (_reads(0, len(OLD)), "key"),
    "read of unknown size": (_reads(0, None), "key"),
    "range": (_reads(10_000, 60_000), "key"),
    "suffix": (_suffix, "key"),
    "batch": (_batch, "batch/3"),
    "put": (_put, "key"),
    "replace": (_replace, "key"),
    "create": (_multipart, "key"),
    "part": (_multipart, "key"),
    "complete": (_multipart, "key"),
    "abort": (_abort, "key"),
    "copy": (_copy, "to"),
    "copy of a part": (_copy_in_parts, "to"),
    "move": (_move, "key"),
    "delete": (lambda _case, source, _server: source.delete(["key"]), "key"),
}


def everything():
    """Return all cases, those first that take longest."""
    cases = [
        Case(name, column, always, dialect)
        for dialect, columns in BY_DIALECT.items()
        for name in FAULTS
        for column in columns
        for always in (False, True)
    ]
    return sorted((case for case in cases if case.possible), key=lambda case: not case.always)
