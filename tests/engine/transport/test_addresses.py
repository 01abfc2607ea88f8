"""Other addresses of a host come from the resolver, on a thread of its own, and never where a proxy resolves."""

import socket
import threading

import pytest

from penstock.engine.transport import late_calls as addresses
from penstock.engine.transport.late_calls import Addresses


@pytest.fixture
def resolver(monkeypatch):
    """Replace the resolver by a table; returns what it is asked."""

    table, asked = {"many": ["10.0.0.1", "10.0.0.2", "fd00::1", "10.0.0.2"], "one": ["10.0.0.1"]}, []

    def look(host, port, **_):
        asked.append((host, port))
        if host not in table:
            raise socket.gaierror(-2, "Name or service not known")
        return [(None, None, None, None, (address, port)) for address in table[host]]

    def start(function, arguments):
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        thread.join()  # what is looked up aside is there for the next question

    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", look)
    monkeypatch.setattr(addresses, "start_new_thread", start)
    return asked


def test_alternative_address_of_same_family_is_known_after_the_first_lookup(resolver):
    known = Addresses()
    assert known.other("https://many/bucket/key", "10.0.0.1") == ""
    assert known.other("https://many/bucket/other?x", "10.0.0.1") == "10.0.0.2"
    assert known.other("https://many/bucket/key", "10.0.0.2") == "10.0.0.1"
    assert known.other("https://many/bucket/key", "fd00::1") == ""
    assert resolver == [("many", 443)]


def test_hosts_with_one_address_or_none_have_no_other(resolver):
    known = Addresses()
    for url in ("http://one:9000/", "http://gone/", "http:///"):
        assert [known.other(url, "10.0.0.1") for _ in range(3)] == ["", "", ""]
    assert resolver == [("one", 9000), ("gone", 80)], "failures are not asked for again at once"


def test_names_are_looked_up_again_after_a_while(resolver, monkeypatch):
    known, now = Addresses(), [100.0]
    monkeypatch.setattr(addresses, "monotonic", lambda: now[0])
    known.other("http://many/", "")
    now[0] += 60
    assert known.other("http://many/", "10.0.0.1") == "10.0.0.2", "what is known serves meanwhile"
    assert len(resolver) == 2


def test_a_proxy_resolves_for_itself(resolver, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert Addresses().other("https://many/", "10.0.0.1") == ""
    assert resolver == []


@pytest.mark.usefixtures("resolver")
def test_the_number_of_hosts_is_bounded():
    known = Addresses()
    for number in range(100):
        known.other(f"http://host-{number}/", "")
    assert len(known._known) <= 64


@pytest.mark.usefixtures("resolver")
def test_failure_to_start_the_resolver_thread_raises_nothing(monkeypatch):
    def refuse(_function, _arguments):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(addresses, "start_new_thread", refuse)
    assert Addresses().other("http://many/", "10.0.0.1") == ""
