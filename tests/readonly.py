"""``readonly://``: another store's objects through a driver that reads and lists, and has no other verb."""

from __future__ import annotations

from penstock.engine.contracts.driver import Abilities
from penstock.engine.transport.work import Threads
from penstock.stores.memory import MemoryDriver
from penstock.stores.store import Store

requests: list[str] = []  # the verbs that were carried out


class ReadOnly:
    """A driver with Head, Read and List, over another one."""

    abilities = Abilities(digest=None)

    def __init__(self, driver, bucket):
        self._driver = driver
        self._bucket = bucket

    def url(self, key):
        return f"readonly://{self._bucket}/{key}"

    def prepare(self):
        self._driver.prepare()

    def _counted(self, exchange):
        requests.append("a request")
        return exchange

    def head(self, key):
        return self._counted(self._driver.head(key))

    def list(self, prefix, **more):
        return self._counted(self._driver.list(prefix, **more))

    def read(self, span, target):
        return self._counted(self._driver.read(span, target))

    def get(self, key, etag, *most_bytes, **buffer):
        return self._counted(self._driver.get(key, etag, *most_bytes, **buffer))


class ReadOnlyStore(Store):
    name = "readonly"
    schemes = ("readonly",)
    abilities = Abilities(digest=None)
    any_options = True

    def open(self, opening):
        return ReadOnly(MemoryDriver(opening.bucket), opening.bucket), Threads(2)
