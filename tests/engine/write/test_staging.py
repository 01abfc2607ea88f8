"""Where a completion takes no condition, an upload goes to another key and is moved on it; nothing stays there."""

from __future__ import annotations

import re
import uuid

import pytest

from penstock.engine.contracts.driver import Abilities, Attributes, Conditions
from penstock.engine.fetch.fetcher import Fetcher
from penstock.engine.transport.work import Threads
from penstock.engine.write.publish import needs_staging, staging_key
from penstock.engine.write.upload import Writer
from penstock.errors import AlreadyExists, Bug, PreconditionFailed, Transient
from penstock.options import ReadOptions, WriteOptions
from penstock.stores.direct import direct
from penstock.stores.memory import MemoryDriver
from tests.engine.fetch.store import QUICK

PART = 1 << 20
OPTIONS = WriteOptions(part_bytes=PART, buffer_bytes=4 * PART)
NEW = Attributes("text/plain", {"note": "x"}, create_only=True)


class Unconditional(MemoryDriver):
    """Completions take no condition; objects are moved on one. ``lose`` answers that say nothing of what was done."""

    abilities = Abilities(digest=None, complete=Conditions(create=False, replace=False))

    def __init__(self, name):
        super().__init__(name)
        self.lose, self.moved, self.parted = 0, [], set()

    def part(self, key, upload, part, body):
        self.parted.add(key)
        return super().part(key, upload, part, body)

    def complete(self, key, upload, etags, *, create_only=False, replaces=""):
        if create_only or replaces:
            raise Bug("this store refuses conditions here")
        return super().complete(key, upload, etags)

    def move(self, source, key, etag="", *, create_only=False, replaces=""):
        def run():
            found = self._find(source, etag)
            said = Attributes(found.meta.content_type, found.meta.metadata, create_only, replaces)
            made = self._store(key, found.data, said)
            self._objects.pop(source)
            self.moved.append(source)
            if self.lose:
                self.lose -= 1
                raise Transient("the answer was lost", url=self.url(key))
            return made

        return direct(run)


@pytest.fixture
def driver():
    return Unconditional(uuid.uuid4().hex)


def _fetcher(driver):
    return Fetcher(driver, Threads(2), QUICK, ReadOptions())


def _write(driver, key, size, attributes):
    with Writer(_fetcher(driver), key, OPTIONS, attributes) as file:
        file.write(b"n" * size)


def _keys(driver):
    return set(driver._objects)


@pytest.mark.parametrize("lose", [0, 1], ids=["answered", "answer-lost"])
def test_large_conditional_create_is_staged_and_keeps_its_attributes(driver, lose):
    driver.lose = lose
    _write(driver, "a/key", 3 * PART, NEW)
    assert _keys(driver) == {"a/key"}
    found = driver._find("a/key").meta
    assert (found.size, found.content_type, found.metadata["note"]) == (3 * PART, "text/plain", "x")
    (moved,) = set(driver.moved)
    assert driver.parted == {moved}
    assert moved.startswith(".penstock-uploads/a%2Fkey.")


def test_failed_condition_raises_and_leaves_only_the_existing_object(driver):
    _write(driver, "key", 2 * PART, Attributes())
    before = driver._find("key").meta.etag
    with pytest.raises(AlreadyExists):
        _write(driver, "key", 3 * PART, NEW)
    with pytest.raises(PreconditionFailed):
        _write(driver, "key", 3 * PART, Attributes(replaces="other"))
    assert (_keys(driver), driver._find("key").meta.etag) == ({"key"}, before)
    _write(driver, "key", 3 * PART, Attributes(replaces=before))
    assert (_keys(driver), driver._find("key").meta.size) == ({"key"}, 3 * PART)


def test_concurrent_write_after_the_check_makes_the_staged_move_raise(driver):
    """The look sees nothing; the move's condition does."""
    move = driver.move

    def late(source, key, etag="", **conditions):
        driver._store(key, b"theirs", Attributes())
        return move(source, key, etag, **conditions)

    driver.move = late
    with pytest.raises(AlreadyExists):
        _write(driver, "key", 3 * PART, NEW)
    assert (_keys(driver), driver._find("key").data) == ({"key"}, b"theirs")


def test_an_upload_that_fails_is_aborted_where_its_parts_are(driver):
    with pytest.raises(KeyError), Writer(_fetcher(driver), "key", OPTIONS, NEW) as file:
        file.write(b"n" * 3 * PART)
        raise KeyError
    assert (driver._uploads, _keys(driver)) == ({}, set())


def test_unconditional_and_single_request_writes_go_directly_to_their_key(driver):
    _write(driver, "large", 3 * PART, Attributes())
    _write(driver, "small", 10, NEW)
    assert (driver.parted, driver.moved, _keys(driver)) == ({"large"}, [], {"large", "small"})


@pytest.mark.parametrize(
    ("complete", "attributes", "expected"),
    [
        (Conditions(), NEW, False),
        (Conditions(create=True, replace=False), NEW, False),
        (Conditions(create=True, replace=False), Attributes(replaces="e"), True),
        (Conditions(create=False, replace=True), NEW, True),
        (Conditions(create=False, replace=False), Attributes(), False),
    ],
)
def test_staging_is_needed_only_for_conditions_that_completion_ignores(driver, complete, attributes, expected):
    driver.abilities = Abilities(digest=None, complete=complete)
    assert needs_staging(_fetcher(driver), attributes) is expected


def test_a_store_that_moves_nothing_has_the_look_alone():
    driver = MemoryDriver(uuid.uuid4().hex)
    driver.abilities = Abilities(digest=None, complete=Conditions(create=False, replace=False))
    assert not needs_staging(_fetcher(driver), NEW)


def test_the_key_of_an_upload_that_waits_is_its_own_and_names_its_aim_as_long_as_it_fits():
    one, other = (staging_key("a/b c", 1024) for _ in range(2))
    assert one != other
    assert one.startswith(".penstock-uploads/a%2Fb%20c.")
    assert re.fullmatch(r"\.penstock-uploads/[0-9a-f]{32}", staging_key("é" * 500, 1024))
