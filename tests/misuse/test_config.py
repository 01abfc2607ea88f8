"""What hurried users write where a store is named, and the word that tells them what to do instead."""

import pytest

import penstock as ps
from penstock.errors import ConfigError


def _head(**where):
    ps.stat("s3://bucket/a", store=ps.S3Options(anonymous=True, **where))


MISUSES = [
    # what is written, a word of its text
    (lambda: _head(endpoint="https://127.0.0.1:1/bucket"), "s3://bucket/key"),
    (lambda: _head(endpoint="https://127.0.0.1:1/gate/bucket/"), "s3://bucket/key"),
    (lambda: _head(endpoint="https://s3.eu-west-1.amazonaws.com/bucket"), "s3://bucket/key"),
    (lambda: _head(endpoint="https://host/a/../b"), "no dots"),
    (lambda: _head(endpoint="https://host/a b"), "a space"),
    (lambda: _head(endpoint="host:9000"), "http://host:9000"),
    (lambda: ps.TransportOptions(user_agent_extra="job\r\nx-amz-acl: public-read"), "printable ASCII"),
    (lambda: ps.TransportOptions(connections=0), "must be positive"),
    (lambda: ps.S3Options(anonymous=True, requester_pays=True), "without anonymous=True"),
    (lambda: ps.OSSOptions(anonymous=True, requester_pays=True), "without anonymous=True"),
]


@pytest.mark.parametrize(("write", "word"), MISUSES, ids=[str(number) for number in range(len(MISUSES))])
def test_a_misuse_of_stores_is_refused_with_advice(write, word):
    with pytest.raises(ConfigError) as refused:
        write()
    assert word in str(refused.value)
