"""``StorageClient``: reading, writing, copying, deleting, addresses, other processes."""

from __future__ import annotations

import pickle
import urllib.request
from multiprocessing import get_context
from uuid import uuid4

import pytest

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.types import PatternType, Range
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
    with pytest.raises(Unusable, match="must be a StorageClientConfig"):
        msc.StorageClient("disk")
    client.commit_metadata()


INCLUDE, EXCLUDE = PatternType.INCLUDE, PatternType.EXCLUDE
ALL = ["a.txt", "d/b.txt", "d/e/c.txt", "z.bin"]


def names(tree, found):
    return [each.removeprefix(tree).removeprefix("/") for each in found]


@pytest.mark.parametrize(
    ("below", "expected"),
    [("", ALL), ("/", ALL), ("/d", ALL[1:3]), ("/d/", ALL[1:3]), ("/a.txt", ["a.txt"]), ("/none", []), ("/a", [])],
)
def test_a_directory_is_listed_with_all_below_and_an_object_as_itself(tree, below, expected):
    assert names(tree, (each.key for each in msc.list(tree + below))) == expected
    assert names(tree, (each.key for each in msc.list_recursive(tree + below))) == expected


def test_list_with_include_directories_returns_a_single_level(tree):
    found = list(msc.list(f"{tree}/d", include_directories=True))
    assert [(each.type, each.content_length) for each in found] == [("file", 7), ("directory", 0)]
    assert names(tree, (each.key for each in found)) == ["d/b.txt", "d/e"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([(INCLUDE, "*.txt")], ALL[:3]),
        ([(EXCLUDE, "*.txt")], ALL[3:]),
        ([(INCLUDE, "*.txt"), (EXCLUDE, "*/d/e/*")], ["a.txt", "d/b.txt", "z.bin"]),
        ([(EXCLUDE, "*"), (INCLUDE, "*.bin")], ALL[3:]),
        ([(INCLUDE, "a.txt")], []),
        ([], ALL),
    ],
)
def test_patterns_choose_by_the_whole_key_and_the_last_that_matches_counts(tree, patterns, expected):
    assert names(tree, (each.key for each in msc.list(tree, patterns=patterns))) == expected


def test_keys_are_chosen_between_two(tree):
    client, path = msc.resolve_storage_client(tree)
    found = client.list(path, start_after=f"{path}/a.txt", end_at=f"{path}/d/e/c.txt")
    assert [each.key for each in found] == [f"{path}/d/b.txt", f"{path}/d/e/c.txt"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a.txt", "d", "z.bin"]),
        ("**", ["a.txt", "d", "d/b.txt", "d/e", "d/e/c.txt", "z.bin"]),
        ("**/*.txt", ALL[:3]),
        ("d/*", ["d/b.txt", "d/e"]),
        ("*/e", ["d/e"]),
        ("d", ["d"]),
        ("[az].*", ["a.txt", "z.bin"]),
        ("a.txt", ["a.txt"]),
        ("none*", []),
        ("none", []),
    ],
)
def test_patterns_match_objects_and_directories(tree, pattern, expected):
    assert names(tree, msc.glob(f"{tree}/{pattern}")) == expected


@pytest.fixture
def hidden(tree):
    """Return the URL of a directory with hidden names, too."""
    for name in (".h", ".git/x.txt", "d/.b.txt", "d/.e/c.txt"):
        msc.write(f"{tree}/{name}", b"h")
    return tree


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a.txt", "d", "z.bin"]),
        ("**", ["a.txt", "d", "d/b.txt", "d/e", "d/e/c.txt", "z.bin"]),
        ("**/*.txt", ALL[:3]),
        ("?h", []),
        ("[.]h", []),
        ("[!a]h", []),
        (".*", [".git", ".h"]),
        (".h", [".h"]),
        (".git/*", [".git/x.txt"]),
        ("*/.*", ["d/.b.txt", "d/.e"]),
        ("d/.*/c.txt", ["d/.e/c.txt"]),
        ("**/.*.txt", ["d/.b.txt"]),
        ("**/e/**", ["d/e/c.txt"]),
        ("a**", ["a.txt"]),
    ],
)
def test_wildcards_match_no_leading_dot(hidden, pattern, expected):
    assert names(hidden, msc.glob(f"{hidden}/{pattern}")) == expected


def test_hidden_names_are_listed(hidden):
    assert names(hidden, (each.key for each in msc.list(hidden)))[:3] == [".git/x.txt", ".h", "a.txt"]


def test_directory_marker_is_listed_as_a_directory_and_never_as_a_file(server, config, monkeypatch):
    monkeypatch.setenv("MSC_CONFIG", str(config))
    base, client = f"markers-{uuid4().hex}", server.client()
    for name in ("empty/", "full/", "full/deep/", "full/f"):
        client.put_object(Bucket="bkt", Key=f"base/{base}/{name}", Body=b"")
    tree = f"msc://bucket/{base}"
    for name in ("empty", "empty/", "full", "full/deep"):
        assert (msc.info(f"{tree}/{name}").type, msc.is_file(f"{tree}/{name}")) == ("directory", False)
        assert msc.Path(f"{tree}/{name}").is_dir()
        assert msc.Path(f"{tree}/{name}").exists()
    assert names(tree, (each.key for each in msc.list(tree))) == ["full/f"]
    found = msc.list(tree, include_directories=True)
    assert [(each.key.rpartition("/")[2], each.type) for each in found] == [
        ("empty", "directory"),
        ("full", "directory"),
    ]
    found = msc.list(f"{tree}/full", include_directories=True)
    assert [(each.key.rpartition("/")[2], each.type) for each in found] == [("deep", "directory"), ("f", "file")]
    assert (msc.is_empty(f"{tree}/empty/"), names(tree, msc.glob(f"{tree}/**"))) == (True, ["full", "full/f"])
    msc.delete(f"{tree}/full", recursive=True)
    msc.delete(f"{tree}/empty", recursive=True)
    assert client.list_objects_v2(Bucket="bkt", Prefix=f"base/{base}/")["KeyCount"] == 0


def test_objects_and_directories_are_described(tree):
    found = msc.info(f"{tree}/a.txt")
    assert (found.type, found.content_length, found.last_modified.tzinfo is not None) == ("file", 5, True)
    for name in ("d", "d/"):
        found = msc.info(f"{tree}/{name}")
        assert (found.type, found.key.endswith("/d/")) == ("directory", True)
    for name in ("none", "none/", "a.txt/"):
        with pytest.raises(NotFound):
            msc.info(f"{tree}/{name}")
    client, path = msc.resolve_storage_client(f"{tree}/d")
    with pytest.raises(NotFound):
        client.info(path, strict=False)


def test_files_and_emptiness(tree):
    assert [msc.is_file(f"{tree}/{name}") for name in ("a.txt", "d", "d/", "none")] == [True, False, False, False]
    assert [msc.is_empty(f"{tree}/{name}") for name in ("a.txt", "d", "d/", "none", "")] == [
        False,
        False,
        False,
        True,
        False,
    ]


def test_metadata_is_asked_for(base):
    kept = None if "disk" in base else {"by": "us"}  # files have none
    msc.write(f"{base}/x", b"1", attributes={"by": "us"})
    assert [each.metadata for each in msc.list(base)] == [None]
    assert [each.metadata for each in msc.list(base, show_attributes=True)] == [kept]


def test_attribute_filter_and_skipped_symlinks_raise_unsupported(tree):
    with pytest.raises(Unsupported, match="attribute_filter_expression is not a part"):
        next(msc.list(tree, attribute_filter_expression="a = 1"))
    with pytest.raises(Unsupported, match="links of local files are followed"):
        next(msc.list(tree, symlink_handling=msc.SymlinkHandling.SKIP))
    with pytest.raises(Unsupported, match="attribute_filter_expression is not a part"):
        msc.glob(f"{tree}/*", "a = 1")
