"""Schemes are taken over on request, and by entry points for Penstock's own."""

from __future__ import annotations

import json
import pickle
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
    assert run.stdout.split() == ["PenstockFileSystem", "msc", "p/x", "penstock.interop.fsspec.schemes"]


def test_a_class_is_found_by_its_scheme():
    assert schemes.s3 is kind_of("s3")
    assert issubclass(schemes.s3, PenstockFileSystem)
    assert kind_of("penstock") is PenstockFileSystem
    assert schemes.msc is kind_of("msc") is not PenstockFileSystem
    with pytest.raises(AttributeError, match="nope"):
        schemes.nope  # noqa: B018


def test_name_that_cannot_be_a_scheme_is_an_attribute_error():
    assert not hasattr(schemes, "per_tensor_affine")


def test_bare_path_of_each_scheme_uses_its_own_configuration(tmp_path, monkeypatch):
    profile = {"storage_provider": {"type": "file", "options": {"base_path": str(tmp_path / "msc")}}}
    (tmp_path / "msc.json").write_text(json.dumps({"profiles": {"train": profile}}))
    (tmp_path / "penstock.toml").write_text(f'[profiles.train]\nurl = "{tmp_path}/toml/"\n')
    monkeypatch.setenv("MSC_CONFIG", str(tmp_path / "msc.json"))
    monkeypatch.chdir(tmp_path)
    for scheme in ("msc", "penstock"):
        fs = fsspec.filesystem(scheme)
        fs.pipe("train/a/b", scheme.encode())
        assert fs.cat(f"{scheme}://train/a/b") == fs.cat("train/a/b") == scheme.encode()
        assert fs.ls("train/a", detail=False) == fs.glob("train/*/b") == ["train/a/b"]
        assert fs.info("train/a/b")["name"] == "train/a/b"
        assert pickle.loads(pickle.dumps(fs)).cat("train/a/b") == scheme.encode()
        assert fsspec.filesystem(scheme) == type(fs).from_json(fs.to_json())
    assert (tmp_path / "msc/a/b").read_bytes() == b"msc"
    assert (tmp_path / "toml/a/b").read_bytes() == b"penstock"
    assert fsspec.filesystem("penstock").ls("msc://train/a", detail=False) == ["msc://train/a/b"]
