"""``ps.save`` and ``ps.load``: torch's own format, straight to and from the store."""

from __future__ import annotations

import io

import pytest
import torch

import penstock as ps
from penstock.errors import CheckpointError, Forbidden, InvalidURL, NotFound, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


STATE = {
    "large": torch.arange(6_000_000, dtype=torch.float32).reshape(2000, 3000),
    "half": torch.linspace(0, 1, 1001).half(),
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(7),
}


def test_a_state_comes_back_bit_for_bit(bucket):
    ps.save(STATE, f"{bucket.url}run/ü 1.pt", store=bucket.store)
    assert same(ps.load(f"{bucket.url}run/ü 1.pt", store=bucket.store), STATE)
    assert same(ps.load(f"{bucket.url}run/ü 1.pt", map_location="cpu", store=bucket.store), STATE)


def test_saved_file_is_readable_by_torch_load(bucket):
    ps.save(STATE, f"{bucket.url}a.pt", store=bucket.store)
    body = bucket.client.get_object(Bucket=bucket.name, Key="a.pt")["Body"].read()
    assert same(torch.load(io.BytesIO(body), weights_only=True), STATE)


def test_local_files_and_memory_too(tmp_path):
    for url in (f"{tmp_path}/new/folder/a.pt", "memory://test-torch/a.pt"):
        ps.save(STATE, url)
        assert same(ps.load(url), STATE)


def test_bucket_url_is_refused_for_load_and_save():
    for url in ("s3://bucket", "s3://bucket/", "memory://bucket"):
        for ask in (ps.load, lambda url: ps.load(url, lazy=True), lambda url: ps.save(STATE, url)):
            with pytest.raises(InvalidURL, match="a bucket, not an object"):
                ask(url)


@pytest.mark.parametrize("lazy", [False, True])
def test_truncated_file_is_reported_as_truncated(tmp_path, lazy):
    ps.save(STATE, f"{tmp_path}/a.pt")
    body = (tmp_path / "a.pt").read_bytes()
    for size in (0, 1, 2, 3, 4, 100, len(body) - 1):
        (tmp_path / "a.pt").write_bytes(body[:size])
        with pytest.raises(CheckpointError, match=r"truncated.*/a\.pt\]"):
            ps.load(f"{tmp_path}/a.pt", lazy=lazy)


@pytest.mark.filterwarnings("ignore")
def test_truncated_or_damaged_legacy_file_raises_checkpoint_error(tmp_path):
    """It has no sums: another value may come of a flipped byte, yet what shows is told as damage."""
    file = io.BytesIO()
    torch.save({"a": torch.arange(20), "b": 3}, file, _use_new_zipfile_serialization=False)
    whole = file.getvalue()
    for size in range(0, len(whole), 5):
        (tmp_path / "a.pt").write_bytes(whole[:size])
        for weights_only in (True, False):
            with pytest.raises(CheckpointError, match=r"truncated.*a\.pt"):
                ps.load(f"{tmp_path}/a.pt", weights_only=weights_only)
    for body in (b"a text", b"\x80\x02", whole.replace(b"ctorch._utils", b"Ztorch._utils")):
        (tmp_path / "a.pt").write_bytes(body)
        with pytest.raises(CheckpointError, match=r"torch\.save did not write it.*a\.pt"):
            ps.load(f"{tmp_path}/a.pt")


class Custom:
    """Something that only code can make."""


def test_code_in_a_file_runs_only_when_it_is_asked_for(tmp_path):
    ps.save({"model": Custom()}, f"{tmp_path}/code.pt")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        ps.load(f"{tmp_path}/code.pt")
    assert isinstance(ps.load(f"{tmp_path}/code.pt", weights_only=False)["model"], Custom)


def test_an_object_that_cannot_be_saved_leaves_the_old_one(tmp_path):
    ps.save(STATE, f"{tmp_path}/a.pt")
    with pytest.raises(Exception, match=r"[Pp]ickle"):
        ps.save({"bad": lambda: None}, f"{tmp_path}/a.pt")
    assert same(ps.load(f"{tmp_path}/a.pt"), STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_nothing_there(bucket):
    with pytest.raises(NotFound):
        ps.load(f"{bucket.url}none.pt", store=bucket.store)


def test_failed_save_raises_the_original_error_instead_of_the_torch_error():
    """torch ends its archive after a write has failed, and that fails too: with a RuntimeError about positions."""
    with FaultServer.start() as server:
        server.make("bucket")
        server.fail(FAULTS["denied"], when=Match(verb="create", times=None))
        with pytest.raises(Forbidden):
            ps.save({"large": torch.zeros(12_000_000)}, "s3://bucket/a.pt", store=server.store)
        with pytest.raises(Unusable, match=r"state\['hook'\] is .*cannot be saved"):
            ps.save({"hook": _Refusing()}, "memory://test-torch/b.pt")


class _Refusing:
    """Something that refuses to be saved, in torch's own words."""

    def __reduce__(self) -> str:
        message = "this cannot be saved"
        raise RuntimeError(message)


@pytest.mark.parametrize("wrong", [{"weights_only": None}, {"weights_only": "no"}, {"lazy": "no"}])
def test_a_load_whose_switch_is_neither_true_nor_false_is_refused(tmp_path, wrong):
    ps.save({"n": 1}, tmp_path / "a.pt")
    with pytest.raises(Unusable, match="must be True or False"):
        ps.load(tmp_path / "a.pt", **wrong)
