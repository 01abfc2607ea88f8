"""``StorageClient``: reading, writing, copying, deleting, addresses, other processes."""

from __future__ import annotations

import pickle
import urllib.request
from multiprocessing import get_context

import pytest

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.types import Range
from penstock.errors import InvalidURL, NotFound, Unsupported, Unusable


@pytest.fixture
def client(tree):
    return msc.resolve_storage_client(tree)[0]


@pytest.fixture
def at(tree):
    """Return what makes the path of a name."""
    path = msc.resolve_storage_client(tree)[1]
    return lambda name: f"{path}/{name}"


def test_an_object_is_read_whole_and_in_part(client, at):
    assert client.read(at("a.txt")) == b"a.txt"
    assert client.read(at("//a.txt")) == b"a.txt"
    parts = [client.read(at("a.txt"), Range(*each)) for each in ((1, 3), (3, 30), (30, 3))]
    assert parts == [b".tx", b"xt", b""]
    with pytest.raises(NotFound):
        client.read(at("none"))


def test_an_object_is_opened_in_every_mode(client, at):
    with client.open(at("w"), "w") as file:
        file.write("one\n")
    with client.open(at("w"), "a") as file:
        file.write("zwei\r\n")
    with client.open(at("w"), "ab") as file:
        file.write("drei ü\n".encode())
    with client.open(at("w"), "r") as file:
        assert list(file) == ["one\n", "zwei\n", "drei ü\n"]
    with client.open(at("w")) as file:
        assert file.read() == "one\nzwei\r\ndrei ü\n".encode()
    with client.open(at("new"), "ab") as file:
        file.write(b"first")
    assert client.read(at("new")) == b"first"


def test_a_write_that_fails_leaves_the_old_object(client, at):
    with pytest.raises(ValueError, match="mine"), client.open(at("a.txt"), "ab") as file:
        file.write(b"half")
        raise ValueError("mine")
    assert client.read(at("a.txt")) == b"a.txt"


def test_objects_are_copied_and_deleted(client, at):
    client.copy(at("a.txt"), at("copy"))
    assert client.read(at("copy")) == b"a.txt"
    client.delete(at("copy"))
    for name in ("copy", "none"):
        with pytest.raises(NotFound):
            client.delete(at(name))
    with pytest.raises(NotFound):
        client.copy(at("none"), at("x"))


def test_directory_is_deleted_only_with_recursive_true(client, at):
    with pytest.raises(InvalidURL, match="recursive=True"):
        client.delete(at("d"))
    client.delete(at("d"), recursive=True)
    assert [each.key for each in client.list(at(""))] == [at("a.txt"), at("z.bin")]
    client.delete_many([at("a.txt"), at("none")])
    assert not client.is_file(at("a.txt"))


def test_files_of_this_machine_are_those_of_their_profile(client, at, config):
    expected = str(config.parent / "files" / at("a.txt")) if client.profile == "disk" else None
    assert client.get_posix_path(at("a.txt")) == expected
    assert not client.is_default_profile()
    assert client.replicas == []


def test_an_address_is_signed(client, at):
    if client.profile == "disk":
        with pytest.raises(Unsupported):
            client.generate_presigned_url(at("a.txt"))
        return
    address = client.generate_presigned_url(at("a.txt"), signer_options={"expires_in": 60})
    with urllib.request.urlopen(address) as answer:  # noqa: S310  it is moto's
        assert answer.read() == b"a.txt"
    with pytest.raises(Unsupported, match="this signer"):
        client.generate_presigned_url(at("a.txt"), signer_type=msc.SignerType.CLOUDFRONT)


def test_a_client_travels_to_processes(client, at):
    assert pickle.loads(pickle.dumps(client)).read(at("a.txt")) == b"a.txt"
    with get_context("fork").Pool(2) as pool:  # after this process has read
        assert pool.map(client.read, [at("a.txt"), at("z.bin")]) == [b"a.txt", b"z.bin"]


def test_unsupported_client_methods_and_arguments_raise_errors(client, at):
    with pytest.raises(Unsupported, match="sync_replicas is not a part"):
        client.sync_replicas("")
    with pytest.raises(Unsupported, match="make_symlink is not a part"):
        client.make_symlink(at("a"), at("b"))
    with pytest.raises(Unsupported, match=r"penstock\.events"):
        client.upload_files([], [], transfer_callback=print)
    with pytest.raises(Unusable, match="made of a StorageClientConfig"):
        msc.StorageClient("disk")
    client.commit_metadata()
