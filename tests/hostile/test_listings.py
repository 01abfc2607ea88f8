"""A server that lists what nobody asked for: no verb touches it, and none goes on for ever."""

from __future__ import annotations

from itertools import count

import pytest

import penstock as ps
from penstock.checkpoint.run.steps import CheckpointManager
from penstock.errors import Damaged, Forbidden, NotFound
from penstock.source import open_source
from penstock.testing.servers import reply
from tests.servers.hostile import document, hostile, listing, page

OURS = {f"run/step-{number}/x": b"x" for number in range(3)}
OTHERS = {"other/precious": b"y", "run2/precious": b"z"}
_tokens = count()

# What the server says whatever prefix it is asked for.
LIES = {
    "all keys": page([(key, 1) for key in sorted(OURS | OTHERS)]),
    "another prefix": page([("other/precious", 1)]),
    "a key above the prefix": page([("run", 1)]),
    "no key": page([("", 1)]),
    "out of order": page([("run/b", 1), ("run/a", 1)]),
    "twice": page([("run/a", 1), ("run/a", 1)]),
    "the same page again": lambda _answer, _received: reply(200, listing([("run/a", 1)], token=f"t{next(_tokens)}")),
    "the same token again": page([], token="t"),
    "empty pages for ever": lambda _answer, _received: reply(200, listing(token=f"t{next(_tokens)}")),
    "a negative size": page([("run/a", -1)]),
    "a size beyond 64 bits": page([("run/a", 1 << 63)]),
}


def _everything(server):
    """Return each verb that lists, by name."""
    url, store = "s3://bucket/run/", server.store
    source, prefix = open_source(url, store)
    manager = CheckpointManager(url, store=store)
    return {
        "list": lambda: list(ps.list(url, store=store)),
        "page": lambda: source.page(prefix) and list(source.pages(prefix)),
        "scan": lambda: ps.Catalog.scan(url, store=store),
        "clean": lambda: manager.clean(older_than_s=0),
    }


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """A thousand requests make the same point as ten."""
    monkeypatch.setattr("penstock.engine.listing.listing._EMPTY_PAGES", 10)


@pytest.mark.parametrize("lie", LIES)
def test_a_listing_that_was_not_asked_for_is_damaged(lie):
    with hostile(OURS | OTHERS, list=LIES[lie]) as server:
        for name, verb in _everything(server).items():
            with pytest.raises(Damaged, match=r"s3://bucket/run/"):
                pytest.fail(f"{name} returned {verb()!r}")
        assert all("run/clock/" in key for key in server.gone)
        assert server.objects == OURS | OTHERS


@pytest.mark.parametrize(
    ("entries", "prefixes"),
    [
        ([("other/precious", 1)], ["run/step-1/"]),
        ([("run/step-1/manifest.json", 1)], []),
        ([], ["other/", "run/step-1/"]),
        ([], ["run/step-1"]),
        ([], ["run/step-2/", "run/step-1/"]),
    ],
)
def test_a_listing_by_delimiter_is_held_to_it(entries, prefixes):
    with hostile(OURS | OTHERS, list=page(entries, prefixes)) as server:
        manager = CheckpointManager("s3://bucket/run", store=server.store)
        for verb in (manager.steps, manager.latest, manager.clean):
            with pytest.raises(Damaged, match="s3://bucket/run/"):
                verb()
        assert server.gone == []


@pytest.mark.parametrize(
    "uploads", [[("other/precious", "u1")], [("run/a", "u1"), ("run/a", "u1")], [("run/a", "")], [("", "u1")]]
)
def test_an_upload_elsewhere_is_not_aborted(uploads):
    inner = "".join(f"<Upload><Key>{key}</Key><UploadId>{name}</UploadId></Upload>" for key, name in uploads)
    root = "ListMultipartUploadsResult"
    answer = reply(200, f"<{root}><IsTruncated>false</IsTruncated>{inner}</{root}>".encode())
    with hostile(OURS, uploads=lambda _answer, _received: answer) as server:
        source, prefix = open_source("s3://bucket/run/", server.store)
        with pytest.raises(Damaged, match="s3://bucket/run/"):
            list(source.unfinished(prefix))
        with pytest.raises(Damaged):
            CheckpointManager("s3://bucket/run", store=server.store).clean(older_than_s=0)
        assert all("run/clock/" in key for key in server.gone), "what it put there itself to read the store's clock"


def test_uploads_without_end_are_damaged():
    markers = {"IsTruncated": "true", "NextKeyMarker": "run/a", "NextUploadIdMarker": "u1"}
    answer = reply(200, document("ListMultipartUploadsResult", **markers))
    with hostile(uploads=lambda _answer, _received: answer) as server:
        source, prefix = open_source("s3://bucket/run/", server.store)
        with pytest.raises(Damaged, match="repeats a token"):
            list(source.unfinished(prefix))


def test_truthful_server_allows_listing_deletion_and_upload():
    """The server of these tests can be believed where it does not lie."""
    with hostile(OURS | OTHERS) as server:
        assert [each.key for each in ps.list("s3://bucket/run/", store=server.store)] == sorted(OURS)
        ps.delete([each.url for each in ps.list("s3://bucket/run/", store=server.store)], store=server.store)
        assert server.objects == OTHERS
        with ps.open("s3://bucket/run/new", "wb", store=server.store) as file:
            file.write(b"n" * (20 << 20))
        assert ps.open("s3://bucket/run/new", store=server.store).read() == b"n" * (20 << 20)


@pytest.mark.ceph
def test_all_unfinished_uploads_on_ceph_are_listed_despite_its_order(ceph_server):
    client, name = ceph_server.client(), "uploads-in-order"
    client.create_bucket(Bucket=name)
    keys = ["a", "a-b", "a/b", "a+", "ab", "b"]
    for key in [*keys, "a"]:
        client.create_multipart_upload(Bucket=name, Key=key)
    source, _ = open_source(f"s3://{name}/", ceph_server.store)
    assert sorted(each.key for each in source.unfinished("")) == sorted([*keys, "a"])
    assert sorted(each.key for each in source.unfinished("a")) == ["a", "a", "a+", "a-b", "a/b", "ab"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply(200), Damaged),
        (reply(200, b"<html><body>log in</body></html>"), Damaged),
        (reply(200, document("ListAllMyBucketsResult")), Damaged),
        (reply(200, document("ListBucketResult")), Damaged),
        (reply(200, document("Error", Code="AccessDenied")), Forbidden),
        (reply(200, document("Error", attributes=' xmlns="http://s3"', Code="NoSuchBucket")), NotFound),
        (reply(200, listing([("run/a", 1)]).replace(b"<Size>1</Size>", b"")), Damaged),
        (reply(404, b"<html>no such page</html>"), NotFound),
        (reply(204), Damaged),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else each[-50:].decode(),
)
def test_invalid_listing_response_raises_instead_of_showing_an_empty_bucket(answer, error):
    """A manager that found no step would start a run over, in silence."""
    with hostile(OURS, list=lambda _answer, _received: answer, uploads=lambda _answer, _received: answer) as server:
        manager = CheckpointManager("s3://bucket/run", store=server.store)
        source, prefix = open_source("s3://bucket/run/", server.store)
        for verb in (
            manager.latest,
            lambda: list(ps.list("s3://bucket/run/", store=server.store)),
            lambda: list(source.unfinished(prefix)),
            lambda: ps.MapDataset.from_prefix("s3://bucket/run/", store=server.store),
        ):
            with pytest.raises(error):
                verb()
