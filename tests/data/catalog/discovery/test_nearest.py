"""A listing that chose nothing says what is near, from two requests at most."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import Forbidden, NotFound
from penstock.testing.servers import Scripted, reply
from tests.data.datasets.transforms import numbered
from tests.refusals import refused

FIX = {
    "a folder misspelt": ("trian/", {}, "the nearest that exist are {root}train/"),
    "a folder below one that exists": ("train/imgs/", {}, "the nearest that exist are {root}train/images/"),
    "a folder below one that does not": ("tarin/images/", {}, "the nearest that exist are {root}train/"),
    "a capital": ("Train/", {}, "the nearest that exist are {root}train/"),
    "capitals": ("TRAIN/", {}, "the nearest that exist are {root}train/"),
    "a name like none of the folder's": ("train/images/x/", {}, "there: {root}train/images/ holds {root}train/im"),
    "a name like none below a long one": ("train/q/", {}, "there: {root}train/ holds {root}train/images/, "),
    "a folder like none in one like none": ("x/y/", {}, "there: {root} holds {root}train/, {root}val/; pass allow"),
    "a glob in the URL": ("train/images/*.jpg", {}, "write '{root}train/images/' with include='*.jpg'"),
    "a glob of folders in the URL": ("train/*/0?.jpg", {}, "write '{root}train/' with include='*/0?.jpg'"),
    "an include that leaves nothing": (
        "train/",
        {"include": "*.jpg"},
        "4 objects are there, and include=",
    ),
    "an exclude that leaves nothing": ("val/", {"exclude": "*"}, "2 objects are there, and include="),
    "an include of nothing": ("vla/", {"include": "*.jpg"}, "the nearest that exist are {root}val/"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    home = tmp_path_factory.mktemp("near") / "data"
    numbered(home / "train" / "images", 3)
    numbered(home / "train" / "labels", 1)
    numbered(home / "val", 2)
    return f"file://{home}/"


@pytest.mark.parametrize("name", FIX)
def test_not_found_error_suggests_likely_urls_or_options(root, name):
    key, options, says = FIX[name]
    with pytest.raises(NotFound) as caught:
        ps.Catalog.scan(root + key, **options)
    assert says.format(root=root) in str(caught.value)
    assert "allow_empty=True" in str(caught.value)
    assert ("nearest" in says) == ("nearest" in str(caught.value))
    assert caught.value.url == root + key


def test_folder_marker_does_not_count_as_an_object():
    with ps.open("memory://empty-folder/train/", "wb"):
        pass
    for url in ("memory://empty-folder/train/", "memory://markers/"):
        refused(NotFound, r"there: (the folder is there, and empty|.* holds no objects); pass", ps.Catalog.scan, url)


def test_missing_path_without_a_scheme_raises_with_a_url_suggestion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match=r"'bucket/train/' has no scheme.*write s3://bucket/train/"):
        ps.MapDataset.from_prefix("bucket/train/")
    with pytest.raises(NotFound) as caught:
        ps.MapDataset.from_prefix(f"{tmp_path}/none/")
    assert "no scheme" not in str(caught.value)


EMPTY = (
    b'<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Name>bucket</Name><Prefix></Prefix><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
)


@pytest.mark.parametrize("options", [{}, {"include": "*.jpg"}])
@pytest.mark.parametrize("key", ["", "train/", "train/images/", "train/images/*.jpg"])
def test_at_most_two_requests_are_made_for_it(key, options):
    with Scripted(lambda _received, send: send(reply(200, body=EMPTY)) or True) as server:
        store = ps.S3Options(endpoint=server.url, access_key="a", secret_key="b")
        error = refused(NotFound, "no objects there", ps.Catalog.scan, f"s3://bucket/{key}", store=store, **options)
        assert len(server.received) <= 3
        seen = any("prefix=t" not in each.path for each in server.received)
        assert ("s3://bucket/ holds no objects" in str(error)) == seen, "said where it was looked at"
        before = len(server.received)
        assert len(ps.Catalog.scan(f"s3://bucket/{key}", store=store, allow_empty=True, **options)) == 0
        assert len(server.received) == before + 1, "one that may be empty makes no more"


def test_an_error_of_these_requests_is_not_the_callers():
    answers = iter([reply(200, body=EMPTY)])
    with Scripted(lambda _received, send: send(next(answers, None) or reply(403)) or True) as server:
        store = ps.S3Options(endpoint=server.url, access_key="a", secret_key="b")
        refused(NotFound, "no objects there: pass allow_empty=True", ps.Catalog.scan, "s3://bucket/train/", store=store)
        with pytest.raises(Forbidden):
            ps.Catalog.scan("s3://bucket/train/", store=store)
