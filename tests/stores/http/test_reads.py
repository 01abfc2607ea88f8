"""A dialect is the request of a read; what the answers show is verified and learned here, as for every dialect."""

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import RANGE_IGNORED, Abilities, Beginning
from penstock.engine.contracts.exchange import Exchange, Request, Response
from penstock.errors import Forbidden, Truncated, Unreachable, Unusable
from penstock.stores.http.answers import Answers, Codes, Reads
from penstock.stores.http.verify import Verification
from penstock.values import Span


class Nobody:
    """Signs nothing."""

    def current(self):
        return None


class Plain(Reads):
    """The least dialect: a path for each key."""

    def __init__(self):
        self.abilities = Abilities(ranges=None)
        self._verify = Verification()
        self._sized = self._verify.sized_headers
        self._answers = Answers(Codes(service="a test's", codes={}), Nobody(), self)

    def url(self, key):
        return f"plain://{key}"

    def read(self, span, target):
        request = self._whole(span.key, span.etag)
        request.target = target
        return Exchange(request, lambda response: self._verified(span, target, response))

    def _whole(self, key, etag):
        return Request("GET", f"http://localhost/{key}", (f"if-match: {etag}",) if etag else ())


def test_a_range_that_is_honoured_is_learned_and_one_that_is_not_too():
    plain, span, target = Plain(), Span("key", 2, 5), Buffer.allocate(3)
    parse = plain.read(span, target).parse
    partial = Response(206, {"content-range": "bytes 2-4/9"}, received=3)
    assert (parse(partial), plain.abilities.ranges) == (3, True)
    with pytest.raises(Unusable) as caught:
        parse(Response(200, {"content-length": "9"}, overflow=True))
    assert (caught.value.code, caught.value.url) == (RANGE_IGNORED, "plain://key")
    assert plain.abilities.ranges is False


def test_a_whole_object_shows_nothing_of_ranges():
    plain, target = Plain(), Buffer.allocate(3)
    whole = plain.read(Span("key", 0, 3, whole=True), target)
    assert whole.parse(Response(200, {"content-length": "3"}, received=3)) == 3
    assert plain.abilities.ranges is None


@pytest.mark.parametrize(("status", "kind"), [(403, Forbidden), (416, Truncated)])
def test_a_refusal_names_the_object(status, kind):
    plain = Plain()
    for exchange in (
        plain.read(Span("key", 0, 3), Buffer.allocate(3)),
        plain.get("key", ""),
        plain.get("key", "", 9, Buffer.allocate(3)),
    ):
        with pytest.raises(kind, match=r"plain://key"):
            exchange.parse(Response(status))


def test_an_object_of_unknown_size_is_bounded_with_a_buffer_and_without():
    plain = Plain()
    with pytest.raises(Unusable, match="9 bytes"):
        plain.get("key", "", 9).parse(Response(200, overflow=True))
    much = Response(200, {"content-length": "10", "etag": '"e"'}, received=3, overflow=True)
    with pytest.raises(Unusable):
        plain.get("key", "", 9, Buffer.allocate(3)).parse(much)
    assert plain.get("key", "", 10, Buffer.allocate(3)).parse(much)[1:] == (10, "e")
    assert isinstance(plain.get("key", "", 10, Buffer.allocate(3)).parse(much), Beginning)


def test_interrupted_object_response_raises_unreachable():
    plain = Plain()
    broken = Response(200, {"content-length": "3"}, received=2, fault=Unreachable("reset"))
    with pytest.raises(Unreachable, match="plain://key"):
        plain.get("key", "", 9, Buffer.allocate(3)).parse(broken)
