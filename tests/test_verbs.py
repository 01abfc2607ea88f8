"""Everyday verbs do by URL what their names say, on every store, and say what a URL lacks."""

import dataclasses
import io
import uuid
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import InvalidURL, NotFound, UnknownScheme
from penstock.source import Source
from penstock.testing.faults import FaultServer
from penstock.testing.servers import Scripted, reply
from penstock.values import ObjectMeta, Page
from tests.servers import Bucket
from tests.servers.hostile import listing


@pytest.fixture(params=["s3", "file", "memory"])
def place(request, tmp_path):
    """Return a URL that ends in a slash, and the options that reach it."""
    if request.param == "s3":
        bucket = request.getfixturevalue("moto_bucket")
        return bucket.url, bucket.store
    return (f"file://{tmp_path}/" if request.param == "file" else f"memory://{tmp_path.name}/"), None


@pytest.fixture
def moto_bucket(moto_server):
    client, name = moto_server.client(), f"verbs-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    return Bucket(moto_server, name, client)


def _write(url, data, store):
    with ps.open(url, "wb", store=store) as file:
        file.write(data)


def test_a_day_in_the_life_of_an_object(place):
    root, store = place
    _write(f"{root}a b/ü.txt", b"some\nbytes\n", store)
    with ps.open(f"{root}a b/ü.txt", store=store) as file:
        assert file.read() == b"some\nbytes\n"
        assert file.seek(5) == 5
    assert io.TextIOWrapper(ps.open(f"{root}a b/ü.txt", store=store)).readlines() == ["some\n", "bytes\n"]
    with ps.open(f"{root}a b/ü.txt", "r", store=store) as text:
        assert [*text] == ["some\n", "bytes\n"]
    assert ps.stat(f"{root}a b/ü.txt", store=store).size == 11
    ps.copy(f"{root}a b/ü.txt", f"{root}copy", store=store)
    assert [meta.size for meta in ps.list(root, store=store)] == [11, 11]
    ps.delete(f"{root}copy", store=store)
    ps.delete([f"{root}copy", f"{root}a b/ü.txt", f"{root}never"], store=store)
    assert list(ps.list(root, store=store)) == []


def test_missing_object_raises_not_found_and_lists_empty(place):
    root, store = place
    for verb in (
        lambda: ps.open(f"{root}no", store=store),
        lambda: ps.stat(f"{root}no", store=store),
        lambda: ps.copy(f"{root}no", f"{root}to", store=store),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            verb()
        assert isinstance(caught.value, NotFound)
        assert "no" in caught.value.url
    assert list(ps.list(f"{root}no", store=store)) == []


def test_copying_from_store_to_store(place, tmp_path):
    root, store = place
    _write(f"{root}key", b"x" * 100_000, store)
    other = f"memory://other-{tmp_path.name}/key"
    ps.copy(f"{root}key", other, store=store)
    with ps.open(other, store=store) as file:
        assert file.read() == b"x" * 100_000
    with pytest.raises(NotFound):
        ps.copy(f"{root}no", other, store=store)
    assert ps.stat(other, store=store).size == 100_000, "what stood there stays"


def test_paths_are_urls_too(tmp_path):
    path = Path(tmp_path, "key")
    _write(path, b"bytes", None)
    assert path.read_bytes() == b"bytes"
    assert ps.stat(path).size == 5
    ps.delete(path)
    assert not path.exists()
    _write(path, b"bytes", None)
    ps.delete([path, str(path)])
    assert not path.exists()


def test_requests_of_a_small_file():
    with FaultServer.within() as server:
        url, store = "s3://bucket/key", server.store
        server.make("bucket")
        with ps.open(url, "w", store=store) as file:
            file.write("some text\n" * 100)
        assert [seen.method for seen in server.seen()] == ["PUT", "HEAD"]
        for mode in ("r", "rb"):
            before = len(server.seen())
            with ps.open(url, mode, store=store) as file:
                assert len([file.readline(), *file]) == 100
                assert file.seek(0) == 0
                assert len(file.read()) == 1000
            assert [seen.method for seen in server.seen()[before:]] == ["HEAD", "GET"]


@pytest.mark.parametrize(
    "verb",
    [ps.open, ps.stat, ps.delete, lambda url: ps.copy(url, "memory://b/k"), lambda url: ps.copy("memory://b/k", url)],
    ids=["open", "stat", "delete", "copy-from", "copy-to"],
)
def test_bucket_url_is_refused_by_object_verbs(verb):
    with pytest.raises(InvalidURL, match="names a bucket"):
        verb("s3://bucket/")
    with pytest.raises(UnknownScheme, match="s3://"):
        verb("s4://bucket/key")


def test_a_prefix_is_a_string():
    for name in ("train/1", "train2/1", "other"):
        _write(f"memory://prefixes/{name}", b"", None)
    assert [meta.key for meta in ps.list("memory://prefixes/train")] == ["train/1", "train2/1"]


def test_listing_keeps_every_field_of_an_entry(monkeypatch):
    """Of fields to come, too: those that are known are given values unlike their defaults."""
    values = [each.name if each.type == "str" else [each.name] for each in dataclasses.fields(ObjectMeta)]
    entry = ObjectMeta(*values)
    monkeypatch.setattr(Source, "pages", lambda *_: iter([Page((entry,))]))
    assert [*ps.list("memory://fields/")] == [dataclasses.replace(entry, url="memory://fields/key")]


@pytest.mark.parametrize("pattern", ["*/x", "a?c", "x[01]"])
def test_list_with_unmatched_pattern_warns_about_glob(pattern):
    with pytest.warns(UserWarning, match=r"ps\.glob") as caught:
        assert [*ps.list(f"memory://patterns/{pattern}")] == []
    assert caught[0].filename == __file__
    _write(f"memory://literal/{pattern}", b"", None)
    assert [meta.key for meta in ps.list(f"memory://literal/{pattern}")] == [pattern]
    assert [*ps.list("memory://patterns/none")] == []


@pytest.mark.parametrize("url", ["s3://b", "gs://B/x", "az://-/x"])
def test_invalid_bucket_name_error_shows_no_partial_url(url):
    with pytest.raises(InvalidURL, match=r"cannot be a (bucket|container)") as caught:
        ps.stat(url)
    assert "[" not in str(caught.value)


def test_listing_asks_for_a_page_when_it_is_needed():
    pages = [listing([("a", 1)], token="t"), listing([("b", 1)])]
    with Scripted(lambda received, send: send(reply(200, pages[received.number - 1])) or True) as server:
        found = ps.list("s3://bucket/", store=ps.S3Options(endpoint=server.url, anonymous=True))
        assert server.received == []
        assert next(found).key == "a"
        assert len(server.received) == 1
        assert [meta.key for meta in found] == ["b"]
        assert "continuation-token=t" in server.received[1].path


def test_options_reach_every_verb():
    with Scripted(lambda _received, send: send(reply(200, content_length="0", etag='"e"')) or True) as server:
        store = ps.S3Options(endpoint=server.url, anonymous=True)
        ps.stat("s3://bucket/key", store=store)
        ps.delete("s3://bucket/key", store=store)
        assert [received.method for received in server.received] == ["HEAD", "DELETE"]
        assert not any("authorization" in received.headers for received in server.received)
