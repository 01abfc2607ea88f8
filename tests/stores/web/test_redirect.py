"""Redirects are followed to where they may lead, and remembered for a minute."""

import pytest

from penstock.stores.web.route import Targets, asked_from, target_of

URL = "https://hub.example/a/resolve/main/x.bin"


@pytest.mark.parametrize(
    ("url", "location", "target"),
    [
        (URL, "https://cdn.example/x?Signature=a%2Fb", "https://cdn.example/x?Signature=a%2Fb"),
        (URL, "/other/x", "https://hub.example/other/x"),
        (URL, "y.bin#part", "https://hub.example/a/resolve/main/y.bin"),
        (URL, "//cdn.example:8443/x", "https://cdn.example:8443/x"),
        ("http://hub.example/x", "https://hub.example/x", "https://hub.example/x"),
        ("http://127.0.0.1:1/x", "http://127.0.0.1:2/x", "http://127.0.0.1:2/x"),
        ("http://localhost:1/x", "http://127.0.0.1:2/x", "http://127.0.0.1:2/x"),
        ("http://10.0.0.1/x", "http://10.0.0.1:81/x", "http://10.0.0.1:81/x"),
    ],
)
def test_redirect_target_of_equal_or_better_security_is_resolved(url, location, target):
    assert target_of(url, location) == target


@pytest.mark.parametrize(
    ("url", "location"),
    [
        *((URL, "http://hub.example/x"), (URL, "http://cdn.example/x"), (URL, "ftp://cdn.example/x")),
        *((URL, "file:///etc/passwd"), (URL, "https://user:word@cdn.example/x"), (URL, "https://[")),
        *((URL, "https://cdn.example:port/x"), (URL, "https://cdn.éxample/x"), (URL, "https://cdn.example/a b")),
        *((URL, "https://cdn.example/\x01"), (URL, "javascript:x")),
        *((URL, "https://127.0.0.1/x"), (URL, "https://localhost/x"), (URL, "https://[::1]/x")),
        *((URL, "https://169.254.169.254/latest/meta-data"), (URL, "https://10.0.0.1/x"), (URL, "https://[fe80::1]/x")),
        *(
            (URL, f"https://{host}/x")
            for host in ("2130706433", "0x7f000001", "127.1", "0177.0.0.1", "0", "127.0.0.1.")
        ),
        *((URL, f"https://{host}/x") for host in ("localhost.", "[::]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]")),
        *((URL, "https://metadata.google.internal/x"), ("http://hub.example/x", "http://192.168.0.1/x")),
    ],
)
def test_a_redirect_to_something_worse_is_not_followed(url, location):
    assert target_of(url, location) == ""


@pytest.mark.parametrize(
    ("url", "address", "public"),
    [
        (URL, "8.8.8.8", True),
        (URL, "2606:4700::1111", True),
        (URL, "10.0.0.1", False),
        (URL, "", True),
        ("http://127.1/x", "", False),
    ],
)
def test_a_redirect_comes_from_a_public_server_by_its_address(url, address, public):
    assert asked_from(url, address) is public


class _Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_target_serves_once_or_for_a_minute_where_a_version_is_pinned():
    clock = _Clock()
    targets = Targets(clock)
    assert not targets
    targets.add("p", "https://cdn/x?sig=hush", 1)
    assert "hush" not in repr(targets.take("p", pinned=True))
    assert targets.take("p", pinned=True).hops == 1
    assert targets.take("p", pinned=False).url == "https://cdn/x?sig=hush"
    assert targets.take("p", pinned=False) is None
    targets.add("p", "https://cdn/x", 1)
    clock.now = 61.0
    assert targets.take("p", pinned=True) is None
    assert not targets


def test_targets_are_bounded():
    targets = Targets()
    for number in range(5000):
        targets.add(str(number), "https://cdn/x", 1)
    assert len(targets._targets) <= 1024
    targets.drop("4999")
    assert targets.take("4999", pinned=True) is None
