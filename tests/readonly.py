"""``readonly://``: another provider's objects through a driver that reads and lists, and has no other verb."""

from __future__ import annotations

from penstock.engine.contracts.driver import Abilities
from penstock.engine.transport.work import Threads
from penstock.stores.memory.driver import Memory
from penstock.stores.provider import Provider

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

    def get(self, key, etag, *most_bytes):
        return self._counted(self._driver.get(key, etag, *most_bytes))


def _open(opening):
    return ReadOnly(Memory(opening.bucket), opening.bucket), Threads(2)


PROVIDER = Provider(
    name="readonly", schemes=("readonly",), open=_open, abilities=Abilities(digest=None), any_options=True
)
