"""A driver under test: each verb as a plain call that is sent once, without retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import UNKNOWN_BYTES, Attributes, List, Payload, Put
from penstock.engine.support import supports
from penstock.engine.waiting import Inbox
from penstock.values import ObjectMeta, Page, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Exchange, Request, Response, Transport, Work

__all__ = ["KEYS", "WAIT_S", "Trial", "octets"]

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

    def request(self) -> Request | Work:
        return self._exchange.request

    def done(self, response: Response) -> float | None:
        try:
            self._outcome = self._exchange.parse(response)
        except Exception as error:  # noqa: BLE001  for the test to judge
            self._outcome = error
        self.complete = True
        self._inbox.finished(self)
        return None

    def look(self) -> None:
        """Do nothing: without retries there is nothing to report."""

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
        """Return whether the driver has all of these verbs."""
        return all(supports(self.driver, verb) for verb in verbs)

    def verb(self, verb: Callable[..., V]) -> V:
        """Return the driver as a ``verb``; skip the test if the driver lacks it."""
        if not self.has(verb):
            pytest.skip(f"the driver has no {verb.__name__}")
        return cast("V", self.driver)

    def do(self, exchange: Exchange[T]) -> T:
        """Send one exchange and return its parsed result."""
        return self.all((exchange,))[0]

    def all(self, exchanges: Iterable[Exchange[T]]) -> list[T]:
        """Send many exchanges at once; return their results in order."""
        self.driver.prepare()
        inbox = Inbox()
        calls = [_Once(exchange, inbox) for exchange in exchanges]
        self._transport.submit(calls)
        return [call.result() for call in calls]

    def payload(self, data: bytes) -> Payload:
        """Return a body with the digest that the driver's store requires."""
        if (begin := self.driver.abilities.digest) is None:
            return Payload(data)
        digest = begin()
        digest.update(data)
        return Payload(data, digest.hexdigest())

    def put(self, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> str:
        """Write one object; return its ETag."""
        return self._writer.do(self._writer.written(key, data, metadata or {}))

    def put_all(self, keys: Sequence[str]) -> None:
        """Write many small objects at once; each holds its own key."""
        self._writer.all([self._writer.written(key, key.encode(), {}) for key in keys])

    def written(self, key: str, data: bytes, metadata: Mapping[str, str]) -> Exchange[str]:
        """Return the exchange with which the driver itself writes one object."""
        return self.verb(Put).put(key, self.payload(data), Attributes("text/plain", metadata))

    def head(self, key: str) -> ObjectMeta:
        """Describe one object."""
        return self.do(self.driver.head(key))

    def get(self, key: str, etag: str = "", most_bytes: int = UNKNOWN_BYTES) -> bytes:
        """Read one object of unknown size."""
        got = self.do(self.driver.get(key, etag, most_bytes))
        assert isinstance(got, bytes), "without a buffer there is no beginning"
        return got

    def read(self, key: str, start: int, stop: int, etag: str = "", *, whole: bool = False) -> bytes:
        """Read one span."""
        target = Buffer.allocate(stop - start)
        got = self.do(self.driver.read(Span(key, start, stop, etag, whole), target))
        return target.take()[:got]

    def pages(self, prefix: str = "", start_after: str = "", delimiter: str = "") -> Iterator[Page]:
        """List all pages."""
        driver = self.verb(List)
        page = self.do(driver.list(prefix, start_after=start_after, delimiter=delimiter))
        yield page
        while page.token:
            page = self.do(driver.list(prefix, token=page.token, delimiter=delimiter))
            yield page

    def keys(self, prefix: str = "", start_after: str = "") -> list[str]:
        """List all keys."""
        return [entry.key for page in self.pages(prefix, start_after) for entry in page.entries]


def octets(size: int) -> bytes:
    """Return bytes that differ from their neighbours and never end in a zero, which a C string might lose or add."""
    return (bytes(range(251)) * (size // 251 + 1))[: max(0, size - 1)] + b"\xff" * min(1, size)
