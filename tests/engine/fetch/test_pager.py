"""Pages come as they arrive, each with its request; leaving the block calls off those that are still under way."""

import threading

import pytest

from penstock.engine.fetch.pages import Pager
from penstock.errors import Cancelled, Forbidden, Unsupported
from penstock.events import Listed
from tests.engine.fetch.store import Bucket, aside, hearing
from tests.readonly import ReadOnly


def _pager(driver, threads=4):
    return Pager(aside(driver, threads))


def _bucket(*keys):
    return Bucket(dict.fromkeys(keys, b""))


def _keys(page):
    return [entry.key for entry in page.entries]


def test_each_page_is_taken_with_the_request_that_it_answers():
    with _pager(_bucket("a/1", "a/2", "b/1", "c")) as pager:
        asked = {pager.start(prefix): prefix for prefix in ("a/", "b/", "none/")}
        taken = {}
        while len(taken) < 3:
            taken |= {asked[listing]: _keys(page) for listing, page in pager.take()}
    assert taken == {"a/": ["a/1", "a/2"], "b/": ["b/1"], "none/": []}


def test_start_after_delimiter_and_token_reach_the_store():
    keys = [f"{number:04}/x" for number in range(1_001)]
    with _pager(_bucket(*keys, "top")) as pager:
        pager.start("", start_after="0998/x")
        assert _keys(pager.take()[0][1]) == ["0999/x", "1000/x", "top"]
        pager.start("", delimiter="/")
        first = pager.take()[0][1]
        assert len(first.prefixes) == 1_000
        pager.start("", delimiter="/", token=first.token)
        second = pager.take()[0][1]
        assert (second.prefixes, _keys(second)) == (("1000/",), ["top"])


def test_an_error_of_one_listing_is_raised_and_the_others_are_called_off():
    let_go, carried_out = threading.Event(), []

    def before(prefix):
        carried_out.append(prefix)
        if prefix == "refused":
            raise Forbidden("no")
        assert let_go.wait(60)

    with pytest.raises(Forbidden), _pager(Bucket(before=before), threads=2) as pager:
        held = pager.start("held")
        while not carried_out:
            threading.Event().wait(0.001)
        pager.start("refused")
        while not pager.take():
            pass
    let_go.set()
    held.wait(60)
    assert held.error is None or type(held.error) is Cancelled
    assert carried_out == ["held", "refused"]


def test_listing_queued_when_the_block_ends_is_cancelled_without_a_request():
    let_go, begun, carried_out = threading.Event(), threading.Event(), []

    def before(prefix):
        carried_out.append(prefix)
        begun.set()
        assert let_go.wait(60)

    with pytest.raises(KeyboardInterrupt), _pager(Bucket(before=before), threads=1) as pager:
        pager.start("held")
        assert begun.wait(60)
        queued = pager.start("queued")
        raise KeyboardInterrupt
    let_go.set()
    queued.wait(60)
    assert type(queued.error) is Cancelled
    assert carried_out == ["held"]


def test_listed_page_emits_an_event_with_url_and_key_count():
    driver = _bucket("a/1", "a/2", "b/1")
    with hearing(Listed) as heard, _pager(driver) as pager:
        pager.start("a/")
        assert pager.take()
    assert [(event.url, event.count) for event in heard] == [(driver.url("a/"), 2)]


def test_store_without_listing_raises_unsupported_in_pager_before_any_request():
    class Unlisted(ReadOnly):
        list = None

    unlisted = Unlisted(Bucket(), "name")
    with pytest.raises(Unsupported, match="cannot list objects: name them"), _pager(unlisted) as pager:
        pager.start("a/")
