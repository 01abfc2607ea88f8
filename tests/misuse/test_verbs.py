"""What hurried users write with verbs, and the word that tells them what to do instead."""

import os
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import ConfigError, InvalidURL, NotFound, UnknownScheme, Unsupported, Unusable

CONSOLE = "https://eu-west-1.console.aws.amazon.com"
MISUSES = [
    # what is written, the error, a word of its text
    (lambda m: ps.open(f"{m}a", "ab"), ConfigError, "not appended to"),
    (lambda m: ps.open(f"{m}a", "r+b"), ConfigError, "not changed in place"),
    (lambda m: ps.open(f"{m}a", "read"), ConfigError, "not appended to"),
    (lambda m: ps.open(f"{m}a", "rb", encoding="utf-8"), ConfigError, "bytes have no encoding="),
    (lambda m: ps.open(f"{m}a", "w", encoding="utf9"), ConfigError, "unknown encoding"),
    (lambda m: ps.open("rb", f"{m}a"), ConfigError, "the URL comes first"),
    (lambda m: ps.load([f"{m}a"]), InvalidURL, "got a list; from_objects of a dataset takes"),
    (lambda _: ps.open(None), InvalidURL, "got None; is a variable of the environment unset?"),
    (lambda _: ps.open(b"s3://bucket/a"), InvalidURL, "got a bytes; write str(url, 'utf-8')"),
    (lambda _: ps.open(7), InvalidURL, "got an int"),
    (lambda m: ps.MapDataset.from_prefix(m, label="folder"), TypeError, "did you mean 'labels'?"),
    (lambda m: ps.open(f"{m}a", "utf-8"), ConfigError, "one of 'r', 'w' or 'x'"),
    (lambda _: ps.open(Path("s3://bucket/a")), InvalidURL, "pathlib drops a slash"),
    (lambda _: ps.delete(None), InvalidURL, "delete takes a URL, or several, got None"),
    (lambda _: ps.pack("a/", "b/", format=["tar"]), Unusable, "format must be 'tar'"),
    (lambda _: ps.open("s3:/bucket/a"), InvalidURL, "'://'"),
    (lambda _: ps.open("s3//bucket/a"), NotFound, "s3//bucket/a"),
    (lambda _: ps.open("S3://bucket/a"), UnknownScheme, "did you mean s3://"),
    (lambda _: ps.open(" s3://bucket/a"), InvalidURL, "no scheme"),
    (lambda _: ps.open("https://bucket.s3.eu-west-1.amazonaws.com/a", "wb"), Unsupported, "write s3://bucket/a"),
    (lambda _: ps.delete("https://s3.amazonaws.com/bucket/a?X-Amz-Signature=1"), Unsupported, "write s3://bucket/a"),
    (lambda _: ps.open("http://127.0.0.1:9000/bucket/a", "wb"), Unsupported, "read only"),
    (lambda _: ps.list("https://host/a/?X-Amz-Signature=1").__next__(), Unsupported, "from_manifest"),
    (lambda _: ps.open("https://host/a#part"), InvalidURL, "%23"),
    (lambda _: ps.open(f"{CONSOLE}/s3/buckets/bkt?region=x&prefix=train%2F"), InvalidURL, "write s3://bkt/train/"),
    (lambda _: ps.list(f"{CONSOLE}/s3/object/bkt?prefix=a/b").__next__(), InvalidURL, "write s3://bkt/a/b"),
    (lambda _: ps.open(f"{CONSOLE}/s3/home"), InvalidURL, "such as s3://bucket/prefix/"),
    (lambda _: ps.open("arn:aws:s3:::bkt/a b"), InvalidURL, "an ARN is not a URL; write s3://bkt/a b"),
    (lambda _: ps.open("arn:aws:s3:eu-west-1:1:accesspoint/ap/a"), InvalidURL, "the alias of the access point"),
    (lambda _: ps.open("s3://arn:aws:s3:eu-west-1:1:accesspoint/ap/a"), InvalidURL, "an ARN cannot be a bucket"),
    (lambda _: ps.open("minio://bkt/a"), UnknownScheme, "write s3://bkt/a and pass S3Options(endpoint=…)"),
    (lambda _: ps.observe.JsonLine, AttributeError, "did you mean 'JsonLines'?"),
    (lambda _: ps.open("https://console.cloud.google.com/storage/browser/b/c"), InvalidURL, "write gs://b/c"),
    (lambda m: ps.load_safetensors(f"{m}a", names=5), Unusable, "names must be names of tensors, got an int"),
    (lambda m: ps.iter_safetensors(f"{m}a", names=5), Unusable, "names must be names of tensors, got an int"),
    (lambda m: ps.iter_safetensors(f"{m}a", names=[b"a"]), Unusable, "got a bytes among them"),
    (lambda _: ps.open("https://me:secret@host/a"), InvalidURL, "HTTPOptions"),
    (lambda _: ps.open("https://host"), InvalidURL, "names a bucket"),
    (lambda _: ps.open("http://host/a", store=ps.HTTPOptions(token="secret")), ConfigError, "TLS only"),
    (lambda _: ps.list("https://bucket.s3.amazonaws.com/a/").__next__(), Unsupported, "write s3://bucket/a/"),
    (lambda _: ps.open("fsspec+penstock://box/a"), InvalidURL, "fsspec would call Penstock"),
    (lambda _: ps.open("fsspec+memroy://box/a"), UnknownScheme, "memroy"),
    (lambda _: ps.open("fsspec+ftp://me:secret@host/a"), InvalidURL, "storage_options"),
    (lambda _: ps.open("fsspec+zip://a::s3://bucket/b"), InvalidURL, "chains"),
    (lambda _: ps.open("s3://127.0.0.1:9000/bucket/a"), InvalidURL, "endpoint="),
    (lambda _: ps.open("s3://key:secret@bucket/a"), InvalidURL, "credentials and ports"),
    (lambda _: ps.open("bucket/a"), NotFound, f"{os.sep}bucket/a"),
    (lambda _: ps.open("~/a"), InvalidURL, "expanduser"),
    (lambda _: ps.open("C:\\data\\a"), InvalidURL, "Windows"),
    (lambda _: ps.open("file://data/a"), InvalidURL, "three slashes"),
    (lambda _: ps.open(""), InvalidURL, "empty"),
    (lambda _: ps.open("."), Unusable, "'/'"),
    (lambda _: ps.open("s3://bucket"), InvalidURL, "names a bucket"),
    (lambda _: ps.open("s3://my bucket/a"), InvalidURL, "cannot be a bucket"),
    (lambda _: ps.delete("data/"), InvalidURL, "ps.delete takes ps.list"),
    (lambda _: ps.Lanes, AttributeError, "write ps.order.Lanes"),
    (lambda _: ps.speling, AttributeError, "has no attribute 'speling'"),
    (lambda _: ps.Dataloader, AttributeError, "did you mean ps.DataLoader?"),
    (lambda _: ps.MapDatset, AttributeError, "did you mean ps.MapDataset?"),
    (lambda _: ps.S3Option, AttributeError, "did you mean ps.S3Options?"),
    (lambda _: ps.from_prefix, AttributeError, "write ps.MapDataset.from_prefix"),
    (lambda _: ps.read, AttributeError, "write ps.open(url).read()"),
    (lambda _: ps.exists, AttributeError, "write ps.stat"),
    (lambda _: ps.StreamingDataset, AttributeError, "write ps.MapDataset"),
    (lambda _: ps.save_safetensors([1], "a.safetensors"), Unusable, "a mapping of names to tensors, got a list"),
    (lambda _: ps.save_safetensors("a.safetensors", {}), Unusable, "write save_safetensors(tensors, url)"),
    (lambda _: ps.open("s3://bucket/a", store={"region": "x"}), ConfigError, "got a dict; write S3Options(…)"),
    (lambda _: ps.open("s3://bucket/a", store=ps.S3Options), ConfigError, "the class S3Options; write S3Options(…)"),
    (lambda _: ps.CacheOptions("cache"), ConfigError, "write CacheOptions(path=…)"),
    (lambda _: ps.presign("a"), Unsupported, "a local path cannot sign addresses"),
    (lambda _: ps.open(b"s3://bucket/a"), InvalidURL, "bytes"),
    (lambda m: ps.stat(f"{m}folder"), NotFound, "no such"),
    (lambda m: ps.copy(f"{m}missing", f"{m}b"), NotFound, "missing"),
    (lambda m: ps.copy("a-local-file", f"{m}a"), NotFound, "a-local-file"),
    (lambda m: ps.copy(f"{m}a", f"{m}a"), InvalidURL, "onto itself"),
    (lambda m: ps.copy(f"{m}a", f"{m}folder/"), InvalidURL, "the destination must be an object"),
    (lambda m: ps.copy(f"{m}a", "folder/"), InvalidURL, "the destination must be an object"),
    (lambda m: ps.delete(f"{m}folder/*"), NotFound, "prefixes and globs are not deleted"),
    (lambda m: ps.delete(f"{m}folder/"), NotFound, "prefixes and globs are not deleted"),
    (lambda m: ps.delete([f"{m}a", f"{m}folder/*"]), NotFound, "prefixes and globs are not deleted"),
    (lambda m: ps.delete([f"{m}a", m]), InvalidURL, "names a bucket"),
    (lambda m: ps.delete(ps.list(m)), InvalidURL, "ObjectMeta"),
    (lambda _: ps.delete(""), InvalidURL, "empty"),
    (lambda _: ps.delete("file:///"), InvalidURL, "names a bucket"),
    (lambda _: ps.delete("/"), InvalidURL, "names a bucket"),
    (lambda _: ps.delete("."), InvalidURL, "'/'"),
    (lambda _: ps.delete(".."), Unusable, "directory"),
    (lambda _: ps.delete("here"), Unusable, "directory"),
    (lambda _: ps.delete("here/"), InvalidURL, "'/'"),
    (lambda _: ps.delete("~"), InvalidURL, "expanduser"),
    (lambda _: ps.open("/dev/zero"), Unusable, "a character device"),
    (lambda _: ps.stat("fifo"), Unusable, "a FIFO"),
    (lambda _: ps.open("fifo", "wb").close(), Unusable, "a FIFO"),
    (lambda m: ps.copy(f"{m}a", "/dev/null"), Unusable, "a character device"),
    (lambda _: ps.MapDataset.from_objects([Path("fifo").absolute()])[0], Unusable, "a FIFO"),
    (lambda _: next(iter(ps.IterableDataset.from_objects(["/dev/zero"]))), Unusable, "a character device"),
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return the URL of a bucket that holds ``a`` and ``folder/b``; the working directory holds ``here`` and a FIFO."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "kept").touch()
    os.mkfifo(tmp_path / "fifo")
    url = f"memory://{tmp_path.name}/"
    for name in ("a", "folder/b"):
        with ps.open(url + name, "wb") as file:
            file.write(b"bytes")
    return url


@pytest.mark.parametrize(("write", "error", "word"), MISUSES, ids=[f"{i}-{m[2]}" for i, m in enumerate(MISUSES)])
def test_invalid_verb_call_raises_and_changes_no_files(place, tmp_path, write, error, word):
    with pytest.raises(error) as caught:
        write(place)
    assert word in str(caught.value)
    assert [meta.key for meta in ps.list(place)] == ["a", "folder/b"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["fifo", "here", "kept"]


def test_delete_accepts_existing_keys_with_glob_characters_or_trailing_slash(place):
    for name in ("folder/", "folder/*", "what?"):
        with ps.open(place + name, "wb"):
            pass
        ps.delete(place + name)
    assert [meta.key for meta in ps.list(place)] == ["a", "folder/b"]


def test_a_listing_of_an_object_is_the_object(place):
    assert [meta.key for meta in ps.list(f"{place}a")] == ["a"]
