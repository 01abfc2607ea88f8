"""The promises of ``protocols.driver`` as tests: subclass ``DriverContract`` and let pytest run them on your driver."""

from __future__ import annotations

from hashlib import sha256
from time import time
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast

import pytest

from penstock.buffer import Buffer
from penstock.errors import AlreadyExists, Changed, NotFound, PenstockError, PreconditionFailed, Truncated, Unusable
from penstock.protocols.driver import UNKNOWN_BYTES, Attributes, Driver, Part, Payload
from penstock.values import ObjectMeta, Page, Span
from penstock.waiting import Inbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.protocols.exchange import Exchange, Request, Response, Transport, Work

__all__ = ["KEYS", "DriverContract", "Trial"]

T = TypeVar("T")
_WAIT_S = 60

# What users call their objects, and what some client or other got wrong: see trap 7 of the design.
KEYS = (
    *("plain", "a b", " lead", "trail ", "plus+plus", "per%cent", "per%20cent", "que?ry", "ha#sh", "am&per", "eq=ual"),
    *("til~de", "quo'te", 'dou"ble', "br[ack]et", "br{ac}e", "(paren)", "back\\slash", "comma,semi;colon:at@", "star*"),
    *("dollar$", "lt<gt>", "pipe|caret^tick`", "ex!claim", "ünïcode", "u\u0308decomposed", "日本語/キー", "emoji-🐶"),
    *("a//b", "//lead", "/lead", "trail/", "./x", "x/../y", "x/./y", "../up", "..", ".", "a/b/c.tar.gz", "&lt;xml&gt;"),
)


class _Once(Generic[T]):
    """An exchange on its way, sent once: a driver's promises hold without anyone's retries."""

    def __init__(self, exchange: Exchange[T], inbox: Inbox) -> None:
        self._exchange = exchange
        self._inbox = inbox
        self._outcome: T | Exception | None = None
        self.complete = False

    def request(self) -> Request | Work:
        return self._exchange.request

    def done(self, response: Response) -> float | None:
        try:
            self._outcome = self._exchange.parse(response)
        except Exception as error:  # noqa: BLE001  the test's to judge
            self._outcome = error
        self.complete = True
        self._inbox.finished(self)
        return None

    def look(self) -> None:
        """It is not tried again: there is nothing to say."""

    def result(self) -> T:
        self._inbox.wait_any((self,), _WAIT_S)
        assert self.complete, f"no answer within {_WAIT_S} s"
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return cast("T", self._outcome)


class Trial:
    """A driver and the transport it needs, with each verb as a plain call: one attempt, its result or its error."""

    def __init__(self, driver: Driver, transport: Transport) -> None:
        """Send ``driver``'s requests over ``transport``."""
        self.driver = driver
        self._transport = transport

    def do(self, exchange: Exchange[T]) -> T:
        """Send one exchange and return what it makes of the answer."""
        return self.all((exchange,))[0]

    def all(self, exchanges: Iterable[Exchange[T]]) -> list[T]:
        """Send many at once; results in their order."""
        self.driver.prepare()
        inbox = Inbox()
        calls = [_Once(exchange, inbox) for exchange in exchanges]
        self._transport.submit(calls)
        return [call.result() for call in calls]

    def payload(self, data: bytes) -> Payload:
        """Return a body with the digest that the driver's store asks for."""
        return Payload(data, sha256(data).hexdigest() if self.driver.abilities.digests else "")

    def put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> str:
        """Write one object."""
        return self.do(self._put(key, data, metadata or {}))

    def put_all(self, keys: Sequence[str]) -> None:
        """Write many small objects at once; each holds its own key."""
        self.all([self._put(key, key.encode(), {}) for key in keys])

    def _put(self, key: str, data: bytes, metadata: Mapping[str, str]) -> Exchange[str]:
        return self.driver.put(key, self.payload(data), Attributes("text/plain", metadata))

    def head(self, key: str) -> ObjectMeta:
        """Describe one object."""
        return self.do(self.driver.head(key))

    def get(self, key: str, etag: str = "", most_bytes: int = UNKNOWN_BYTES) -> bytes:
        """Read one object of unknown size."""
        return self.do(self.driver.get(key, etag, most_bytes))

    def read(self, key: str, start: int, stop: int, etag: str = "", *, whole: bool = False) -> bytes:
        """Read one span."""
        target = Buffer.allocate(stop - start)
        got = self.do(self.driver.read(Span(key, start, stop, etag, whole), target))
        return target.take()[:got]

    def pages(self, prefix: str = "", start_after: str = "", delimiter: str = "") -> Iterator[Page]:
        """List all pages."""
        page = self.do(self.driver.list(prefix, start_after=start_after, delimiter=delimiter))
        yield page
        while page.token:
            page = self.do(self.driver.list(prefix, token=page.token, delimiter=delimiter))
            yield page

    def keys(self, prefix: str = "", start_after: str = "") -> list[str]:
        """List all keys."""
        return [entry.key for page in self.pages(prefix, start_after) for entry in page.entries]


def _bytes(size: int) -> bytes:
    """Return bytes that differ from their neighbours and never end in a zero, which a C string might lose or add."""
    return (bytes(range(251)) * (size // 251 + 1))[: max(0, size - 1)] + b"\xff" * min(1, size)


class DriverContract:
    """Every promise of a driver, one test each.

    A subclass whose name begins with ``Test`` overrides ``store``::

        class TestMine(DriverContract):
            @pytest.fixture
            def store(self):
                return MyDriver(...), Threads()

    Attributes:
        keys: The keys the store can hold; a store that cannot hold some of ``KEYS`` says so here.
        part_bytes: Least size of a part that is not the last.
        checks_digests: The server really looks at the digests it is sent.
        keeps_metadata: The store keeps a user's metadata and content type.
        holds_copies: The store heeds the version that is to be copied.
        heeds: The writes whose conditions the store heeds.

    """

    keys: ClassVar[Sequence[str]] = KEYS
    part_bytes: ClassVar[int] = 5 << 20
    checks_digests: ClassVar[bool] = True
    keeps_metadata: ClassVar[bool] = True
    holds_copies: ClassVar[bool] = True
    heeds: ClassVar[Sequence[Literal["put", "complete"]]] = ("put", "complete")

    @pytest.fixture
    def store(self) -> tuple[Driver, Transport]:
        """Return a driver of an empty store, and the transport its exchanges go over."""
        raise NotImplementedError

    @pytest.fixture
    def trial(self, store: tuple[Driver, Transport]) -> Trial:
        """Return the store with its verbs as plain calls."""
        return Trial(*store)

    @pytest.mark.parametrize("size", [0, 1, 2, 4095, 4096, 4097, 1 << 20])
    def test_what_is_put_is_read_back(self, trial: Trial, size: int) -> None:
        """Whole, of known and of unknown size; every verb names the same version and size."""
        data = _bytes(size)
        etag = trial.put("key", data)
        meta = trial.head("key")
        listed = next(trial.pages("key")).entries[0]
        assert (meta.key, meta.size, listed.key, listed.size) == ("key", size, "key", size)
        assert etag == meta.etag == listed.etag != ""
        assert trial.read("key", 0, size, etag, whole=True) == data
        assert trial.get("key", etag) == trial.get("key") == data

    @pytest.mark.parametrize("start", [0, 1, 4095, 4096, 9999])
    @pytest.mark.parametrize("size", [0, 1, 2, 4095, 4096, 4097, 10_000])
    def test_a_range_is_exactly_that_range(self, trial: Trial, start: int, size: int) -> None:
        """At every boundary; an empty one is empty."""
        data = _bytes(10_000)
        etag = trial.put("key", data)
        stop = min(start + size, 10_000)
        assert trial.read("key", start, stop) == trial.read("key", start, stop, etag) == data[start:stop]

    def test_of_an_object_of_unknown_size_no_more_is_read_than_stated(self, trial: Trial) -> None:
        """An object of that size is read; a larger one is refused, and says so."""
        trial.put("key", _bytes(1000))
        assert trial.get("key", most_bytes=1000) == _bytes(1000)
        with pytest.raises(Unusable, match="999 bytes"):
            trial.get("key", most_bytes=999)

    def test_only_the_target_is_written(self, trial: Trial) -> None:
        """Its neighbours in the same buffer stay as they are."""
        data = _bytes(10_000)
        trial.put("key", data)
        buffer = bytearray(b"#" * 10_000)
        target = Buffer.borrow(buffer).slice(100, 6_100)
        assert trial.do(trial.driver.read(Span("key", 1_000, 7_000), target)) == target.size
        assert bytes(buffer) == b"#" * 100 + data[1_000:7_000] + b"#" * 3_900

    @pytest.mark.parametrize(("start", "stop"), [(10, 11), (10, 20), (5, 11), (100, 200), (0, 5_000)])
    def test_past_the_end_is_truncated(self, trial: Trial, start: int, stop: int) -> None:
        """A range may begin or end beyond the object; neither gives fewer bytes in silence."""
        trial.put("key", b"0123456789")
        with pytest.raises(Truncated):
            trial.read("key", start, stop)

    @pytest.mark.parametrize("size", [9, 11])
    def test_a_whole_object_of_another_size_has_changed(self, trial: Trial, size: int) -> None:
        """What was listed with one size and is read with another is no longer what was listed."""
        trial.put("key", b"0123456789")
        with pytest.raises(Changed):
            trial.read("key", 0, size, whole=True)

    def test_another_version_is_changed(self, trial: Trial) -> None:
        """Reading is held to an ETag, whole, in part, and where the size is unknown."""
        old = trial.put("key", b"old bytes")
        trial.put("key", b"new bytes, and more of them")
        for span in (Span("key", 0, 9, old, whole=True), Span("key", 1, 3, old), Span("key", 0, 0, old)):
            with pytest.raises(Changed):
                trial.do(trial.driver.read(span, Buffer.allocate((span.stop or 0) - span.start)))
        with pytest.raises(Changed):
            trial.get("key", old)

    def test_a_missing_object_is_not_found(self, trial: Trial) -> None:
        """By every verb that needs one; the error names it."""
        driver, key = trial.driver, "no/such"
        ranges = [driver.read(Span(key, 0, size), Buffer.allocate(size)) for size in (0, 10)]
        verbs: list[Exchange[Any]] = [driver.head(key), driver.get(key, ""), driver.copy(key, "copy"), *ranges]
        for exchange in verbs:
            with pytest.raises(NotFound) as caught:
                trial.do(exchange)
            assert caught.value.url.endswith(key)
        assert trial.keys() == []

    def test_deleting_a_missing_object_is_no_error(self, trial: Trial) -> None:
        """And deleting one that is there deletes that one."""
        trial.put_all(["one", "other"])
        for _ in range(2):
            trial.do(trial.driver.delete("one"))
        assert trial.keys() == ["other"]

    def test_a_put_replaces_whole(self, trial: Trial) -> None:
        """Nothing of a longer predecessor is left."""
        trial.put("key", b"a long object" * 100)
        trial.put("key", b"short")
        assert trial.get("key") == b"short"

    def test_a_copy_is_the_same_bytes(self, trial: Trial) -> None:
        """It replaces what was there, and the original stays."""
        trial.put("from", b"these bytes")
        trial.put("to", b"others, to be replaced")
        etag = trial.do(trial.driver.copy("from", "to"))
        assert trial.get("to") == trial.get("from") == b"these bytes"
        assert trial.head("to").etag == etag

    def test_a_copy_is_held_to_a_version(self, trial: Trial) -> None:
        """Of another one nothing is copied, whole or as a part."""
        if not self.holds_copies:
            pytest.skip("this server copies whatever is there")
        driver = trial.driver
        old = trial.put("from", b"old bytes")
        new = trial.put("from", b"new bytes")
        upload = trial.do(driver.create("to", Attributes("text/plain")))
        for exchange in (
            driver.copy("from", "to", old),
            driver.copy_part("to", upload, Part(1, 0), Span("from", 0, 9, old)),
        ):
            with pytest.raises(Changed) as caught:
                trial.do(exchange)
            assert caught.value.url.endswith("from")
        trial.do(driver.abort("to", upload))
        assert trial.keys() == ["from"]
        trial.do(driver.copy("from", "to", new))
        assert trial.get("to") == b"new bytes"

    def test_metadata_comes_back(self, trial: Trial) -> None:
        """Names in lower case; the content type too, and of a copy as of the original."""
        if not self.keeps_metadata:
            pytest.skip("this store has no place for metadata")
        notes = {"note": "some words: größer, 日本", "accent": "voilà … Å", "empty": "", "spaces": " a  b "}
        trial.put("key", b"", notes)
        trial.do(trial.driver.copy("key", "copy"))
        for key in ("key", "copy"):
            meta = trial.head(key)
            assert ({name: meta.metadata.get(name) for name in notes}, meta.content_type) == (notes, "text/plain")

    def test_the_time_of_change_is_now(self, trial: Trial) -> None:
        """By a server's clock, or unknown."""
        trial.put("key", b"")
        listed = next(trial.pages()).entries[0]
        for modified in (trial.head("key").modified, listed.modified):
            assert modified is None or abs(modified - time()) < _WAIT_S

    def test_keys_are_kept_byte_for_byte(self, trial: Trial) -> None:
        """Whatever a user may call an object: written, listed, described, read, copied and deleted under that name."""
        trial.put_all(self.keys)
        assert trial.keys() == sorted(self.keys, key=str.encode)
        for key in self.keys:
            assert trial.get(key) == key.encode(), key
            assert trial.head(key).size == len(key.encode())
            trial.do(trial.driver.copy(key, "copy"))
            assert trial.get("copy") == key.encode(), key
        trial.all([trial.driver.delete(key) for key in (*self.keys, "copy")])
        assert trial.keys() == []

    def test_a_listing_is_in_byte_order(self, trial: Trial) -> None:
        """Of UTF-8, which is neither a locale's nor UTF-16's, and in which ``a/x`` stands after ``a.x``."""
        names = ["a.x", "a/x", "a0", "ab", "B", "Z", "é", "\uffee", "🐶", "a/b/c", "a/b.c"]
        trial.put_all(names)
        assert trial.keys() == sorted(names, key=str.encode)

    def test_a_prefix_is_a_string(self, trial: Trial) -> None:
        """Not a directory: ``train`` finds ``train2/x`` too."""
        trial.put_all(["train/1", "train2/x", "trai", "other"])
        assert trial.keys("train") == ["train/1", "train2/x"]
        assert trial.keys("train/") == ["train/1"]
        assert trial.keys("nothing") == []

    def test_start_after_is_exclusive(self, trial: Trial) -> None:
        """It need not be a key itself."""
        trial.put_all(["a", "b", "b.c", "d/e"])
        assert trial.keys(start_after="b") == ["b.c", "d/e"]
        assert trial.keys(start_after="aa") == ["b", "b.c", "d/e"]
        assert trial.keys(start_after="z") == []

    def test_a_long_listing_comes_in_pages(self, trial: Trial) -> None:
        """Of at most 1,000 keys; together they are everything, once."""
        names = [f"many/{number:05}" for number in range(1_003)]
        trial.put_all(names)
        pages = list(trial.pages("many/"))
        assert [len(page.entries) for page in pages] == [1_000, 3]
        assert [entry.key for page in pages for entry in page.entries] == names
        assert trial.keys("many/", start_after=names[500]) == names[501:]

    def test_a_delimiter_groups(self, trial: Trial) -> None:
        """What is below is named once, with the delimiter at its end."""
        trial.put_all(["a/1", "a/2", "a.txt", "b/c/d", "e"])
        page = next(trial.pages(delimiter="/"))
        assert ([entry.key for entry in page.entries], list(page.prefixes)) == (["a.txt", "e"], ["a/", "b/"])
        page = next(trial.pages("b/", delimiter="/"))
        assert ([entry.key for entry in page.entries], list(page.prefixes)) == ([], ["b/c/"])

    def test_groups_come_in_pages_too(self, trial: Trial) -> None:
        """A group is told once, also where a page ends in it."""
        groups = [f"{number:04}/" for number in range(1_002)]
        trial.put_all([*(f"{group}a" for group in groups), *(f"{group}b" for group in groups[998:])])
        pages = list(trial.pages(delimiter="/"))
        assert [group for page in pages for group in page.prefixes] == groups
        assert not any(page.entries for page in pages)

    def test_parts_become_one_object_at_once(self, trial: Trial) -> None:
        """Sent in any order, one of them twice; what stood there before stays until all is there."""
        driver, size = trial.driver, self.part_bytes
        data = _bytes(2 * size + 7)
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
        """Beside such that are sent; what is not there is said to be missing."""
        driver, size = trial.driver, self.part_bytes
        data = _bytes(2 * size + 7)
        etag = trial.put("a b/ü+", data)
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        spans = [Span("a b/ü+", start, start + size, etag) for start in (5, size + 6)]
        etags = trial.all(
            driver.copy_part("key", upload, Part(number, (number - 1) * size), span)
            for number, span in enumerate(spans, 1)
        )
        etags.append(self._sender(trial, upload)(3, 2 * size, b"the end"))
        with pytest.raises(NotFound) as caught:
            trial.do(driver.copy_part("key", upload, Part(4, 3 * size), Span("no/such", 0, 1)))
        assert caught.value.url.endswith("no/such")
        assert trial.keys() == ["a b/ü+"]
        trial.do(driver.complete("key", upload, etags))
        assert trial.get("key") == data[5 : size + 5] + data[size + 6 : 2 * size + 6] + b"the end"

    def test_one_short_part_will_do(self, trial: Trial) -> None:
        """The last part may be of any size, and the only one is the last."""
        upload = trial.do(trial.driver.create("key", Attributes("text/plain")))
        etag = self._sender(trial, upload)(1, 0, b"little")
        trial.do(trial.driver.complete("key", upload, [etag]))
        assert trial.get("key") == b"little"

    def test_an_aborted_upload_leaves_nothing(self, trial: Trial) -> None:
        """Nor does it harm what stood there; aborting it again is no error, and it cannot be completed any more."""
        driver = trial.driver
        trial.put("key", b"old")
        upload = trial.do(driver.create("key", Attributes("text/plain")))
        etag = self._sender(trial, upload)(1, 0, b"x" * self.part_bytes)
        for _ in range(2):
            trial.do(driver.abort("key", upload))
        with pytest.raises(PenstockError):  # NoSuchUpload on S3; moto and Ceph 16 answer 500
            trial.do(driver.complete("key", upload, [etag]))
        assert (trial.get("key"), trial.keys()) == (b"old", ["key"])

    @pytest.mark.parametrize("verb", ["put", "complete"])
    def test_only_a_new_object_is_made(self, trial: Trial, verb: Literal["put", "complete"]) -> None:
        """Where one is there already it stays, and the writer is told."""
        if verb not in self.heeds:
            pytest.skip("this store writes over whatever is there")
        new = Attributes("text/plain", create_only=True)
        self._write(trial, verb, b"first", new)
        with pytest.raises(AlreadyExists):
            self._write(trial, verb, b"second", new)
        assert trial.get("key") == b"first"

    @pytest.mark.parametrize("verb", ["put", "complete"])
    def test_only_the_version_that_is_named_is_replaced(self, trial: Trial, verb: Literal["put", "complete"]) -> None:
        """Another one stays; where there is none at all nothing is written."""
        if verb not in self.heeds:
            pytest.skip("this store writes over whatever is there")
        first = trial.put("key", b"first")
        self._write(trial, verb, b"second", Attributes("text/plain", replaces=first))
        with pytest.raises(PreconditionFailed) as caught:
            self._write(trial, verb, b"third", Attributes("text/plain", replaces=first))
        assert caught.value.url.endswith("/key")
        assert trial.get("key") == b"second"
        trial.do(trial.driver.delete("key"))
        with pytest.raises(PreconditionFailed):
            self._write(trial, verb, b"fourth", Attributes("text/plain", replaces=first))
        assert trial.keys() == []

    def _write(self, trial: Trial, verb: Literal["put", "complete"], data: bytes, attributes: Attributes) -> None:
        driver, new, old = trial.driver, attributes.create_only, attributes.replaces
        if verb == "put":
            trial.do(driver.put("key", trial.payload(data), attributes))
        else:
            upload = trial.do(driver.create("key", attributes))
            etag = self._sender(trial, upload)(1, 0, data)
            trial.do(driver.complete("key", upload, [etag], create_only=new, replaces=old))

    def test_a_damaged_body_is_refused(self, trial: Trial) -> None:
        """Before it is published: what stood there stays."""
        if not (self.checks_digests and trial.driver.abilities.digests):
            pytest.skip("this server does not check digests")
        trial.put("key", b"old")
        wrong = Payload(b"damaged on its way", sha256(b"as it was").hexdigest())
        with pytest.raises(PenstockError):
            trial.do(trial.driver.put("key", wrong, Attributes("text/plain")))
        upload = trial.do(trial.driver.create("key", Attributes("text/plain")))
        with pytest.raises(PenstockError):
            trial.do(trial.driver.part("key", upload, Part(1, 0), wrong))
        assert trial.get("key") == b"old"

    def test_an_address_ends_in_the_key(self, trial: Trial) -> None:
        """As a user writes it, unescaped."""
        assert trial.driver.url("a b/ü").endswith("/a b/ü")

    @staticmethod
    def _sender(trial: Trial, upload: str) -> Callable[[int, int, bytes], str]:
        """Return a function that sends part ``number``, which begins at ``offset``, and returns its ETag."""
        return lambda number, offset, data: trial.do(
            trial.driver.part("key", upload, Part(number, offset), trial.payload(data))
        )
