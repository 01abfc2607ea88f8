"""`fsspec+X://` is any of fsspec's filesystems, in every process, and never Penstock again."""

from __future__ import annotations

import os
import uuid

import pytest

import penstock as ps
from penstock.errors import AlreadyExists, ConfigError, InvalidURL, MissingExtra, NotFound, UnknownScheme
from penstock.source import Source
from penstock.stores.fsspec.store import Fsspec
from penstock.stores.urls import parse
from tests.children import forked

HUSH = "hush-hush-hush"


@pytest.mark.parametrize(
    ("url", "bucket", "key"),
    [
        ("fsspec+memory://box/a/b", "box", "a/b"),
        ("fsspec+file:///tmp/x", "", "tmp/x"),
        ("fsspec+sftp://host:22/a", "host:22", "a"),
        ("fsspec+hf://datasets/org/name@rev/x", "datasets", "org/name@rev/x"),
    ],
)
def test_a_url_is_cut_at_its_first_slash(url, bucket, key):
    location = parse(url)
    assert (location.bucket, location.key, location.url) == (bucket, key, url)
    assert type(location.store) is Fsspec


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("fsspec+nope://x/y", UnknownScheme, "no protocol 'nope'"),
        ("fsspec+penstock://x/y", InvalidURL, "fsspec would call Penstock"),
        ("fsspec+sftp://host/y", MissingExtra, "paramiko"),
        ("fsspec+zip://a::s3://x/y", InvalidURL, "chains"),
        ("fsspec+zip://a/b::s3://x/y", InvalidURL, "chains"),
        ("fsspec+ftp://me:hush-hush-hush@host/x", InvalidURL, "storage_options"),
        ("fsspec://x/y", UnknownScheme, "fsspec"),
        ("fsspec+://x/y", UnknownScheme, "fsspec"),
    ],
)
def test_unusable_fsspec_url_raises_with_reason_and_without_secrets(url, kind, words):
    with pytest.raises(kind, match=words) as caught:
        ps.stat(url)
    assert HUSH not in f"{caught.value}{vars(caught.value)}"


def test_every_verb_works_and_secrets_stay_hidden(tmp_path):
    root = f"fsspec+file://{tmp_path}/"
    store = ps.FsspecOptions(storage_options={"token": HUSH}, write=ps.WriteOptions(part_bytes=1000, buffer_bytes=2000))
    data = bytes(range(256)) * 20
    with ps.open(f"{root}a b/c*.bin", "wb", store=store) as file:
        file.write(data)
    assert [(each.key.rpartition("/")[2], each.size) for each in ps.list(root, store=store)] == [("c*.bin", len(data))]
    with ps.open(f"{root}a b/c*.bin", store=store) as file:
        file.seek(1000)
        assert file.read(10) == data[1000:1010]
    ps.copy(f"{root}a b/c*.bin", f"{root}d", store=store)
    ps.copy(f"{root}d", tmp_path / "e", store=store)
    assert (tmp_path / "e").read_bytes() == data
    with pytest.raises(AlreadyExists), ps.open(f"{root}d", "xb", store=store) as file:
        file.write(b"x")
    ps.delete(f"{root}d", store=store)
    with pytest.raises(NotFound) as caught:
        ps.open(f"{root}{HUSH}/d", store=store)
    assert HUSH not in str(caught.value)


@pytest.fixture
def two_folders(tmp_path):
    """Two filesystems of one URL: a file of the same size and time in each."""
    options = []
    for name, data in (("a", b"of a"), ("b", b"of b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(data)
        os.utime(tmp_path / name / "x", (1000, 1000))
        where = {"path": f"{tmp_path}/{name}", "target_protocol": "file"}
        cache = ps.CacheOptions(path=f"{tmp_path}/cache")
        options.append(ps.FsspecOptions(storage_options=where, cache=cache))
    return options


def test_cache_tells_filesystems_of_one_url_apart(two_folders):
    for _ in range(2):
        read = [ps.open("fsspec+dir:///x", store=each).read() for each in two_folders]
        assert read == [b"of a", b"of b"]


def test_address_depends_on_where_the_files_are_and_not_on_secrets():
    def address(**options):
        return Source(parse("fsspec+sftp:///"), ps.FsspecOptions(storage_options=options)).address("x")

    here = address(host="a", username="u", client_kwargs={"endpoint_url": "c", "password": HUSH})
    assert here == address(client_kwargs={"endpoint_url": "c", "password": "new"}, username="u", host="a", token=HUSH)
    assert here != address(host="b", username="u", client_kwargs={"endpoint_url": "c"})
    assert here != address(host="a", username="u", client_kwargs={"endpoint_url": "d"})
    assert address() == address(secret=HUSH) == Source(parse("fsspec+sftp:///")).address("x")


def test_storage_options_of_wrong_type_raise_config_error():
    with pytest.raises(ConfigError, match="storage_options"):
        ps.FsspecOptions(storage_options="token")


def _data(sample):
    return bytes(sample.data)


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_workers_open_the_filesystem_anew(how, served):
    """After the parent has used its event loop, whose thread no child has."""
    pytest.importorskip("aiohttp")
    for number in range(8):
        (served.folder / f"{number}.bin").write_bytes(b"%d" % number)
    root = f"fsspec+{served.roots['index']}"
    dataset = ps.MapDataset.from_prefix(root, transform=_data)
    assert dataset[0] == b"0"
    loader = ps.DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context=how, collate_fn=list)
    assert [each for batch in loader for each in batch] == [b"%d" % number for number in range(8)]


def test_a_forked_child_reads_and_writes(tmp_path):
    root = f"fsspec+file://{tmp_path}/"
    with ps.open(f"{root}x", "wb") as file:
        file.write(b"parent's")

    def work():
        assert ps.open(f"{root}x").read() == b"parent's"
        with ps.open(f"{root}y", "wb") as file:
            file.write(b"child's")

    with forked(work) as status:
        assert status() == 0
    assert ps.open(f"{root}y").read() == b"child's"


def test_a_copy_into_memory_of_another_library_is_seen_there():
    import fsspec

    name = uuid.uuid4().hex
    with ps.open(f"fsspec+memory://{name}/x", "wb") as file:
        file.write(b"shared")
    assert fsspec.filesystem("memory").cat(f"/{name}/x") == b"shared"


@pytest.mark.parametrize("url", ["ftp://user:secret-of-mine@host/a", "SFTP://host/a", "dropbox://x/y"])
def test_unknown_scheme_error_suggests_fsspec_without_url_secrets(url):
    with pytest.raises(UnknownScheme) as refused:
        parse(url)
    assert f"write fsspec+{url.partition(':')[0].lower()}://…" in str(refused.value)
    assert "secret-of-mine" not in str(refused.value)
