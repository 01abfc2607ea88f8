"""Credentials are renewed in time by one thread, stop nobody who can go on, and survive a fork."""

from __future__ import annotations

import math
import os
import pickle
import re
import select
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields

import pytest

import penstock.credentials
from penstock.engine.contracts.credentials import Credentials
from penstock.errors import Unreachable
from penstock.stores.credentials import RefreshingCredentials
from penstock.stores.s3.credentials import AmazonCredentials
from penstock.stores.s3.options import S3Options


@dataclass
class Scripted:
    """A source that gives keys which last, counts its loads, and can be told to fail or to wait at a gate."""

    clock: list[float]
    lasting_s: float | None = 3600.0
    failing: bool = False
    loads: int = 0
    entered: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        self.gate.set()

    def load(self):
        self.loads += 1
        self.entered.set()
        assert self.gate.wait(60)
        if self.failing:
            raise Unreachable("away")
        expires = None if self.lasting_s is None else self.clock[0] + self.lasting_s
        return Credentials(f"id-{self.loads}", "secret", "", expires)


@pytest.fixture
def clock():
    return [1_000_000.0]


@pytest.fixture
def scripted(clock):
    return Scripted(clock)


@pytest.fixture
def held(scripted, clock):
    return RefreshingCredentials(scripted, now=lambda: clock[0])


def test_the_first_load_happens_once_for_all_threads(held, scripted):
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: held.current(), range(64)))
    assert scripted.loads == 1
    assert {id(each) for each in found} == {id(held.current())}


def test_keys_are_renewed_five_minutes_before_they_expire_and_not_earlier(held, scripted, clock):
    held.refresh_if_due()
    clock[0] += 3600 - 301
    held.refresh_if_due()
    assert scripted.loads == 1
    clock[0] += 1.5
    assert held.current().access_key == "id-1"  # current never loads
    held.refresh_if_due()
    assert held.current().access_key == "id-2"


def test_lasting_keys_and_no_keys_are_loaded_once(clock):
    class Nobody:
        loads = 0

        def load(self):
            self.loads += 1

    for lasting in (Scripted(clock, lasting_s=None), Nobody()):
        held = RefreshingCredentials(lasting, now=lambda: clock[0])
        for _ in range(3):
            held.refresh_if_due()
            clock[0] += 1e9
        assert lasting.loads == 1


def test_other_threads_use_valid_credentials_while_one_thread_renews(held, scripted, clock):
    held.refresh_if_due()
    clock[0] += 3400
    scripted.entered.clear()
    scripted.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        renewal = pool.submit(held.refresh_if_due)
        assert scripted.entered.wait(60)
        held.refresh_if_due()  # would wait for ever if it waited
        assert held.current().access_key == "id-1"
        scripted.gate.set()
        renewal.result(30)
    assert held.current().access_key == "id-2"
    assert scripted.loads == 2


def test_others_wait_when_the_keys_have_expired(held, scripted, clock):
    held.refresh_if_due()
    clock[0] += 3601
    scripted.entered.clear()
    scripted.gate.clear()
    asked = threading.Event()
    lock = held._lock

    class Watched:
        def take(self, limit_s):
            if limit_s and scripted.entered.is_set():
                asked.set()
            return lock.take(limit_s)

        def release(self):
            lock.release()

    held._lock = Watched()

    def work():
        held.refresh_if_due()
        return held.current().access_key

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(work)
        assert scripted.entered.wait(60)
        second = pool.submit(work)
        assert asked.wait(60)
        scripted.gate.set()
        assert {first.result(30), second.result(30)} == {"id-2"}
    assert scripted.loads == 2


def test_a_failed_renewal_is_silent_until_the_keys_expire(held, scripted, clock):
    held.refresh_if_due()
    scripted.failing = True
    clock[0] += 3400
    for _ in range(3):
        held.refresh_if_due()
    assert scripted.loads == 2  # not once per batch
    assert held.current().access_key == "id-1"
    clock[0] += 16
    held.refresh_if_due()
    assert scripted.loads == 3
    clock[0] += 3600
    with pytest.raises(Unreachable):
        held.refresh_if_due()
    scripted.failing = False
    held.refresh_if_due()
    assert held.current().access_key == "id-5"


def test_a_failed_first_load_is_raised_and_tried_again(held, scripted):
    scripted.failing = True
    with pytest.raises(Unreachable):
        held.current()
    scripted.failing = False
    assert held.current().access_key == "id-2"


def test_keys_about_to_expire_are_not_fetched_anew_for_every_batch(held, scripted, clock):
    scripted.lasting_s = -5.0  # the local clock is ahead of the server's
    for _ in range(3):
        held.refresh_if_due()
    assert scripted.loads == 1
    clock[0] += 16
    held.refresh_if_due()
    assert scripted.loads == 2


def test_the_server_s_verdict_forces_a_load(held, scripted):
    held.invalidate()  # nothing to forget
    held.refresh_if_due()
    held.invalidate()
    assert held.current().access_key == "id-1"  # never blocks, so never loads
    held.refresh_if_due()
    assert (held.current().access_key, scripted.loads) == ("id-2", 2)
    held.invalidate()
    scripted.failing = True
    with pytest.raises(Unreachable):
        held.refresh_if_due()


def test_a_refusal_renews_although_the_clock_was_set_back(held, clock):
    held.refresh_if_due()
    clock[0] += 3400
    held.refresh_if_due()
    clock[0] -= 100
    held.renew()
    held._renewal.join()
    assert held.current().access_key == "id-3"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_a_thread_renews_does_not_hang(held, scripted, clock):
    held.refresh_if_due()
    clock[0] += 4000
    scripted.entered.clear()
    scripted.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        renewal = pool.submit(held.refresh_if_due)
        assert scripted.entered.wait(60)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                scripted.entered, scripted.gate = threading.Event(), threading.Event()
                scripted.gate.set()
                held.refresh_if_due()
                os.write(writer, held.current().access_key.encode())
            finally:
                os._exit(0)
        os.close(writer)
        ready, _, _ = select.select([reader], [], [], 10)
        if not ready:
            os.kill(child, 9)
        os.waitpid(child, 0)
        scripted.gate.set()
        renewal.result(30)
        assert ready, "the child waits for a lock that nobody will release"
        assert os.read(reader, 100) == b"id-3"
    os.close(reader)


def test_explicit_keys_never_expire_with_the_default_clock():
    held = RefreshingCredentials(AmazonCredentials(S3Options(access_key="a", secret_key="b"), {}))
    assert held.current().access_key == "a"
    assert held._state.due == math.inf


def test_refreshing_credentials_cannot_be_pickled():
    with pytest.raises(TypeError, match="lock"):
        pickle.dumps(RefreshingCredentials(AmazonCredentials(S3Options(anonymous=True), {})))


def test_credentials_that_last_seconds_are_renewed_after_half_of_them(held, scripted, clock):
    scripted.lasting_s = 1.0
    held.refresh_if_due()
    clock[0] += 0.4
    held.refresh_if_due()
    assert scripted.loads == 1
    clock[0] += 0.2
    held.refresh_if_due()
    assert (scripted.loads, held.current().access_key) == (2, "id-2")


def test_many_refusals_of_the_old_credentials_load_others_once(held, scripted, clock):
    held.refresh_if_due()
    for _ in range(20):
        held.renew()
        held.refresh_if_due()
    assert scripted.loads == 2
    clock[0] += 2
    held.renew()
    held.refresh_if_due()
    assert scripted.loads == 3, "a later one is of the new ones"


def test_refusals_while_new_credentials_are_loaded_are_about_the_old_ones(held, scripted, clock):
    held.refresh_if_due()
    scripted.entered.clear()
    scripted.gate.clear()
    assert not held.renew(), "the first one begins to load"
    assert scripted.entered.wait(60)
    assert all(held.renew() for _ in range(100))
    names = [each.name for each in threading.enumerate()]
    assert names.count("penstock-credentials") == 1
    scripted.gate.set()
    held.refresh_if_due()
    assert (scripted.loads, held.renew()) == (2, True), "requests that were under way are refused still"
    clock[0] += 2
    assert not held.renew()
    held.refresh_if_due()
    assert not held.renew(), "new ones that are refused at once are not waited for again"


def test_a_refusal_soon_after_a_renewal_in_time_waits_for_the_next_credentials(held, scripted, clock):
    held.refresh_if_due()
    clock[0] += 3400
    held.refresh_if_due()
    clock[0] += 5
    scripted.gate.clear()
    held.renew()
    assert held.renew()
    scripted.gate.set()
    held._renewal.join()
    assert held.current().access_key == "id-3"


def test_due_reports_pending_first_load_expiry_and_invalidation(held, clock):
    assert held.due()
    held.current()
    assert not held.due()
    clock[0] += 3300.0
    assert held.due()
    held.refresh_if_due()
    assert not held.due()
    held.invalidate()
    assert held.due()


def test_renewal_outcomes_are_logged_without_secrets(held, scripted, clock, caplog):
    with caplog.at_level("INFO", "penstock"):
        held.refresh_if_due()
        assert caplog.messages == []
        clock[0] += 3400
        scripted.failing = True
        for _ in range(2):
            held.refresh_if_due()
            clock[0] += 16
        scripted.failing = False
        held.refresh_if_due()
        held.invalidate()
        held.refresh_if_due()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "credentials could not be renewed: away; the old ones expire in 200 s; renewal will be retried"),
        ("INFO", "credentials were renewed; they expire in 3600 s"),
        ("WARNING", "credentials were renewed, because the store refused the old ones; they expire in 3600 s"),
    ]
    assert "secret" not in caplog.text


def test_the_help_of_credentials_names_options_that_exist():
    about = penstock.credentials.__doc__
    for name in ("S3Options", "GCSOptions", "AzureOptions", "OSSOptions", "HFOptions", "HTTPOptions"):
        there = {each.name for each in fields(getattr(penstock, name))}
        listed = re.search(rf"``{name}`` \(([^)]*)\)|((?:``\w+``,? ?(?:or|with)?\s+)+)of ``{name}``", about)
        names = re.findall(r"``(\w+)``", listed[1] or listed[2])
        assert names
        assert {*names} <= there
