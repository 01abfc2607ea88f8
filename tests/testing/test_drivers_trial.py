"""A trial sends each exchange once, raises what the driver raises, and fails where no answer comes."""

import itertools
import uuid
from hashlib import sha256

import pytest

from penstock.engine.contracts.driver import Abilities
from penstock.engine.contracts.exchange import Exchange, Work
from penstock.engine.transport.work import Threads
from penstock.errors import NotFound, Throttled
from penstock.stores.memory import MemoryDriver
from penstock.testing import drivers
from penstock.testing.drivers import KEYS, Trial, octets
from tests.readonly import ReadOnly
from tests.testing.broken_drivers import trial_of


def test_a_failure_that_may_pass_is_raised_after_one_attempt():
    attempts = []

    def fails():
        attempts.append("once")
        raise Throttled("slow down")

    with pytest.raises(Throttled):
        trial_of().do(Exchange(Work(fails), lambda response: (_ for _ in ()).throw(response.fault)))
    assert attempts == ["once"]


def test_results_come_in_the_order_of_their_exchanges():
    trying = trial_of()
    trying.put_all(KEYS)
    found = trying.all([trying.driver.get(key, "") for key in reversed(KEYS)])
    assert found == [key.encode() for key in reversed(KEYS)]
    with pytest.raises(NotFound):
        trying.all([trying.driver.get(KEYS[0], ""), trying.driver.get("no/such", "")])


def test_an_exchange_without_an_answer_fails_the_test_and_does_not_hang_it(monkeypatch):
    class Silent:
        def submit(self, calls):
            """Take them, and never answer."""

    monkeypatch.setattr(drivers, "WAIT_S", 0.01)
    driver = MemoryDriver(uuid.uuid4().hex)
    with pytest.raises(AssertionError, match="no answer within"):
        Trial(driver, Silent()).head("key")


def test_a_read_only_store_is_filled_by_its_writer():
    name = uuid.uuid4().hex
    reading = Trial(ReadOnly(MemoryDriver(name), name), Threads(1), (MemoryDriver(name), Threads(1)))
    etag = reading.put("key", b"bytes")
    assert (reading.get("key"), reading.head("key").etag) == (b"bytes", etag)


def test_a_payload_has_the_digest_that_its_store_asks_for():
    class Digesting(MemoryDriver):
        abilities = Abilities(digest=sha256)

    assert trial_of().payload(b"bytes").digest == ""
    assert trial_of(Digesting).payload(b"bytes").digest == sha256(b"bytes").hexdigest()


@pytest.mark.parametrize("size", [0, 1, 2, 251, 252, 4096])
def test_test_bytes_differ_from_their_neighbours_and_end_in_no_zero(size):
    made = octets(size)
    assert len(made) == size
    assert not made.endswith(b"\0")
    assert all(one != other for one, other in itertools.pairwise(made))
