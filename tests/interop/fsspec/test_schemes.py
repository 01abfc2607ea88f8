"""Schemes are taken over on request, and by entry points for Penstock's own."""

from __future__ import annotations

import subprocess
import sys

import fsspec
import pytest
from fsspec.registry import _registry

import penstock as ps
from penstock.errors import ConfigError, UnknownScheme
from penstock.interop.fsspec import PenstockFileSystem, register, schemes
from penstock.interop.fsspec.schemes import kind_of


@pytest.fixture(autouse=True)
def _unregistered():
    """Leave the registry as it was."""
    before = dict(_registry)
    yield
    _registry.clear()
    _registry.update(before)
    for each in ("s3", "gs", "az"):
        kind_of(each).default = None


def test_several_schemes_are_taken_over_at_once():
    neutral = ps.StoreOptions(retry=ps.RetryOptions(attempts=2))
    register("s3", "gs", "az", store=neutral)
    for each in ("s3", "gs", "az"):
        fs, path = fsspec.core.url_to_fs(f"{each}://bucket/key")
        assert (type(fs), fs.protocol, fs.store, path) == (kind_of(each), each, neutral, "bucket/key")
        assert fsspec.filesystem(each).store == neutral
    assert fsspec.filesystem("s3", region="eu").store == ps.S3Options(region="eu", retry=neutral.retry)


@pytest.mark.parametrize(
    ("schemes", "store", "error", "words"),
    [
        (("s3", "nope"), None, UnknownScheme, "nope"),
        (("s3://bucket",), None, UnknownScheme, "not a URL"),
        (("s3", "gs"), ps.S3Options(), ConfigError, "another provider's"),
        ((ps.S3Options(),), None, ConfigError, "store=S3Options"),
    ],
)
def test_wrong_schemes_leave_all_as_it_was(schemes, store, error, words):
    before = dict(_registry)
    with pytest.raises(error, match=words):
        register(*schemes, store=store)
    assert dict(_registry) == before
    assert kind_of("s3").default is None


def test_penstock_and_msc_need_no_registration():
    program = (
        "import fsspec, sys; a = fsspec.filesystem('penstock'); b, path = fsspec.core.url_to_fs('msc://p/x');"
        "print(type(a).__name__, type(b).__name__, path, fsspec.get_filesystem_class('msc').__module__)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.split() == [*["PenstockFileSystem"] * 2, "msc://p/x", "penstock.interop.fsspec.filesystem"]


def test_a_class_is_found_by_its_scheme():
    assert schemes.s3 is kind_of("s3")
    assert issubclass(schemes.s3, PenstockFileSystem)
    assert kind_of("penstock") is kind_of("msc") is PenstockFileSystem
    with pytest.raises(AttributeError, match="nope"):
        schemes.nope  # noqa: B018
