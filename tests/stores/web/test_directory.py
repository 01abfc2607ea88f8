"""Answers to requests for a directory: its names, or why there are none."""

import pytest

from penstock.engine.contracts.exchange import Response
from penstock.errors import Damaged, Forbidden, NotFound, Transient, Unauthenticated, Unsupported, Unusable
from penstock.stores.web.driver import check_listable, index_of
from penstock.stores.web.index import Walk
from penstock.stores.web.route import WebRoute

PAGE = b"<title>Index of /</title><a href='x'>x</a></html>"
HEADERS = {"content-length": str(len(PAGE)), "content-type": "text/html"}


def _index(response, directory="d/", *, first=True):
    route = WebRoute("https://h/", (), lambda _url: "")
    walk = Walk("", directory=directory, first=first)
    return index_of(response, walk, route.straight(directory), route)


def test_an_index_is_read():
    assert [each.name for each in _index(Response(200, HEADERS, PAGE))] == ["x"]


@pytest.mark.parametrize(
    ("response", "directory", "kind"),
    [
        (Response(404), "d/", NotFound),
        (Response(404), "", Unsupported),
        (Response(403), "d/", Unsupported),
        (Response(200, HEADERS, b"x" * len(PAGE)), "d/", Unsupported),
        (Response(200, HEADERS, overflow=True), "d/", Unsupported),
    ],
)
def test_unusable_directory_index_error_suggests_from_manifest(response, directory, kind):
    with pytest.raises(kind, match="from_manifest"):
        _index(response, directory)


def test_a_directory_that_is_gone_meanwhile_is_empty_and_one_that_is_refused_is_not():
    assert _index(Response(404), first=False) == []
    with pytest.raises(Forbidden):
        _index(Response(403), first=False)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (Response(401), Unauthenticated),
        (Response(500), Transient),
        (Response(200, HEADERS, PAGE[:-1]), Transient),
        (Response(200, {"content-type": "text/html"}, PAGE), Damaged),
        (Response(200, HEADERS | {"content-encoding": "gzip"}, PAGE), Unusable),
    ],
)
def test_failed_or_incomplete_index_response_raises_error(response, kind):
    with pytest.raises(kind):
        _index(response)


class _Store:
    def __init__(self, hint=""):
        self._hint = hint

    def url(self, key):
        return f"https://h/{key.partition('?')[0]}"

    def hint(self, _key):
        return self._hint


def test_unsupported_prefix_or_delimiter_is_refused_before_any_request():
    check_listable(_Store(), "a/", "/")
    for prefix, delimiter in (("a/", "-"), ("a/?sig=hushhush", "")):
        with pytest.raises(Unsupported) as caught:
            check_listable(_Store(), prefix, delimiter)
        assert "hushhush" not in f"{caught.value}{vars(caught.value)}"
    with pytest.raises(Unsupported, match="write s3://b/a"):
        check_listable(_Store("write s3://b/a"), "a/", "")
