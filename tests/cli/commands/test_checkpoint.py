"""``penstock checkpoint``: what is committed, whether it is whole, and removing it."""

from __future__ import annotations

import json

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save

import penstock as ps
from penstock.checkpoint.dcp import StorageWriter
from penstock.checkpoint.integrity import MANIFEST


def test_a_runs_checkpoints_from_the_shell(penstock, bucket):
    url = f"{bucket.url}run/"
    none = penstock("checkpoint", "ls", url, bucket=bucket)
    assert (none.returncode, none.stdout) == (1, "")
    run = ps.CheckpointManager(url, store=bucket.store)
    for step, metric in ((10, 0.5), (20, None)):
        run.save(step, {"weights": torch.zeros(1000)}, metric=metric)
    listed = penstock("checkpoint", "ls", "--json", url, bucket=bucket)
    found = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(each["step"], each["objects"], each["metric"]) for each in found] == [(10, 1, 0.5), (20, 1, None)]
    text = penstock("checkpoint", "ls", url, bucket=bucket).stdout.splitlines()
    assert text[0].split()[0] == "10"
    assert text[0].endswith("metric 0.5")
    verified = penstock("checkpoint", "verify", url, bucket=bucket)
    assert (verified.returncode, len(verified.stdout.splitlines())) == (0, 2)
    assert "2 checkpoints as written" in verified.stderr
    verified = penstock("checkpoint", "verify", "--json", url, bucket=bucket)
    assert [json.loads(line)["status"] for line in verified.stdout.splitlines()] == ["intact", "intact"]
    removed = penstock("checkpoint", "rm", url, "10", bucket=bucket)
    assert (removed.returncode, removed.stdout) == (0, "10\n")
    assert run.steps() == [20]
    assert penstock("checkpoint", "rm", url, "10", bucket=bucket).returncode == 1
    assert penstock("checkpoint", "verify", url, "10", bucket=bucket).returncode == 1


def test_single_distributed_checkpoint_is_verified_by_its_own_url(penstock, tmp_path):
    with pytest.warns(UserWarning, match="disabled"):
        save({"weights": torch.zeros(1000)}, storage_writer=StorageWriter(tmp_path / "one"))
    done = penstock("checkpoint", "verify", str(tmp_path / "one"))
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    (data,) = tmp_path.glob("one/*/0.data")
    data.write_bytes(bytes(4000)[:-1] + b"x")
    done = penstock("checkpoint", "verify", str(tmp_path / "one"))
    assert (done.returncode, str(data) in done.stderr) == (5, True)
    none = penstock("checkpoint", "verify", str(tmp_path))
    assert (none.returncode, "no committed checkpoint" in none.stderr) == (1, True)


def test_damage_ends_verifying_with_5_and_is_named(penstock, tmp_path):
    run = ps.CheckpointManager(tmp_path)
    run.save(1, {"weights": torch.zeros(1000)})
    (data,) = tmp_path.glob("*/*/state.pt")
    body = bytearray(data.read_bytes())
    body[1000] ^= 1
    data.write_bytes(body)
    done = penstock("checkpoint", "verify", str(tmp_path))
    assert (done.returncode, done.stdout) == (5, "")
    assert str(data) in done.stderr


def test_a_damaged_manifest_does_not_hide_the_other_steps(penstock, tmp_path):
    run = ps.CheckpointManager(tmp_path)
    for step in (1, 2, 3):
        run.save(step, {"weights": torch.zeros(10)})
    manifest = next(tmp_path.glob(f"*2/{MANIFEST}"))
    manifest.write_bytes(manifest.read_bytes()[:-1])
    done = penstock("checkpoint", "ls", str(tmp_path))
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["1", "3"]
    assert (done.returncode, "the manifest of step 2 is damaged" in done.stderr) == (5, True)


def test_clean_removes_old_orphans_and_prints_their_urls(penstock, tmp_path):
    orphan = tmp_path / "000000000009" / ("ab" * 16) / "state.pt"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"half")
    assert penstock("checkpoint", "clean", str(tmp_path)).stdout == ""
    done = penstock("checkpoint", "clean", "--older-than", "0", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"file://{orphan}\n")
    assert not orphan.exists()
