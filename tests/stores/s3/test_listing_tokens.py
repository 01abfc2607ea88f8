"""Listings are complete on servers whose tokens leave keys out, as those of MinIO of March 2024 to July 2025 do."""

from base64 import b64decode, b64encode
from bisect import bisect_left
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.engine.contracts.exchange import Response
from penstock.stores.credentials import RefreshingCredentials
from penstock.stores.s3.credentials import source
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.driver import S3Driver
from penstock.stores.s3.options import S3Options
from tests.servers.hostile import document

_PAGE = 10
_TAG = "[minio_cache:v2,return:]"
_FOLDERS = [f"p/{at:03}/{name}" for at in range(90) for name in ("a", "b", "c")[: 2 + (at % 3 == 0)]]


@pytest.fixture
def driver():
    identity = RefreshingCredentials(source(S3Options(access_key="id", secret_key="secret")))
    return S3Driver(BucketAddress("b", "http://host", virtual=False), "us-east-1", identity)


def _entries(keys):
    return "".join(f'<Contents><Key>{key}</Key><ETag>"e"</ETag><Size>1</Size></Contents>' for key in keys)


def _answer(keys, token, prefixes=()):
    more = {"IsTruncated": "true", "NextContinuationToken": token} if token else {"IsTruncated": "false"}
    rows = _entries(keys) + "".join(f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in prefixes)
    body = document("ListBucketResult", **more)
    return Response(200, body=body.replace(b"</ListBucketResult>", rows.encode() + b"</ListBucketResult>"))


def _minio(query, tag):
    """Answer as MinIO did: its walk yields folders, too, and the last one that it skipped becomes the token."""
    walk = sorted({*_FOLDERS, *(key[:6] for key in _FOLDERS)})
    token = b64decode(query.get("continuation-token", "")).decode()
    marker = token.removesuffix(tag) or query.get("start-after", "")
    found, skipped, more = [], "", False
    for name in walk[bisect_left(walk, marker) :]:
        if name.endswith("/"):
            skipped = name
        elif more := len(found) == _PAGE + bool(marker):
            break
        else:
            found.append(name)
    found = [key for key in found if key > marker]
    more = more or len(found) > _PAGE
    found = found[:_PAGE]
    return _answer(found, b64encode((max(skipped, found[-1]) + tag).encode()).decode() if more else "")


@pytest.mark.parametrize("tag", ["", _TAG])
@pytest.mark.parametrize("after", ["", "p/0", "p/017/x"])
def test_listing_of_a_server_whose_tokens_leave_keys_out_is_complete(driver, tag, after):
    keys, exchange = [], driver.list("p/", start_after=after)
    while True:
        query = {name: text for name, [text] in parse_qs(urlsplit(exchange.request.url).query).items()}
        page = exchange.parse(_minio(query, tag))
        keys += [each.key for each in page.entries]
        if not page.token:
            break
        exchange = driver.list("p/", token=page.token)
    assert keys == [key for key in _FOLDERS if key > after]


_OURS = "start-after=p%2Fb"


@pytest.mark.parametrize(
    ("named", "prefixes", "delimiter", "sent"),
    [
        (f"p/c{_TAG}", (), "", _OURS),
        ("p/c[rustfs_cache:v2,id:1]", (), "", _OURS),
        ("p/c", (), "", _OURS),
        (f"p/b{_TAG}", (), "", ""),
        ("p/b", (), "", ""),
        ("p/a", (), "", ""),
        ("q", (), "", ""),
        (f"p/d/{_TAG}", ("p/c/",), "/", "start-after=p%2Fc%2F"),
        (f"p/c/{_TAG}", ("p/c/",), "/", ""),
        ("p/d/", ("p/c/",), "/", ""),
    ],
)
def test_token_that_names_a_text_behind_the_page_is_replaced(driver, named, prefixes, delimiter, sent):
    token = b64encode(named.encode()).decode()
    page = driver.list("p/", delimiter=delimiter).parse(_answer(["p/a", "p/b"], token, prefixes))
    url = driver.list("p/", token=page.token, delimiter=delimiter).request.url
    assert (page.token == token) is not bool(sent)
    assert ("continuation-token" in url, sent in url) == (not sent, True)


@pytest.mark.parametrize("prefix", ["p/", ""])
@pytest.mark.parametrize("text", [b"p/a\xff\xfe", b"", b'{"key": "p/a"}'])
def test_token_of_any_other_form_is_kept(driver, prefix, text):
    for token in (b64encode(text).decode(), "not base64!"):
        assert driver.list(prefix).parse(_answer(["p/a"], token)).token == token


def test_token_after_a_page_without_keys_is_kept(driver):
    token = b64encode(f"p/c{_TAG}".encode()).decode()
    assert driver.list("p/").parse(_answer([], token)).token == token
