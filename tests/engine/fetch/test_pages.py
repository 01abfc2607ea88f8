"""Listings page by page: what was asked for or ``Damaged``, under the URL that the caller uses."""

import uuid
from dataclasses import replace

import pytest

from penstock.engine.fetch.pages import next_page, pages, uploads
from penstock.engine.listing.listing import Listing
from penstock.errors import Damaged, Unsupported
from penstock.events import Listed
from penstock.stores.direct import direct
from penstock.stores.memory import MemoryDriver
from penstock.values import ObjectMeta, Page, Upload, Uploads
from tests.engine.fetch.store import Bucket, aside, hearing
from tests.readonly import ReadOnly

KEYS = [f"a/{number:04}" for number in range(2_001)]


def _url(key):
    """Return a key's URL of a profile, which the driver below does not know."""
    return f"profile://name/{key}"


@pytest.fixture
def bucket():
    return Bucket(dict.fromkeys([*KEYS, "b"], b""))


class Asked:
    """A source's engine, and how often it was asked for."""

    def __init__(self, engine):
        self.engine = engine
        self.times = 0

    def __call__(self):
        self.times += 1
        return self.engine


def test_every_page_asks_for_the_engine_of_the_process_that_takes_it(bucket):
    asked = Asked(aside(bucket))
    listed = pages(asked, Listing("a/"), _url)
    assert asked.times == 0
    assert [entry.key for page in listed for entry in page.entries] == KEYS
    assert asked.times == 3


def test_a_token_continues_and_start_after_is_asked_for_with_the_first_page_only(bucket):
    engine, listing = aside(bucket), Listing("a/", start_after=KEYS[500])
    first = next_page(engine, listing, _url)
    assert [entry.key for entry in first.entries] == KEYS[501:1501]
    again = Listing("a/", start_after=KEYS[1800], token=first.token)  # the token already says where
    for continued in (listing, again):
        assert [entry.key for entry in next_page(engine, continued, _url).entries] == KEYS[1501:]
        assert continued.over
    assert next_page(engine, Listing("", delimiter="/"), _url).prefixes == ("a/",)


def test_listed_events_carry_the_url_of_the_caller(bucket):
    with hearing(Listed) as heard:
        list(pages(lambda: aside(bucket), Listing("a/"), _url))
    assert [(event.url, event.count) for event in heard] == [("profile://name/a/", count) for count in (1000, 1000, 1)]


def _answering(page):
    """Return an engine whose store answers every listing with one page."""

    class Liar(MemoryDriver):
        def list(self, _prefix, **_asked):
            return direct(lambda: page)

    return aside(Liar(uuid.uuid4().hex))


def test_a_page_that_was_not_asked_for_is_damaged_and_named_by_the_url_of_the_caller():
    with pytest.raises(Damaged, match="astray") as raised:
        next_page(_answering(Page((ObjectMeta("other", 1),))), Listing("a/"), _url)
    assert raised.value.url == "profile://name/a/"


class InTwoPages(MemoryDriver):
    """A store that lists uploads on two pages, whatever it was asked for."""

    listed = ("a/1", "a/2")

    def uploads(self, _prefix, *, token=""):
        first, second = (Upload(key, f"upload of {key}") for key in self.listed)
        return direct(lambda: Uploads((second,)) if token else Uploads((first,), "more"))


def test_uploads_of_all_pages_come_and_each_page_asks_for_the_engine_of_its_process():
    asked = Asked(aside(InTwoPages(uuid.uuid4().hex)))
    listed = uploads(asked, "a/", _url)
    assert asked.times == 0
    assert [each.key for each in listed] == ["a/1", "a/2"]
    assert asked.times == 2


def test_an_upload_that_was_not_asked_for_is_damaged_and_named_by_the_url_of_the_caller():
    driver = InTwoPages(uuid.uuid4().hex)
    driver.listed = ("a/1", "other")
    listed = uploads(lambda: aside(driver), "a/", _url)
    assert next(listed).key == "a/1"
    with pytest.raises(Damaged, match="astray") as raised:
        next(listed)
    assert raised.value.url == "profile://name/a/"


def test_store_without_list_or_uploads_verb_raises_unsupported_before_any_request():
    class Unlisted(ReadOnly):
        list = None

    engine = aside(Unlisted(Bucket(), "name"))
    with pytest.raises(Unsupported, match="cannot list objects"):
        next_page(engine, Listing("a/"), _url)
    with pytest.raises(Unsupported, match="take an object in parts"):
        next(uploads(lambda: engine, "a/", _url))


class Jumping(Bucket):
    """A store whose listings may begin anywhere."""

    abilities = replace(MemoryDriver.abilities, jumps=True)


MANY = {f"a/{number:05}": b"" for number in range(9_500)}


def test_a_server_that_ignores_where_a_part_begins_is_listed_plainly_to_the_end():
    class Deaf(Jumping):
        def list(self, prefix, *, token="", start_after="", delimiter=""):  # noqa: ARG002  it ignores it
            return super().list(prefix, token=token, delimiter=delimiter)

    engine = aside(Deaf(MANY))
    assert [entry.key for page in pages(lambda: engine, Listing("a/"), _url) for entry in page.entries] == [*MANY]


def test_pages_ahead_are_called_off_where_the_listing_is_left_and_named_as_the_caller_does():
    engine = aside(Jumping(MANY))
    with hearing(Listed) as heard:
        listed = pages(lambda: engine, Listing("a/"), _url)
        assert [len(next(listed).entries) for _ in range(5)] == [1000] * 5
        listed.close()
    assert {event.url for event in heard} == {"profile://name/a/"}
