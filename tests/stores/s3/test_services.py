"""The table of services that speak S3's dialect: endpoints are recognised, and say their region and account."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.stores.s3.services import AWS, SERVICES, at, find_service


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://id.r2.cloudflarestorage.com", "r2"),
        ("https://id.eu.r2.cloudflarestorage.com", "r2"),
        ("https://ns.compat.objectstorage.eu-frankfurt-1.oraclecloud.com", "oci"),
        ("https://s3.us-west-004.backblazeb2.com", "b2"),
        ("https://s3.eu-central-1.wasabisys.com", "wasabi"),
        ("https://fly.storage.tigris.dev", "tigris"),
        ("http://cwlota.com", "coreweave"),
        ("https://storage.googleapis.com", "gcs"),
        ("https://minio.example.com:9000", ""),
        ("https://r2.cloudflarestorage.com.evil.example", ""),
        ("https://evilwasabisys.com", ""),
        (None, ""),
    ],
)
def test_an_endpoint_is_recognised_by_its_domain(url, word):
    assert at(url) == word


def test_region_and_account_are_parsed_from_endpoint():
    assert SERVICES["b2"].part_of("https://s3.us-west-004.backblazeb2.com", "region") == "us-west-004"
    oci = "https://ns.compat.objectstorage.eu-frankfurt-1.oci.customer-oci.com"
    assert [SERVICES["oci"].part_of(oci, what) for what in ("account", "region")] == ["ns", "eu-frankfurt-1"]
    assert SERVICES["r2"].part_of("https://id.eu.r2.cloudflarestorage.com", "account") == "id.eu"
    assert SERVICES["b2"].part_of("https://f004.backblazeb2.com", "region") == ""


def test_another_word_is_refused_with_the_one_that_was_meant():
    assert find_service("r2") is SERVICES["r2"]
    with pytest.raises(ConfigError, match="no provider 'wasabbi': did you mean 'wasabi'"):
        find_service("wasabbi")
    with pytest.raises(ConfigError, match="it is one of aws, r2, "):
        find_service("?")


def test_a_shared_service_has_awss_variables_after_its_own():
    service = SERVICES["r2"].shared()
    assert service.endpoints == ("R2_ENDPOINT_URL", "R2_ENDPOINT", *AWS.endpoints)
    assert (service.aws_files, service.keys) == (True, SERVICES["r2"].keys)
    assert AWS().shared() == AWS()
    assert service == SERVICES["r2"].shared() != SERVICES["r2"]
