"""Google's words for S3's verbs, by what requests say."""

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import Attributes, Payload
from penstock.stores.gcs.driver import GCSDriver, Google
from penstock.stores.s3.dialect import BucketAddress
from penstock.values import Span


class Nobody:
    def current(self):
        return None


def _headers(exchange):
    lines = [line.partition(":")[::2] for line in exchange.request.headers]
    return {name.lower(): value.strip() for name, value in lines if value}


@pytest.fixture
def driver():
    return GCSDriver(BucketAddress("b", None, virtual=False, scheme="gs"), Nobody(), Google(keys=False))


def test_objects_are_addressed_by_path_on_googles_own_host(driver):
    assert driver.head("a b").request.url == "https://storage.googleapis.com/b/a%20b"


def test_a_read_takes_gzip_and_is_held_to_a_generation(driver):
    asked = _headers(driver.read(Span("k", 2, 4, "17"), Buffer.allocate(2)))
    assert asked == {"accept-encoding": "gzip", "x-goog-if-generation-match": "17", "range": "bytes=2-3"}
    assert "accept-encoding" not in _headers(driver.list("")), "XML comes as it is"


def test_a_put_has_its_checksum_and_its_condition(driver):
    body = Payload(b"123456789", "e3069283")
    new = _headers(driver.put("k", body, Attributes("text/plain", {"note": "x"}, create_only=True)))
    common = {"content-type": "text/plain", "x-goog-hash": "crc32c=4waSgw=="}
    assert new == {**common, "x-goog-meta-note": "x", "x-goog-if-generation-match": "0"}
    old = _headers(driver.put("k", body, Attributes("text/plain", replaces="17")))
    assert old == {**common, "x-goog-if-generation-match": "17"}
