"""URLs of web servers: their hosts, keys and credentials, and what a store's URL was meant to be."""

from __future__ import annotations

import base64
import os

import pytest

import penstock as ps
from penstock.errors import ConfigError, Forbidden, InvalidURL, NotFound, Unauthenticated, Unsupported
from penstock.source import open_source
from penstock.stores.urls import Location, parse
from penstock.stores.web.store import Web, digest, login
from penstock.testing.servers import Scripted, reply
from penstock.values import Span
from tests.servers.nginx import PASSWORD, USER


@pytest.mark.parametrize(
    "url",
    [
        "https://host/a/b.txt",
        "http://host:8080/a%20b/ü.txt",
        "https://[::1]:8443/x",
        "https://my_host.example./x",
        "https://192.0.2.1/x?sig=a/b?c",
        "https://host/",
    ],
)
def test_web_url_is_unchanged_by_parsing(url):
    location = parse(url)
    assert location.url == url
    assert parse(location.url) == location
    assert type(location.store) is Web


def test_a_query_belongs_to_the_key():
    assert parse("https://host/a?b/c") == Location("https", "host", "a?b/c")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https:///x", "no host"),
        ("https://", "no host"),
        ("https://me:hushhush@host/x", "credentials do not belong"),
        ("https://me@host/x", "credentials do not belong"),
        ("https://host:99999/x", "cannot be a host"),
        ("https://host:0/x", "cannot be a host"),
        ("https://host?sig=hushhush", "cannot be a host"),
        ("https://ho st/x", "cannot be a host"),
        ("https://ü.example/x", "xn--"),
        ("https://host/page#part", "%23"),
        ("https://host/page?sig=hushhush#part", "%23"),
        ("https://host/" + "x" * 20_000, "bytes of UTF-8"),
    ],
)
def test_invalid_web_url_is_refused_without_quoting_secrets(url, words):
    with pytest.raises(InvalidURL, match=words) as caught:
        parse(url)
    assert "hushhush" not in f"{caught.value}{vars(caught.value)}"


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"token": "hush-hush"}, "authorization", "Bearer hush-hush"),
        (
            {"username": "mé", "password": "p:w"},
            "authorization",
            f"Basic {base64.b64encode('mé:p:w'.encode()).decode()}",
        ),
        ({"headers": {"X-Api-Key": "hush-hush"}}, "x-api-key", "hush-hush"),
        ({"headers": {"Accept-Language": "de"}}, "accept-language", "de"),
        ({"netrc": True}, "authorization", f"Basic {base64.b64encode(b'me:hush-hush').decode()}"),
    ],
)
def test_credentials_are_sent_to_the_host(options, name, value, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hush-hush")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    def answer(_received, send):
        send(reply(200, b"content", content_length="7"))
        return False

    with Scripted(answer) as server:
        assert open_source(server.url + "/k", ps.HTTPOptions(**options))[0].read(Span("k")) == b"content"
        assert server.received[0].headers[name] == value


@pytest.mark.parametrize(
    "options",
    [
        {"token": "hush-hush"},
        {"username": "me", "password": "hush-hush"},
        {"netrc": True},
        {"headers": {"cookie": "hush-hush"}},
        {"headers": {"X-Auth-Token": "hush-hush"}},
    ],
)
def test_credentials_are_not_sent_without_tls(options, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("default login me password hush-hush")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ConfigError, match="TLS only") as caught:
        ps.open("http://192.0.2.1/k", store=ps.HTTPOptions(**options))
    assert "hush-hush" not in str(caught.value)


def test_another_netrc_file_is_another_identity(tmp_path, monkeypatch):
    found = []
    for word in ("one", "two"):
        (tmp_path / word).write_text(f"default login me password {word}")
        monkeypatch.setenv("NETRC", str(tmp_path / word))
        found.append(Web().resolve(ps.HTTPOptions(netrc=True), os.environ)[1])
    assert found[0] != found[1]
    assert Web().resolve(ps.HTTPOptions(), os.environ)[1] is None


def test_a_copy_into_a_bucket_passes_the_bucket_s_options():
    assert isinstance(Web().take(ps.S3Options(region="r")), ps.HTTPOptions)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("https://bucket.s3.amazonaws.com/a%20b?X-Amz-Signature=hushhush", "write s3://bucket/a b"),
        ("https://s3.us-west-2.amazonaws.com/bucket/key", "write s3://bucket/key"),
    ],
)
def test_error_for_object_store_https_url_suggests_store_url(url, meant):
    """Its host answers elsewhere here: a proxy stands for it."""

    def answer(_received, send):
        send(reply(403))
        return False

    with Scripted(answer) as proxy:
        url = url.replace("https:", "http:")
        store = ps.HTTPOptions(transport=ps.TransportOptions(proxy=proxy.url))
        with pytest.raises(Forbidden) as caught:
            ps.open(url, store=store)
        assert meant in str(caught.value)
        with pytest.raises(Unsupported, match=meant):
            ps.open(url, "wb", store=store)
    assert "hushhush" not in f"{caught.value}{vars(caught.value)}"


def test_errors_show_no_query_wherever_they_come_from():
    for error in (
        NotFound("nothing at https://h/k?sig=hushhush here", url="https://h/k?sig=hushhush"),
        NotFound("nothing", url="http://h/a b?hushhush"),
    ):
        assert "hushhush" not in str(error)
        assert "https://h/k?…" in str(error) or "http://h/a b?…" in str(error)
    assert str(NotFound("nothing", url="s3://b/que?ry")).endswith("[s3://b/que?ry]")


def _data(sample):
    return sample.key, bytes(sample.data)


@pytest.mark.parametrize("form", ["index", "json", "rounded"])
def test_a_dataset_of_a_web_server_is_read_in_every_process(form, served):
    """Listed with sizes and without, in threads, forked and spawned workers; by a manifest too."""
    (served.folder / "train" / "a b").mkdir(parents=True)
    contents = {f"train/a b/{number}.bin": b"%d" % number * 2000 * number for number in range(8)}
    for key, data in contents.items():
        (served.folder / key).write_bytes(data)
    root = served.roots[form]
    dataset = ps.MapDataset.from_prefix(f"{root}train/", transform=_data)
    assert dict(dataset[at] for at in range(8)) == contents
    for how in ("fork", "spawn") if form == "index" else ("fork",):
        loader = ps.DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context=how, collate_fn=list)
        assert dict(each for batch in loader for each in batch) == contents
    (served.folder / "train.txt").write_text(
        "\n".join(key.removeprefix("train/").replace(" ", "%20") for key in contents)
    )
    named = ps.MapDataset.from_manifest(f"{root}train.txt", base=f"{root}train/")
    assert [bytes(named[at].data) for at in range(8)] == list(contents.values())


def test_a_web_server_without_index_pages_is_read_by_name(served):
    (served.folder / "x.bin").write_bytes(b"content")
    root = served.roots["bare"]
    with pytest.raises(Unsupported, match="from_manifest"):
        list(ps.list(root))
    assert bytes(ps.MapDataset.from_objects([f"{root}x.bin"])[0].data) == b"content"


def test_password_opens_protected_server_and_custom_index_page_raises_unsupported(served):
    (served.folder / "x.bin").write_bytes(b"content")
    root, store = served.roots["closed"], ps.HTTPOptions(username=USER, password=PASSWORD)
    with pytest.raises(Unauthenticated, match="HTTPOptions"):
        ps.open(f"{root}x.bin")
    assert ps.open(f"{root}x.bin", store=store).read() == b"content"
    assert [each.size for each in ps.list(root, store=store)] == [7]
    (served.folder / "index.html").write_text("<title>Welcome</title><a href='x.bin'>x.bin</a></html>")
    with pytest.raises(Unsupported, match="is not an index"):
        list(ps.list(root, store=store))


def test_a_server_that_compresses_is_asked_not_to(served):
    (served.folder / "x.txt").write_bytes(b"text " * 10_000)
    assert ps.open(f"{served.roots['zipped']}x.txt").read() == b"text " * 10_000


@pytest.mark.parametrize("span", [Span("x", 0, 1 << 20, whole=True), Span("x", 5, 1 << 20)])
def test_read_without_a_version_never_joins_two_versions(span):
    versions = iter([b"a", b"b", b"c"] * 10)  # the file is replaced before each request

    def answer(received, send):
        start, stop = received.within(1 << 20)
        if received.method == "HEAD":
            send(b"HTTP/1.1 200 .\r\ncontent-length: 1048576\r\n\r\n")
        elif received.range is None:
            send(reply(200, next(versions) * (1 << 20)))
        else:
            named = f"bytes {start}-{stop - 1}/{1 << 20}"
            send(reply(206, next(versions) * (stop - start), content_range=named))
        return True

    with Scripted(answer) as server:
        source, _ = open_source(server.url, ps.HTTPOptions(read=ps.ReadOptions(split_bytes=256 << 10)))
        [data] = source.read_many([span])
    assert len(data) == (1 << 20) - span.start
    assert len(set(data)) == 1


@pytest.mark.parametrize("mode", ["immutable", "ttl", "revalidate"])
def test_cache_tells_answers_to_other_headers_apart(tmp_path, mode):
    def answer(received, send):
        body = received.headers["x-set"].encode()
        send(reply(200, body) if received.method == "GET" else reply(200, content_length="1"))
        return True

    cache = ps.CacheOptions(path=f"{tmp_path}/cache", mode=mode)
    with Scripted(answer) as server:
        found = [
            ps.open(f"{server.url}/x", store=ps.HTTPOptions(headers={"X-Set": name}, cache=cache)).read()
            for name in ("a", "b", "a", "b")
        ]
    assert found == [b"a", b"b", b"a", b"b"]


def test_address_of_a_file_depends_on_headers_and_user_and_not_on_secrets():
    def address(**options):
        return open_source("https://host/x", ps.HTTPOptions(**options))[0].address("x")

    assert address() == address(token="one") == address(headers={"X-Api-Key": "k"})
    assert address(headers={"X-Set": "a"}) == address(headers={"x-set": "a", "Cookie": "c"}) != address()
    assert address(headers={"X-Set": "a"}) != address(headers={"X-Set": "b"})
    assert (
        address(username="u", password="p")
        == address(username="u", password="q")
        != address(username="v", password="p")
    )


# -- The netrc file, as curl reads it; nothing of it is quoted --


FILE = "machine one.example login me password hush1\ndefault login anonymous password hush2\n"


@pytest.fixture
def environ(tmp_path):
    (tmp_path / "netrc").write_text(FILE)
    return {"NETRC": str(tmp_path / "netrc")}


def test_a_machine_is_found_or_the_default(environ):
    assert login("one.example", environ) == ("me", "hush1")
    assert login("two.example", environ) == ("anonymous", "hush2")


def test_the_home_s_file_is_read_where_none_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"\.netrc does not exist"):
        login("one.example", {})
    (tmp_path / ".netrc").write_text(FILE)
    (tmp_path / ".netrc").chmod(0o600)
    assert login("one.example", {}) == ("me", "hush1")


@pytest.mark.parametrize(
    ("text", "words"), [("machine a login b hush", "line"), ("machine a login b password hush", "neither")]
)
def test_unusable_netrc_file_raises_config_error_without_quoting_secret(tmp_path, text, words):
    (tmp_path / "netrc").write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        login("one.example", {"NETRC": str(tmp_path / "netrc")})
    assert "hush" not in str(caught.value)


def test_netrc_digest_changes_with_content_and_reveals_no_secret(tmp_path, environ):
    before = digest(environ)
    (tmp_path / "netrc").write_text(FILE.replace("hush1", "hush3"))
    assert digest(environ) != before
    assert b"hush" not in before
    assert digest({"NETRC": str(tmp_path / "none")}) == b""
