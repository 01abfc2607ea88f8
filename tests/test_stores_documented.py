"""docs/stores.md says of every store what it can do, as its provider declares it, and how that is known.

After a change of a provider, `python -m tests.test_stores_documented` writes the table anew. A cell is a contract test
(`penstock.testing.drivers`), or what the service's own manual says.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import penstock as ps
from penstock.source import open_source
from penstock.stores import urls
from penstock.stores.s3.services import AWS, SERVICES
from penstock.testing.drivers import DriverContract
from tests.stores.test_contract import CONTRACTS

PRESETS = {each.name: each for each in SERVICES.values() if type(each) is not AWS}
PAGE = Path(__file__).parents[1] / "docs" / "stores.md"
BEGIN, END = "<!-- stores -->\n", "<!-- /stores -->\n"
# By the provider's name: the contract tests that run on it, or where it is written.
TESTED = {
    **{
        provider: tuple(f"stores.test_contract:{name}" for row, name in CONTRACTS.items() if row.provider == provider)
        for provider in dict.fromkeys(row.provider for row in CONTRACTS)
    },
    "Ceph": ("stores.test_contract:TestCeph",),
    "fsspec": ("stores.fsspec.test_driver:TestMemory", "stores.fsspec.test_driver:TestFolder"),
    "obspec": tuple(f"stores.obspec.test_driver:Test{name}" for name in ("Memory", "Local", "S3", "Penstock")),
    "the Hugging Face Hub": ("stores.huggingface.test_driver:TestHub",),
    "the web server": ("stores.web.test_driver:TestNginx",),
}
WRITTEN = {
    "Cloudflare R2": "developers.cloudflare.com/r2/api/s3, …/platform/limits",
    "OCI Object Storage": "docs.oracle.com: Amazon S3 Compatibility API",
    "Backblaze B2": "backblaze.com/docs: S3-Compatible API",
    "Wasabi": "docs.wasabi.com: API reference",
    "Tigris": "tigrisdata.com/docs/objects/conditionals",
    "CoreWeave AI Object Storage": "docs.coreweave.com: Object Storage",
    "AIStore": "docs.nvidia.com/aistore/s3compat; redirects: tests/stores/s3/test_presets.py",
    "MinIO": "min.io/docs; issues of minio/minio",
    "SwiftStack": "Multi-Storage Client's provider s8k",
    "Google Cloud Storage's S3 interoperability": "cloud.google.com/storage/docs/interoperability; ClickHouse#115266",
    "Hugging Face Storage Buckets": "huggingface.co/docs/hub/storage-buckets-s3",
}
UNKNOWN = ("OCI Object Storage", "Wasabi", "SwiftStack")  # their manuals do not say
NO = "\N{EN DASH}"
SAID = {"x-goog-hash": "crc32c", "content-md5": "md5"}  # what stands in headers that are not called by it
READ_ONLY = ("the web server", "the Hugging Face Hub")
SHOWN = {
    "S3": "AWS S3, any S3-compatible server",
    "the file system": "local files",
    "the web server": "web servers",
    "the Hugging Face Hub": "Hugging Face Hub",
    "fsspec": "fsspec's file systems",
    "obspec": "stores of obspec, as far as they can",
    "memory": "memory",
}
# What opens a bucket of a provider, to see which checksums its driver compares; None where there is no network.
OPENED = {
    "Alibaba OSS": ("oss://bkt/", ps.OSSOptions(region="cn-hangzhou", anonymous=True)),
    "S3": ("s3://bkt/", ps.S3Options(anonymous=True)),
    "Google Cloud Storage": ("gs://bkt/", ps.GCSOptions(anonymous=True)),
    "the Hugging Face Hub": ("hf://datasets/org/name/", ps.HFOptions(anonymous=True)),
    "Azure": ("az://bkt/", ps.AzureOptions(account="mine", anonymous=True)),
}


def providers():
    """Return all providers, each once, presets after S3's own."""
    own = {each.name: each for each in urls.own_stores() if not each.profiles}  # a profile is another store
    rest = {name: each for name, each in own.items() if name not in PRESETS and name != "S3"}
    return {"S3": own["S3"], **PRESETS, **rest}


def checksums(name):
    """Return the checksums that a driver compares on whole reads."""
    if name in PRESETS:
        word = next(word for word, service in SERVICES.items() if service.name == name)
        options = ps.S3Options(provider=word, endpoint="http://bkt.example:9", region="r", anonymous=True)
        driver = open_source("s3://bkt/", options)[0]._fetcher().driver
    elif name in OPENED:
        driver = open_source(*OPENED[name])[0]._fetcher().driver
    else:
        return ""
    return ", ".join(sorted(SAID.get(each, each.rpartition("-")[2]) for each in driver._verify.digests))


def signs(name):
    """Say whether a driver signs addresses, and how that is known; presets share S3's."""
    if (name not in PRESETS and name not in OPENED) or name in READ_ONLY:
        return NO
    return "●" if name in OPENED or name == "Ceph" else "○"


def cell(name, *, able):
    if not able:
        return NO
    return "●" if name in TESTED else "?" if name in UNKNOWN else "○"


def row(name, provider):
    abilities, unable = provider.abilities, provider.abilities.form == "none" or name in READ_ONLY
    able = [
        held and not unable
        for held in (abilities.put.create, abilities.put.replace, abilities.complete.create, abilities.complete.replace)
    ]
    cells = [cell(name, able=held) for held in able]
    known = WRITTEN.get(name) or ", ".join(f"`{each.partition(':')[2]}`" for each in TESTED[name])
    equal = "equal" if provider.limits.equal_parts else ""
    return f"| {' | '.join([SHOWN.get(name, name), *cells, checksums(name) or NO, signs(name), equal, known])} |"


def table():
    writes = "new: PUT | version: PUT | new: upload | version: upload"
    lines = [
        f"| store | {writes} | whole reads compared | signed addresses | parts | known by |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row(name, provider) for name, provider in providers().items()),
    ]
    return "\n".join(lines) + "\n"


def test_every_provider_is_listed_with_its_test_or_source():
    assert {*TESTED, *WRITTEN} == {*providers(), "Ceph"} == {*providers()}


@pytest.mark.parametrize("test", sorted({each for tests in TESTED.values() for each in tests}))
def test_listed_contract_tests_derive_from_driver_contract(test):
    module, _, name = test.partition(":")
    assert issubclass(getattr(importlib.import_module(f"tests.{module}"), name), DriverContract)


def test_stores_page_matches_the_provider_declarations():
    shown = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown == table(), "run python -m tests.test_stores_documented"


def write():
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    write()
