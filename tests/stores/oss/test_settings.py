"""Names of OSS's hosts and regions."""

from __future__ import annotations

import pytest

from penstock.stores.oss.options import OSSOptions, region_of
from penstock.stores.oss.store import credentials_file


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("oss-cn-beijing.aliyuncs.com", "cn-beijing"),
        ("oss-cn-beijing-internal.aliyuncs.com", "cn-beijing"),
        ("bucket.oss-us-west-1.aliyuncs.com", "us-west-1"),
        ("s3.oss-ap-southeast-1-internal.aliyuncs.com", "ap-southeast-1"),
        ("cn-hangzhou.oss.aliyuncs.com", "cn-hangzhou"),
        ("oss-accelerate.aliyuncs.com", ""),
        ("oss-accelerate-overseas.aliyuncs.com", ""),
        ("data.example.com", ""),
        ("oss-cn-beijing.aliyuncs.com.evil.example", ""),
        ("127.0.0.1", ""),
    ],
)
def test_a_host_names_its_region(host, region):
    assert region_of(host) == region


@pytest.mark.usefixtures("homeless")
def test_missing_home_directory_yields_no_credentials_file():
    named, path = credentials_file(OSSOptions(), {})
    assert not named
    assert not path.exists()
