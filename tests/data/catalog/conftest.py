"""A bucket in memory that pages as S3 does, counts its requests, and can be told to misbehave."""

import bisect
import threading
import zlib

import pytest

from penstock.data.catalog.catalog import Catalog, Entry
from penstock.engine.contracts.driver import Abilities
from penstock.engine.fetch.fetcher import Fetcher
from penstock.engine.fetch.pages import Pager
from penstock.engine.transport.work import Threads
from penstock.options import ReadOptions, RetryOptions
from penstock.stores.direct import direct
from penstock.values import ObjectMeta, Page
from tests.data.catalog.discovery.inventories import inventory  # noqa: F401  a fixture
from tests.trees import tree  # noqa: F401  a fixture

_threads = Threads(16)
PETS = [
    Entry("pets/cat.jpg", 10, "cat", "e1"),
    Entry("pets/dog é 🐶.jpg", 0, {"name": ["Rex", None]}, ""),
    Entry("pets/cat.jpg", 10, 0, "e1"),
    Entry("pets/unknown", -1, None, "e3"),
]


class Bucket:
    """Keys in UTF-8 byte order; ``page_size`` keys and common prefixes to a page.

    ``rolls`` says whether a common prefix that ``start_after`` lies in is listed again: servers differ.
    ``jumps`` says that beginning after any key is cheap, so keys of one folder are divided, too.
    ``before`` is called with each request's keywords before it is answered.
    """

    root = "s3://bucket/"

    def __init__(self, keys, page_size=1000, *, rolls=True, jumps=False, before=None):
        self.abilities = Abilities(jumps=jumps)
        self.keys = sorted(set(keys), key=self._order)
        self.page_size = page_size
        self.rolls = rolls
        self.before = before
        self.requests = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    @staticmethod
    def _order(key):
        return key.encode("utf-8", "surrogateescape")

    def etag(self, key):
        return f"{zlib.crc32(self._order(key)):08x}"

    def url(self, key):
        return self.root + key

    def pager(self, **_):
        """What a source returns; as a driver, the bucket is blocking calls."""
        return Pager(Fetcher(self, _threads, RetryOptions(attempts=1), ReadOptions()))

    def prepare(self):
        pass

    def list(self, prefix, **asked):
        return direct(lambda: self.page(prefix, **asked))

    def page(self, prefix, *, token="", start_after="", delimiter=""):
        asked = {"prefix": prefix, "token": token, "start_after": start_after, "delimiter": delimiter}
        with self._lock:
            self.requests.append(asked)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if self.before:
                self.before(**asked)
            return self._answer(prefix, token or start_after, delimiter)
        finally:
            with self._lock:
                self._at_once -= 1

    def _answer(self, prefix, after, delimiter):
        entries, prefixes, last = [], [], ""
        keys = list(self.keys)
        start = bisect.bisect_right(keys, self._order(after), key=self._order) if after else 0
        for key in keys[start:]:
            if not key.startswith(prefix) or (prefixes and key.startswith(prefixes[-1])):
                continue
            stop = key.find(delimiter, len(prefix)) + 1 if delimiter else 0
            if stop and not self.rolls and after.startswith(key[:stop]):
                continue
            if len(entries) + len(prefixes) == self.page_size:
                return Page(tuple(entries), tuple(prefixes), last)
            if stop:
                prefixes.append(key[:stop])
                last = key[:stop] + "\U0010ffff"
            else:
                entries.append(ObjectMeta(key, len(key), self.etag(key)))
                last = key
        return Page(tuple(entries), tuple(prefixes))

    def plain_pages(self, prefix=""):
        """How many requests a plain listing of the prefix takes."""
        return max(1, -(-sum(key.startswith(prefix) for key in self.keys) // self.page_size))


@pytest.fixture(scope="session")
def bucket_of():
    """Bucket(keys, page_size=1000, rolls=True, jumps=False, before=None)."""
    return Bucket


@pytest.fixture
def pets():
    return Catalog.build("s3://bucket/", "pets/", PETS)
