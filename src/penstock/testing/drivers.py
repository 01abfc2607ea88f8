"""Contract tests for drivers: subclass ``DriverContract`` and let pytest run its tests on your driver."""

from __future__ import annotations

from hashlib import sha256
from time import time
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import (
    UNKNOWN_BYTES,
    Attributes,
    Buckets,
    Copy,
    Delete,
    List,
    Multipart,
    PartCopy,
    Payload,
    Put,
    Suffix,
    UploadPart,
    Versions,
)
from penstock.engine.support import supports
from penstock.engine.waiting import Inbox
from penstock.errors import AlreadyExists, Changed, NotFound, PenstockError, PreconditionFailed, Truncated, Unusable
from penstock.values import UNKNOWN_SIZE, ObjectMeta, Page, Span, tag_of, version_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Exchange, Request, Response, Transport, Work

T = TypeVar("T")
V = TypeVar("V")
WAIT_S = 60

# Keys that users choose, and keys that some clients handle wrongly: see trap 7 of the design.
KEYS = (
    *("plain", "a b", " lead", "trail ", "plus+plus", "per%cent", "per%20cent", "que?ry", "ha#sh", "am&per", "eq=ual"),
    *("til~de", "quo'te", 'dou"ble', "br[ack]et", "br{ac}e", "(paren)", "back\\slash", "comma,semi;colon:at@", "star*"),
    *("dollar$", "lt<gt>", "pipe|caret^tick`", "ex!claim", "ünïcode", "u\u0308decomposed", "日本語/キー", "emoji-🐶"),
    *("a//b", "//lead", "/lead", "trail/", "./x", "x/../y", "x/./y", "../up", "..", ".", "a/b/c.tar.gz", "&lt;xml&gt;"),
)


class _Once(Generic[T]):
    """An exchange that is sent once: a driver's promises hold without retries."""

    def __init__(self, exchange: Exchange[T], inbox: Inbox) -> None:
        self._exchange = exchange
        self._inbox = inbox
        self._outcome: T | Exception | None = None
        self.complete = False
        self.version = ""

    def request(self) -> Request | Work:
        return self._exchange.request

    def done(self, response: Response) -> float | None:
        try:
            self._outcome = self._exchange.parse(response)
        except Exception as error:  # noqa: BLE001  for the test to judge
            self._outcome = error
        self.version = response.version
        self.complete = True
        self._inbox.finished(self)
        return None

    def look(self) -> None: ...

    def result(self) -> T:
        self._inbox.wait_any((self,), WAIT_S)
        assert self.complete, f"no answer within {WAIT_S} s"
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return cast("T", self._outcome)


class Trial:
    """A driver and the transport it needs, with each verb as a plain call: one attempt, its result or its error."""

    def __init__(self, driver: Driver, transport: Transport, writer: tuple[Driver, Transport] | None = None) -> None:
        """Send ``driver``'s requests over ``transport``; ``writer`` writes the objects if ``driver`` cannot."""
        self.driver = driver
        self._transport = transport
        self._writer = Trial(*writer) if writer is not None and writer[0] is not driver else self

    def has(self, *verbs: Callable[..., object]) -> bool:
        return all(supports(self.driver, verb) for verb in verbs)

    def verb(self, verb: Callable[..., V]) -> V:
        """Return the driver as a ``verb``; skip the test if the driver lacks it."""
        if not self.has(verb):
            pytest.skip(f"the driver has no {verb.__name__}")
        return cast("V", self.driver)

    def do(self, exchange: Exchange[T]) -> T:
        return self.all((exchange,))[0]

    def all(self, exchanges: Iterable[Exchange[T]]) -> list[T]:
        """Send many exchanges at once; return their results in order."""
        return [call.result() for call in self._send(exchanges)]

    def version(self, exchange: Exchange[T]) -> str:
        """Send one exchange, which must succeed, and return the version that its answer named."""
        (call,) = self._send((exchange,))
        call.result()
        return call.version

    def _send(self, exchanges: Iterable[Exchange[T]]) -> list[_Once[T]]:
        self.driver.prepare()
        inbox = Inbox()
        calls = [_Once(exchange, inbox) for exchange in exchanges]
        self._transport.submit(calls)
        return calls

    def payload(self, data: bytes) -> Payload:
        """Return a body with the digest that the driver's store requires."""
        if (begin := self.driver.abilities.digest) is None:
            return Payload(data)
        digest = begin()
        digest.update(data)
        return Payload(data, digest.hexdigest())

    def put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> str:
        return self._writer.do(self._writer.written(key, data, metadata or {}))

    def put_all(self, keys: Sequence[str]) -> None:
        """Write many small objects at once; each holds its own key."""
        self._writer.all([self._writer.written(key, key.encode(), {}) for key in keys])

    def written(self, key: str, data: bytes, metadata: Mapping[str, str]) -> Exchange[str]:
        """Return the exchange with which the driver itself writes one object."""
        return self.verb(Put).put(key, self.payload(data), Attributes("text/plain", metadata))

    def head(self, key: str) -> ObjectMeta:
        return self.do(self.driver.head(key))

    def get(self, key: str, etag: str = "", most_bytes: int = UNKNOWN_BYTES) -> bytes:
        """Read one object of unknown size."""
        got = self.do(self.driver.get(key, etag, most_bytes))
        assert isinstance(got, bytes), "without a buffer there is no beginning"
        return got

    def read(self, key: str, start: int, stop: int, etag: str = "", *, whole: bool = False) -> bytes:
        target = Buffer.allocate(stop - start)
        got = self.do(self.driver.read(Span(key, start, stop, etag, whole), target))
        return target.take()[:got]

    def pages(self, prefix: str = "", start_after: str = "", delimiter: str = "") -> Iterator[Page]:
        driver = self.verb(List)
        page = self.do(driver.list(prefix, start_after=start_after, delimiter=delimiter))
        yield page
        while page.token:
            page = self.do(driver.list(prefix, token=page.token, delimiter=delimiter))
            yield page

    def keys(self, prefix: str = "", start_after: str = "") -> list[str]:
        return [entry.key for page in self.pages(prefix, start_after) for entry in page.entries]


def octets(size: int) -> bytes:
    """Return bytes that differ from their neighbours and never end in a zero, which a C string might lose or add."""
    return (bytes(range(251)) * (size // 251 + 1))[: max(0, size - 1)] + b"\xff" * min(1, size)


class Setting:
    """A store under test.

    Attributes:
        keys: Keys that the store can hold; override this for a store that cannot hold some of ``KEYS``.
        part_bytes: Least size of a part that is not the last.
        checks_digests: The server verifies the digests that it receives.
        keeps_metadata: The store keeps user metadata and the content type.
        copies_parts: The server can copy parts of objects, if the driver can ask for it.
        holds_copies: The store honours the version of a copy's source.
        heeds: The writes whose conditions the store honours.
        page_keys: Most keys of one page of a listing.
        lists_versions: A listing names the version and the size of each object.
    """

    keys: ClassVar[Sequence[str]] = KEYS
    part_bytes: ClassVar[int] = 5 << 20
    checks_digests: ClassVar[bool] = True
    keeps_metadata: ClassVar[bool] = True
    copies_parts: ClassVar[bool] = True
    holds_copies: ClassVar[bool] = True
    heeds: ClassVar[Sequence[Literal["put", "complete"]]] = ("put", "complete")
    page_keys: ClassVar[int] = 1_000
    lists_versions: ClassVar[bool] = True

    @pytest.fixture
    def store(self) -> tuple[Driver, Transport]:
        """Return a driver of an empty store, and the transport for its exchanges."""
        raise NotImplementedError

    @pytest.fixture
    def writer(self, store: tuple[Driver, Transport]) -> tuple[Driver, Transport]:
        """Return the driver and transport that write objects for reading: the store's, unless it is read-only."""
        return store

    @pytest.fixture
    def unmade(self) -> tuple[Driver, Transport]:
        """Return a driver of a bucket that was never made; override this if it has the verbs ``Buckets``."""
        pytest.skip("no bucket to make")

    @pytest.fixture
    def versioned(self) -> tuple[Driver, Transport]:
        """Return a driver of a bucket that keeps versions; override this if it has the verbs ``Versions``."""
        pytest.skip("no bucket that keeps versions")

    @pytest.fixture
    def trial(self, store: tuple[Driver, Transport], writer: tuple[Driver, Transport]) -> Trial:
        return Trial(*store, writer)


class Writing(Setting):
    """Tests of writing and deleting: atomic, with a condition or without one."""

    def test_a_put_replaces_whole(self, trial: Trial) -> None:
        """Check that nothing of a longer predecessor is left."""
        trial.verb(Put)
        trial.put("key", b"a long object" * 100)
        trial.put("key", b"short")
        assert trial.get("key") == b"short"

    def test_deleting_a_missing_object_is_no_error(self, trial: Trial) -> None:
        """Check that an object can be deleted twice, and that others stay."""
        driver = trial.verb(Delete)
        trial.put_all(["one", "other"])
        for _ in range(2):
            trial.do(driver.delete("one"))
        assert trial.keys() == ["other"]

    @pytest.mark.parametrize("verb", ["put", "complete"])
    def test_only_a_new_object_is_made(self, trial: Trial, verb: Literal["put", "complete"]) -> None:
        """Check that ``create_only`` keeps an existing object and raises ``AlreadyExists``."""
        trial.verb(Put if verb == "put" else Multipart)
        if verb not in self.heeds or not getattr(trial.driver.abilities, verb).create:
            pytest.skip("this store writes over whatever is there")
        new = Attributes("text/plain", create_only=True)
        self._write(trial, verb, b"first", new)
        with pytest.raises(AlreadyExists):
            self._write(trial, verb, b"second", new)
        assert trial.get("key") == b"first"

    @pytest.mark.parametrize("verb", ["put", "complete"])
    def test_only_the_version_that_is_named_is_replaced(self, trial: Trial, verb: Literal["put", "complete"]) -> None:
        """Check that ``replaces`` refuses a different version and a missing object, and writes nothing."""
        trial.verb(Put if verb == "put" else Multipart)
        if verb not in self.heeds or not getattr(trial.driver.abilities, verb).replace:
            pytest.skip("this store writes over whatever is there")
        first = trial.put("key", b"first")
        self._write(trial, verb, b"second", Attributes("text/plain", replaces=first))
        with pytest.raises(PreconditionFailed) as caught:
            self._write(trial, verb, b"third", Attributes("text/plain", replaces=first))
        assert caught.value.url.endswith("/key")
        assert trial.get("key") == b"second"
        trial.do(trial.verb(Delete).delete("key"))
        with pytest.raises(PreconditionFailed):
            self._write(trial, verb, b"fourth", Attributes("text/plain", replaces=first))
        assert trial.keys() == []

    def _write(self, trial: Trial, verb: Literal["put", "complete"], data: bytes, attributes: Attributes) -> None:
        if verb == "put":
            trial.do(trial.verb(Put).put("key", trial.payload(data), attributes))
        else:
            driver, new, old = trial.verb(Multipart), attributes.create_only, attributes.replaces
            upload = trial.do(driver.create("key", attributes))
            etag = trial.do(driver.part("key", upload, UploadPart(1, 0), trial.payload(data)))
            trial.do(driver.complete("key", upload, [etag], create_only=new, replaces=old))

    def test_a_damaged_body_is_refused(self, trial: Trial) -> None:
        """Check that a damaged body is refused before it is published, so that the old object stays."""
        if not (self.checks_digests and trial.driver.abilities.digest):
            pytest.skip("this server does not check digests")
        trial.put("key", b"old")
        driver, wrong = trial.verb(Put), Payload(b"damaged on its way", sha256(b"as it was").hexdigest())
        with pytest.raises(PenstockError):
            trial.do(driver.put("key", wrong, Attributes("text/plain")))
        assert trial.get("key") == b"old"


class ReadingTests(Setting):
    """Tests of reading: exactly the requested bytes of the requested version, or an error."""

    @pytest.mark.parametrize("size", [0, 1, 2, 4095, 4096, 4097, 1 << 20])
    def test_what_is_put_is_read_back(self, trial: Trial, size: int) -> None:
        """Check whole reads of known and unknown size, and that all verbs name the same version and size."""
        data = octets(size)
        etag = trial.put("key", data)
        meta = trial.head("key")
        assert (meta.key, meta.size, meta.etag) == ("key", size, etag)
        assert etag
        assert trial.read("key", 0, size, etag, whole=True) == data
        assert trial.get("key", etag) == trial.get("key") == data

    @pytest.mark.parametrize("start", [0, 1, 4095, 4096, 9999])
    @pytest.mark.parametrize("size", [0, 1, 2, 4095, 4096, 4097, 10_000])
    def test_a_range_is_exactly_that_range(self, trial: Trial, start: int, size: int) -> None:
        """Check ranges at every boundary; an empty range reads nothing."""
        data = octets(10_000)
        etag = trial.put("key", data)
        stop = min(start + size, 10_000)
        assert trial.read("key", start, stop) == trial.read("key", start, stop, etag) == data[start:stop]

    @pytest.mark.parametrize("size", [1, 2, 4095, 4096, 9999, 10_000, 10_001, 50_000])
    def test_an_end_is_exactly_the_last_bytes(self, trial: Trial, size: int) -> None:
        """Check that an end has the requested size, or all of a shorter object, and reports where it begins."""
        data, buffer = octets(10_000), bytearray(b"#" * 60_000)
        etag = trial.put("key", data)
        for version in ("", etag):
            target = Buffer.borrow(buffer).slice(100, 100 + size)
            ending = trial.do(trial.verb(Suffix).suffix("key", version, target))
            start = max(0, 10_000 - size)
            # None is allowed for a store that sends all of a shorter object.
            if ending is not None:
                assert ending[:2] == (start, 10_000)
                assert ending.etag in ("", etag)
                assert ending.received == 10_000 - start
                assert bytes(buffer[100:][: ending.received]) == data[start:]
            assert ending is not None or trial.driver.abilities.ranges is False, (
                "a range was heeded, or is known not to"
            )
            assert buffer[:100] + buffer[100 + size :] == b"#" * (60_000 - size), "only the target is written"

    def test_an_end_of_an_empty_object_is_empty_or_left_open(self, trial: Trial) -> None:
        """Check the end of an object without a last byte: some stores refuse such a range."""
        etag = trial.put("key", b"")
        for version in ("", etag):
            ending = trial.do(trial.verb(Suffix).suffix("key", version, Buffer.allocate(10)))
            assert ending is None or ending[:2] + ending[3:] == (0, 0, 0)

    def test_an_end_is_held_to_a_version(self, trial: Trial) -> None:
        """Check that an end of a different version or of a missing object is refused."""
        old = trial.put("key", b"old bytes")
        trial.put("key", b"new bytes, and more of them")
        with pytest.raises(Changed):
            trial.do(trial.verb(Suffix).suffix("key", old, Buffer.allocate(5)))
        with pytest.raises(NotFound) as caught:
            trial.do(trial.verb(Suffix).suffix("no/such", "", Buffer.allocate(5)))
        assert caught.value.url.endswith("no/such")

    def test_of_an_object_of_unknown_size_no_more_is_read_than_stated(self, trial: Trial) -> None:
        """Check that an object of the stated size is read, and that a larger one is refused with the limit named."""
        trial.put("key", octets(1000))
        assert trial.get("key", most_bytes=1000) == octets(1000)
        with pytest.raises(Unusable, match="999 bytes"):
            trial.get("key", most_bytes=999)

    def test_only_the_target_is_written(self, trial: Trial) -> None:
        """Check that neighbouring bytes in the same buffer stay as they are."""
        data = octets(10_000)
        trial.put("key", data)
        buffer = bytearray(b"#" * 10_000)
        target = Buffer.borrow(buffer).slice(100, 6_100)
        assert trial.do(trial.driver.read(Span("key", 1_000, 7_000), target)) == target.size
        assert bytes(buffer) == b"#" * 100 + data[1_000:7_000] + b"#" * 3_900

    @pytest.mark.parametrize(("start", "stop"), [(10, 11), (10, 20), (5, 11), (100, 200), (0, 5_000)])
    def test_past_the_end_is_truncated(self, trial: Trial, start: int, stop: int) -> None:
        """Check that a range that begins or ends beyond the object raises, and never returns fewer bytes silently."""
        trial.put("key", b"0123456789")
        with pytest.raises(Truncated):
            trial.read("key", start, stop)

    @pytest.mark.parametrize("size", [9, 11])
    def test_a_whole_object_of_another_size_has_changed(self, trial: Trial, size: int) -> None:
        """Check that reading a whole object raises ``Changed`` if its size differs from the listed size."""
        trial.put("key", b"0123456789")
        with pytest.raises(Changed):
            trial.read("key", 0, size, whole=True)

    def test_another_version_is_changed(self, trial: Trial) -> None:
        """Check that reads are bound to an ETag: whole, in part, and of unknown size."""
        old = trial.put("key", b"old bytes")
        trial.put("key", b"new bytes, and more of them")
        for span in (Span("key", 0, 9, old, whole=True), Span("key", 1, 3, old), Span("key", 0, 0, old)):
            with pytest.raises(Changed):
                trial.do(trial.driver.read(span, Buffer.allocate((span.stop or 0) - span.start)))
        with pytest.raises(Changed):
            trial.get("key", old)

    def test_reads_of_any_version_name_the_version_that_they_read(self, trial: Trial) -> None:
        """Check that answers to reads without an ETag return the object's, which pins later reads, or none."""
        trial.put("key", octets(1000))
        etag, driver = trial.head("key").etag, trial.driver
        exchanges: list[Exchange[Any]] = [
            driver.get("key", ""),
            driver.get("key", "", buffer=Buffer.allocate(2000)),
            driver.read(Span("key", 10, 20), Buffer.allocate(10)),
            driver.read(Span("key", 0, 1000, whole=True), Buffer.allocate(1000)),
        ]
        if trial.has(Suffix):
            exchanges.append(trial.verb(Suffix).suffix("key", "", Buffer.allocate(10)))
        versions = {trial.version(each) for each in exchanges}
        assert versions <= {"", etag}
        # A store without conditions on reads may compare versions only where it looks the object up.
        assert not etag or etag.startswith("W/") or etag in versions

    def test_a_missing_object_is_not_found(self, trial: Trial) -> None:
        """Check that every verb that needs an object raises ``NotFound`` with its name."""
        driver, key = trial.driver, "no/such"
        ranges = [driver.read(Span(key, 0, size), Buffer.allocate(size)) for size in (0, 10)]
        exchanges: list[Exchange[Any]] = [driver.head(key), driver.get(key, ""), *ranges]
        if trial.has(Copy):
            exchanges.append(trial.verb(Copy).copy(key, "copy"))
        for exchange in exchanges:
            with pytest.raises(NotFound) as caught:
                trial.do(exchange)
            assert caught.value.url.endswith(key)
        if trial.has(List):
            assert trial.keys() == []

    def test_metadata_comes_back(self, trial: Trial) -> None:
        """Check that metadata (names in lower case) and the content type are returned, also for a copy."""
        if not self.keeps_metadata:
            pytest.skip("this store has no place for metadata")
        notes = {"note": "some words: größer, 日本", "accent": "voilà … Å", "empty": "", "spaces": " a  b "}
        trial.put("key", b"", notes)
        if trial.has(Copy):
            trial.do(trial.verb(Copy).copy("key", "copy"))
        for key in ("key", "copy") if trial.has(Copy) else ("key",):
            meta = trial.head(key)
            assert ({name: meta.metadata.get(name) for name in notes}, meta.content_type) == (notes, "text/plain")

    def test_the_time_of_change_is_now(self, trial: Trial) -> None:
        """Check that the time of change is now by the server's clock, or unknown."""
        trial.put("key", b"")
        listed = [entry.modified for entry in next(trial.pages()).entries] if trial.has(List) else []
        for modified in (trial.head("key").modified, *listed):
            assert modified is None or abs(modified - time()) < WAIT_S

    def test_keys_are_kept_byte_for_byte(self, trial: Trial) -> None:
        """Check that any key can be written, listed, described, read, copied and deleted."""
        trial.put_all(self.keys)
        if trial.has(List):
            assert trial.keys() == sorted(self.keys, key=str.encode)
        for key in self.keys:
            assert trial.get(key) == key.encode(), key
            assert trial.head(key).size == len(key.encode())
            if trial.has(Copy):
                trial.do(trial.verb(Copy).copy(key, "copy"))
                assert trial.get("copy") == key.encode(), key
        if trial.has(Delete, Copy, List):
            trial.all([trial.verb(Delete).delete(key) for key in (*self.keys, "copy")])
            assert trial.keys() == []

    def test_an_address_ends_in_the_key(self, trial: Trial) -> None:
        """Check that a URL ends in the key as a user writes it, unescaped."""
        assert trial.driver.url("a b/ü").endswith("/a b/ü")


class Uploading(Setting):
    """Tests of uploads in parts: invisible until they are completed, and then one object."""

    def test_parts_become_one_object_at_once(self, trial: Trial) -> None:
        """Check parts sent in any order, one of them twice; the old object stays until completion."""
        driver, size = trial.verb(Multipart), self.part_bytes
        data = octets(2 * size + 7)
        trial.put("key", b"old")
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        send = self._sender(trial, upload)
        send(1, 0, b"\0" * size)
        last, second, first = (
            send(3, 2 * size, data[2 * size :]),
            send(2, size, data[size : 2 * size]),
            send(1, 0, data[:size]),
        )
        assert (trial.get("key"), trial.keys()) == (b"old", ["key"])
        etag = trial.do(driver.complete("key", upload, [first, second, last]))
        assert trial.get("key") == data
        assert etag in ("", trial.head("key").etag)

    def test_parts_may_be_copied_from_other_objects(self, trial: Trial) -> None:
        """Check copied parts together with sent parts; a missing source raises ``NotFound``."""
        self._ask_for_part_copies()
        driver, uploads, size = trial.verb(PartCopy), trial.verb(Multipart), self.part_bytes
        data = octets(2 * size + 7)
        etag = trial.put("a b/ü+", data)
        upload = trial.do(uploads.create("key", Attributes("text/plain")))
        spans = [Span("a b/ü+", start, start + size, etag) for start in (5, size + 6)]
        etags = trial.all(
            driver.copy_part("key", upload, UploadPart(number, (number - 1) * size), span)
            for number, span in enumerate(spans, 1)
        )
        etags.append(self._sender(trial, upload)(3, 2 * size, b"the end"))
        with pytest.raises(NotFound) as caught:
            trial.do(driver.copy_part("key", upload, UploadPart(4, 3 * size), Span("no/such", 0, 1)))
        assert caught.value.url.endswith("no/such")
        assert trial.keys() == ["a b/ü+"]
        trial.do(uploads.complete("key", upload, etags))
        assert trial.get("key") == data[5 : size + 5] + data[size + 6 : 2 * size + 6] + b"the end"

    def test_a_copied_part_is_held_to_a_version(self, trial: Trial) -> None:
        """Check that nothing is copied from a different version."""
        self._ask_for_part_copies()
        if not self.holds_copies:
            pytest.skip("this server copies whatever is there")
        uploads, driver = trial.verb(Multipart), trial.verb(PartCopy)
        old = trial.put("from", b"old bytes")
        trial.put("from", b"new bytes")
        upload = trial.do(uploads.create("to", Attributes("text/plain")))
        with pytest.raises(Changed) as caught:
            trial.do(driver.copy_part("to", upload, UploadPart(1, 0), Span("from", 0, 9, old)))
        assert caught.value.url.endswith("from")
        trial.do(uploads.abort("to", upload))
        assert trial.keys() == ["from"]

    def test_one_short_part_will_do(self, trial: Trial) -> None:
        """Check that a single part may be short: the last part may have any size."""
        driver = trial.verb(Multipart)
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        etag = self._sender(trial, upload)(1, 0, b"little")
        trial.do(driver.complete("key", upload, [etag]))
        assert trial.get("key") == b"little"

    def test_an_aborted_upload_leaves_nothing(self, trial: Trial) -> None:
        """Check that an abort keeps the old object, can be repeated, and makes completion impossible."""
        driver = trial.verb(Multipart)
        trial.put("key", b"old")
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        etag = self._sender(trial, upload)(1, 0, b"x" * self.part_bytes)
        for _ in range(2):
            trial.do(driver.abort("key", upload))
        # S3 answers NoSuchUpload; moto and Ceph 16 answer 500.
        with pytest.raises(PenstockError):
            trial.do(driver.complete("key", upload, [etag]))
        assert (trial.get("key"), trial.keys()) == (b"old", ["key"])

    def test_a_damaged_part_is_refused(self, trial: Trial) -> None:
        """Check that a damaged part is refused before it counts."""
        if not (self.checks_digests and trial.driver.abilities.digest):
            pytest.skip("this server does not check digests")
        driver, wrong = trial.verb(Multipart), Payload(b"damaged on its way", sha256(b"as it was").hexdigest())
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        with pytest.raises(PenstockError):
            trial.do(driver.part("key", upload, UploadPart(1, 0), wrong))

    def _ask_for_part_copies(self) -> None:
        if not self.copies_parts:
            pytest.skip("this server copies no parts")

    @staticmethod
    def _sender(trial: Trial, upload: str) -> Callable[[int, int, bytes], str]:
        """Return a function that sends part ``number``, which begins at ``offset``, and returns its ETag."""
        driver = trial.verb(Multipart)
        return lambda number, offset, data: trial.do(
            driver.part("key", upload, UploadPart(number, offset), trial.payload(data))
        )


class ListingTests(Setting):
    """Tests of listing: all keys with a prefix, once, in UTF-8 byte order, in pages."""

    def test_a_listing_names_the_version_and_size_of_each_object(self, trial: Trial) -> None:
        """Check that a listing names the same version and size as every other verb, or none."""
        for size in (0, 1, 4097):
            etag = trial.put("key", octets(size))
            listed = next(trial.pages("key")).entries[0]
            assert (listed.key, listed.size, listed.etag) == ("key", size, etag) or not self.lists_versions
            assert (listed.size in (size, UNKNOWN_SIZE), listed.etag in (etag, "")) == (True, True)

    def test_a_listing_is_in_byte_order(self, trial: Trial) -> None:
        """Check UTF-8 byte order, which differs from locale and UTF-16 order: ``a/x`` comes after ``a.x``."""
        names = ["a.x", "a/x", "a0", "ab", "B", "Z", "é", "\uffee", "🐶", "a/b/c", "a/b.c"]
        trial.put_all(names)
        assert trial.keys() == sorted(names, key=str.encode)

    def test_a_prefix_is_a_string(self, trial: Trial) -> None:
        """Check that a prefix is a string, not a directory: ``train`` finds ``train2/x`` too."""
        trial.put_all(["train/1", "train2/x", "trai", "other"])
        assert trial.keys("train") == ["train/1", "train2/x"]
        assert trial.keys("train/") == ["train/1"]
        assert trial.keys("nothing") == []

    def test_start_after_is_exclusive(self, trial: Trial) -> None:
        """Check that ``start_after`` is exclusive and need not be an existing key."""
        trial.put_all(["a", "b", "b.c", "d/e"])
        assert trial.keys(start_after="b") == ["b.c", "d/e"]
        assert trial.keys(start_after="aa") == ["b", "b.c", "d/e"]
        assert trial.keys(start_after="z") == []

    def test_a_long_listing_comes_in_pages(self, trial: Trial) -> None:
        """Check that pages have at most ``page_keys`` keys, and together list every key once."""
        names = [f"many/{number:05}" for number in range(min(self.page_keys, 1_000) + 3)]
        trial.put_all(names)
        pages = list(trial.pages("many/"))
        first = min(self.page_keys, len(names))
        assert [len(page.entries) for page in pages] == [*filter(None, (first, len(names) - first))]
        assert [entry.key for page in pages for entry in page.entries] == names
        middle = len(names) // 2
        assert trial.keys("many/", start_after=names[middle]) == names[middle + 1 :]

    def test_a_delimiter_groups(self, trial: Trial) -> None:
        """Check that keys below a delimiter are listed as one group, whose name ends in the delimiter."""
        trial.put_all(["a/1", "a/2", "a.txt", "b/c/d", "e"])
        page = next(trial.pages(delimiter="/"))
        assert ([entry.key for entry in page.entries], list(page.prefixes)) == (["a.txt", "e"], ["a/", "b/"])
        page = next(trial.pages("b/", delimiter="/"))
        assert ([entry.key for entry in page.entries], list(page.prefixes)) == ([], ["b/c/"])

    def test_groups_come_in_pages_too(self, trial: Trial) -> None:
        """Check that a group is listed once, even if a page ends within it."""
        full = min(self.page_keys, 1_000)
        groups = [f"{number:04}/" for number in range(full + 2)]
        trial.put_all([*(f"{group}a" for group in groups), *(f"{group}b" for group in groups[full - 2 :])])
        pages = list(trial.pages(delimiter="/"))
        assert [group for page in pages for group in page.prefixes] == groups
        assert not any(page.entries for page in pages)


class Copying(Setting):
    """Tests of server-side copies: the same bytes, of one version."""

    def test_a_copy_has_the_same_bytes(self, trial: Trial) -> None:
        """Check that a copy replaces the old object and that the original stays."""
        driver = trial.verb(Copy)
        trial.put("from", b"these bytes")
        trial.put("to", b"others, to be replaced")
        etag = trial.do(driver.copy("from", "to"))
        assert trial.get("to") == trial.get("from") == b"these bytes"
        assert trial.head("to").etag == etag

    def test_a_copy_is_held_to_a_version(self, trial: Trial) -> None:
        """Check that nothing is copied from a different version."""
        if not self.holds_copies:
            pytest.skip("this server copies whatever is there")
        driver = trial.verb(Copy)
        old = trial.put("from", b"old bytes")
        new = trial.put("from", b"new bytes")
        with pytest.raises(Changed) as caught:
            trial.do(driver.copy("from", "to", old))
        assert caught.value.url.endswith("from")
        assert trial.keys() == ["from"]
        trial.do(driver.copy("from", "to", new))
        assert trial.get("to") == b"new bytes"


class BucketTests(Setting):
    """Tests of a bucket: made and removed, and the versions that it keeps."""

    def test_a_made_bucket_holds_objects_until_it_is_removed(self, unmade: tuple[Driver, Transport]) -> None:
        """Check that a bucket is not there before, and gone after."""
        trial = Trial(*unmade)
        driver = trial.verb(Buckets)
        with pytest.raises(NotFound):
            trial.get("key")
        trial.do(driver.make_bucket())
        trial.put("key", b"bytes")
        assert trial.keys() == ["key"]
        trial.do(trial.verb(Delete).delete("key"))
        trial.do(driver.remove_bucket())
        with pytest.raises(NotFound):
            trial.get("key")

    def test_a_version_is_read_by_its_id(self, versioned: tuple[Driver, Transport]) -> None:
        """Check reads of an object that was replaced and deleted, that the ETag counts, and what is listed."""
        trial = Trial(*versioned)
        driver = trial.verb(Versions)
        assert trial.do(driver.versioning(""))
        for data in (b"the first bytes", b"other bytes"):
            trial.put_all(["a", "b"])
            trial.put("key", data)
        entries = trial.do(driver.list_versions("", start_after="a")).entries
        assert [(each.key, each.size) for each in entries] == [("b", 1), ("key", 11)]
        etag = entries[-1].etag
        assert trial.do(driver.head_version("key")).etag == etag
        assert (tag_of(etag), bool(version_id(etag))) == (trial.head("key").etag, True)
        trial.put("key", b"bytes that replace these")
        trial.do(trial.verb(Delete).delete("key"))
        assert trial.get("key", etag) == trial.read("key", 0, 11, etag, whole=True) == b"other bytes"
        assert (trial.read("key", 6, 11, etag), trial.read("key", 0, 0, etag)) == (b"bytes", b"")
        assert trial.do(driver.head_version("key", etag)).size == len(b"other bytes")
        assert not trial.do(driver.list_versions("k")).entries
        with pytest.raises(Changed):
            trial.read("key", 0, 5, f"0{etag}")
        with pytest.raises((NotFound, Unusable)):
            trial.read("key", 0, 5, f"{etag}0")


class DriverContract(ReadingTests, ListingTests, Writing, Copying, Uploading, BucketTests):
    """All promises of a driver, one test each. A test of a verb that the driver lacks is skipped, and names the verb.

    A subclass whose name begins with ``Test`` overrides ``store``::

        class TestMine(DriverContract):
            @pytest.fixture
            def store(self):
                return MyDriver(...), Threads()

    A read-only store is filled by a second driver, which the fixture ``writer`` returns. The class attributes name the
    keys that the store holds and the promises that its server does not keep (``penstock.testing.drivers``); further
    fixtures are buckets to be made, and buckets that keep versions.
    """
