"""The way to a host: what is wrong with its name, its port, its certificate or a clock is said, with what to do."""

import re
import time
from dataclasses import replace
from email.utils import formatdate

import pytest

from penstock.cli.doctor import Way, network
from penstock.options import TransportOptions
from penstock.testing.servers import Scripted, reply
from tests.engine.transport.certificates import certified

PLAIN = Way(TransportOptions(connect_timeout_s=2), where="endpoint= or X_ENDPOINT, region= or X_REGION")


def outcomes(findings):
    return {each.name: each.outcome for each in findings}


def server(tls=None, ahead_s=0.0, **headers):
    def answer(_received, send):
        send(reply(403, date=formatdate(time.time() + ahead_s, usegmt=True), **headers))
        return False

    return Scripted(answer, tls)


def test_all_is_well_on_a_plain_server():
    with server() as there:
        found = list(network(there.url, PLAIN))
    assert outcomes(found) == dict.fromkeys(("name resolution", "connection", "clock"), "passed")


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("AmazonS3", r"AmazonS3$"),
        ("MinIO", r"MinIO; .* leave keys out of listings .* update it$"),
        ("x" * 99, r"x{80}$"),
    ],
)
def test_the_server_is_named_and_a_fault_of_its_releases_too(name, detail):
    with server(server=name) as there:
        *_, named = network(there.url, PLAIN)
    assert (named.name, named.outcome) == ("server", "passed")
    assert re.match(detail, named.detail)


def test_unresolvable_host_and_closed_port_fail_with_advice():
    (named,) = network("http://nothing.invalid", PLAIN)
    assert named.outcome == "failed"
    assert "nothing.invalid" in named.detail
    assert "check endpoint= or X_ENDPOINT, region= or X_REGION, and this machine's DNS" in named.detail
    with server() as there:
        gone = there.url
    *_, connected = network(gone, PLAIN)
    assert (connected.name, connected.outcome) == ("connection", "failed")
    assert "that the server runs" in connected.detail


def test_a_certificate_is_verified_by_the_file_that_is_named(tmp_path):
    ca, context = certified(tmp_path)
    with server(context) as there:
        _, _, trusted, clock = network(there.url, replace(PLAIN, ca=str(ca)))
        *_, strange = network(there.url, PLAIN)
        *_, waved = network(there.url, Way(TransportOptions(verify=False), str(ca)))
    assert trusted.outcome == "warned", "it expires tomorrow"
    assert "expires in 1 days" in trusted.detail
    assert clock.outcome == "passed"
    assert (strange.name, strange.outcome) == ("TLS", "failed")
    assert "ca_file=" in strange.detail
    assert waved.name == "clock"


def test_https_endpoint_of_a_plain_http_server_fails_with_advice():
    with server() as there:
        *_, secured = network(there.url.replace("http:", "https:"), PLAIN)
    assert (secured.name, secured.outcome) == ("TLS", "failed")
    assert secured.detail.endswith("write http:// in endpoint= or X_ENDPOINT")


def test_http_endpoint_of_a_tls_server_fails_with_advice(tmp_path):
    _, context = certified(tmp_path)
    with server(context) as there:
        *_, secured = network(there.url.replace("https:", "http:"), PLAIN)
    assert (secured.name, secured.outcome) == ("TLS", "failed")
    assert secured.detail.endswith("write https:// in endpoint= or X_ENDPOINT")


def test_certificate_host_mismatch_advises_on_the_endpoint_and_omits_ca_file(tmp_path):
    ca, context = certified(tmp_path)
    with server(context) as there:
        *_, secured = network(there.url.replace("127.0.0.1", "localhost"), replace(PLAIN, ca=str(ca)))
    assert (secured.name, secured.outcome) == ("TLS", "failed")
    assert "check endpoint= or X_ENDPOINT" in secured.detail
    assert "ca_file=" not in secured.detail


@pytest.mark.parametrize(
    ("ahead_s", "outcome", "words"),
    [(-3600, "failed", "ahead of the server, and signatures"), (120, "warned", "behind the server"), (0, "passed", "")],
)
def test_clock_offset_is_failed_warned_or_passed_by_its_size(ahead_s, outcome, words):
    with server(ahead_s=ahead_s) as there:
        *_, clock = network(there.url, PLAIN)
    assert (clock.name, clock.outcome) == ("clock", outcome)
    assert words in clock.detail
