"""What a server says ends up in errors: never a secret of ours, never a terminal's escape, never without end."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import replace

import pytest

import penstock as ps
from penstock import events
from penstock.engine.contracts.exchange import Response
from penstock.engine.transport.codes import fault
from penstock.errors import PenstockError, Unreachable, conceal
from penstock.source import open_source
from penstock.stores.s3.dialect import S3_CODES
from penstock.testing.servers import Scripted, reply
from tests.servers.hostile import document, listing

SECRET, TOKEN = "wJalrXUtnFEMI/xyzzy", "FwoGZXIvYXdz/xyzzy+token=="
RETRY = ps.RetryOptions(base_s=0.001, cap_s=0.01, attempts=2)


def _echoes(received):
    """Return answers that quote what was sent, wherever an answer can."""
    sent = " ".join(f"{name}: {value}" for name, value in received.headers.items())
    said = f"you said {sent} \x1b[2J\u202e " + "and so on " * 10_000
    proof = received.headers["authorization"]
    return [
        reply(403, document("Error", Code="SignatureDoesNotMatch", Message=said)),
        reply(503, document("Error", Code="SlowDown", Message=proof)),
        reply(400, document("Error", Code=proof, Message=TOKEN)),
        reply(200, document("Error", Code="AccessDenied", Message=sent)),
        reply(404, f"<html>{said}</html>".encode()),
        reply(200, listing([(f"elsewhere/{proof}/{TOKEN}", 1)])),
        reply(200, f"<{'x' * 9000}/>".encode()),
        reply(206, b"xy", content_range=f"bytes {proof}", etag=f'"{TOKEN}"'),
        reply(200, b"xy", etag=f'"{TOKEN}{proof}"', content_length="2"),
        reply(301, location=f"http://127.0.0.1:9/?{proof}", x_amz_bucket_region=TOKEN),
    ]


@pytest.mark.parametrize("number", range(10))
def test_no_text_quotes_a_secret_that_a_server_echoes(number):
    heard = []
    with Scripted(lambda received, send: send(_echoes(received)[number]) or True) as server:
        keys = {"access_key": "AKIDEXAMPLE", "secret_key": SECRET, "session_token": TOKEN}
        source, _ = open_source("s3://bucket/run/", ps.S3Options(endpoint=server.url, retry=RETRY, **keys))
        stop = events.subscribe(heard.append)
        for verb in (
            lambda: source.head("run/key"),
            lambda: list(source.pages("run/")),
            lambda: list(source.unfinished("run/")),
            lambda: source.read_many([ps.values.Span("run/key", 2, 4, "e")]),
            lambda: source.publish("run/key", b"data"),
            lambda: source.delete(["run/key"]),
            lambda: source.copy("run/key", "run/to", ps.values.ObjectMeta("run/key", 1)),
        ):
            try:
                verb()
            except PenstockError as error:
                _check(error, server)
        stop()
        for each in heard:
            if isinstance(each, events.Retried):
                _check(each.error, server)


def _check(error, server):
    proofs = [received.headers["authorization"].rpartition("=")[2] for received in server.received]
    again = pickle.loads(pickle.dumps(error))
    for text in (*map(str, (error, again)), repr(error), error.message, *traceback.format_exception(error)):
        assert "xyzzy" not in text
        assert not any(proof in text for proof in proofs)
    assert str(error).isprintable()
    assert len(str(error)) < 10_000


@pytest.mark.parametrize(
    "words",
    [
        "Unsupported proxy scheme for 'gopher://user:pass-xyzzy@proxy:3128'",
        "Could not resolve proxy: http://pass-xyzzy@proxy",
        "bucket/key?X-Amz-Signature=00xyzzy00&x=1",
        "x-amz-security-token: 0000xyzzy0000 and more",
        "Authorization: Bearer 0000.xyzzy-0000",
        "AWS_SECRET_ACCESS_KEY=0000xyzzy0000",
        "AWS4-HMAC-SHA256 Credential=A/2026/x, SignedHeaders=host, Signature=xyzzy0",
        "AWS4-HMAC-SHA256%20Credential%3DA%2F2026,Signature%3Dxyzzy000",
        '{"SessionToken": "0000xyzzy0000"}',
        "secret_key-xyzzy-that-was-told",
    ],
)
def test_text_resembling_a_secret_is_hidden_in_error_messages(words):
    conceal("secret_key-xyzzy-that-was-told")
    for error in (
        fault(7, words),
        S3_CODES.refusal(Response(500, body=document("Error", Message=words)), "read", "").error,
    ):
        assert "xyzzy" not in f"{error} {error!r}"
        assert "[hidden]" in str(error)


def test_the_query_of_an_address_is_hidden_whole():
    error = fault(7, "https://bucket/key?X-Amz-Signature=00xyzzy00&x=xyzzy")
    assert "xyzzy" not in f"{error} {error!r}"
    assert "https://bucket/key?…" in str(error)


def test_other_words_stay_as_they_are():
    said = (
        "cannot read s3://bucket/a@b: the signature we calculated is not yours; pass access_key and secret_key (mine)"
    )
    conceal("mine")
    assert str(Unreachable(said)) == said
    assert str(Unreachable("gone", url="s3://bucket/x@y")) == "gone [s3://bucket/x@y]"


@pytest.mark.parametrize(
    "value", ["²", "9" * 5000, "86401", "-1", "nan", "inf", "1e9", "Mon, 1 Jan 99999999999 0:0:0 GMT"]
)
def test_invalid_retry_after_header_is_ignored(value):
    assert S3_CODES.refusal(Response(503, {"retry-after": value}), "read", "").error.retry_after_s is None


def test_a_nonsensical_retry_after_does_not_end_the_retries():
    answers = [reply(503, retry_after="9" * 30), reply(200, content_length="3", etag='"e"')]
    with Scripted(lambda received, send: send(answers[received.number - 1]) or True) as server:
        store = ps.S3Options(endpoint=server.url, anonymous=True, retry=replace(RETRY, attempts=3))
        assert ps.stat("s3://bucket/key", store=store).size == 3
