"""Lightning's checkpoints in a bucket: whole, rotated, found again; a training that was killed goes on from them."""

from __future__ import annotations

import json
import re
import signal
import threading
import uuid
from pathlib import Path

import pytest
from lightning.pytorch import strategies

from penstock.checkpoint.lightning import AsyncCheckpointIO, CheckpointIO
from penstock.errors import NotFound, Unusable
from tests.edges.keeper import Keeper, Killed
from tests.edges.launch import program, ranks
from tests.edges.remote import loader, trainer
from tests.servers import Bucket

SAMPLES = 23  # a set that the batch does not divide: six batches make an epoch

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # advice: more workers, a folder that is not empty
    pytest.mark.filterwarnings(r"ignore:.*LeafSpec.* is deprecated:FutureWarning"),  # between Lightning and torch
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    for number in range(SAMPLES):
        (folder / f"{number:02}").write_bytes(b"x")
    return f"file://{folder}/"


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Return the ledger of a training that nothing interrupts."""
    model = Keeper()
    trainer(tmp_path_factory.mktemp("whole")).fit(model, loader(data))
    return model.ledger


def _names(bucket, folder="run"):
    found = bucket.client.list_objects_v2(Bucket=bucket.name, Prefix=f"{folder}/").get("Contents", [])
    return sorted(each["Key"].removeprefix(f"{folder}/") for each in found)


# The first dies within an epoch, the second right after an epoch's last batch.
@pytest.mark.parametrize(("name", "dies_at"), [("SIGKILL", 8), ("SIGKILL", 12), ("SIGINT", 3)])
def test_training_ended_by_a_signal_resumes_from_the_bucket_checkpoint(opened, data, whole, name, dies_at):
    folder = f"{opened.url}run"
    run = program(Path(__file__).with_name("remote.py"), data, folder, dies_at, name, **opened.server.environment)
    assert run.returncode == (-signal.SIGKILL if name == "SIGKILL" else 1), run.stdout
    assert len(_names(opened)) == 2  # the newest, and last.ckpt
    model = Keeper()
    trainer(folder, plugin=CheckpointIO(opened.store)).fit(model, loader(data), ckpt_path="last")
    assert len(model.before) == dies_at
    assert model.before + model.ledger == whole


def test_training_resumed_after_an_epochs_last_batch_resumes_again_within_the_next(data, whole, tmp_path):
    for dies_at in (6, 2):
        with pytest.raises(Killed):
            trainer(tmp_path).fit(Keeper(dies_at), loader(data), ckpt_path="last")
    model = Keeper()
    trainer(tmp_path).fit(model, loader(data), ckpt_path="last")
    assert len(model.before) == 8
    assert model.before + model.ledger == whole


def test_a_checkpoint_is_named_by_its_url(opened, data, whole):
    folder, plugin = f"{opened.url}run", CheckpointIO(opened.store)
    trainer(folder, plugin=plugin, max_epochs=1, saves={"save_top_k": -1}).fit(Keeper(), loader(data))
    model = Keeper()
    trainer(f"{opened.url}more", plugin=plugin).fit(model, loader(data), ckpt_path=f"{folder}/epoch=0-step=4.ckpt")
    assert model.before + model.ledger == whole
    loaded = Keeper.load_from_checkpoint(f"{folder}/last.ckpt")
    assert loaded.before == whole[:6]


def test_resume_from_last_starts_fresh_when_no_checkpoint_exists(opened, data, whole):
    model = Keeper()
    run = trainer(f"{opened.url}run", plugin=CheckpointIO(opened.store))
    run.fit(model, loader(data), ckpt_path="last")
    assert model.ledger == whole


def test_resume_from_missing_bucket_raises_instead_of_starting_fresh(opened, data):
    run = trainer("s3://no-such-bucket-of-ours/run", plugin=CheckpointIO(opened.store))
    with pytest.raises(NotFound):
        run.fit(Keeper(), loader(data), ckpt_path="last")


class _Scored(Keeper):
    """Logs 5, 4, 3 … 0, 5, 4 … as a batch's score."""

    def training_step(self, batch, number):
        self.log("score", 5.0 - number)
        return super().training_step(batch, number)


@pytest.mark.parametrize("plugin", [CheckpointIO, lambda store: AsyncCheckpointIO(CheckpointIO(store))])
def test_rotation_leaves_the_best_and_the_last(opened, data, plugin):
    run = trainer(
        f"{opened.url}run",
        plugin=plugin(opened.store),
        max_epochs=2,
        saves={"monitor": "score", "save_top_k": 2, "mode": "min"},
    )
    run.fit(_Scored(), loader(data))
    assert _names(opened) == ["epoch=0-step=6.ckpt", "epoch=1-step=12.ckpt", "last.ckpt"]
    best = run.checkpoint_callback.best_model_path
    assert best == f"{opened.url}run/epoch=0-step=6.ckpt"
    run.validate(_Scored(), loader(data), ckpt_path="best")
    assert run.ckpt_path == best


@pytest.mark.parametrize("plugin", [CheckpointIO, lambda: AsyncCheckpointIO(CheckpointIO())], ids=["now", "behind"])
def test_a_fit_with_local_data_and_checkpoints_leaves_no_thread(data, tmp_path, plugin):
    before = set(threading.enumerate())
    trainer(tmp_path / "run", plugin=plugin(), max_epochs=1).fit(Keeper(), loader(data))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["epoch=0-step=6.ckpt", "last.ckpt"]
    assert set(threading.enumerate()) == before


def test_checkpoints_of_another_run_are_kept_when_resuming_from_it(opened, data):
    plugin = CheckpointIO(opened.store)
    trainer(f"{opened.url}run", plugin=plugin, max_epochs=1).fit(Keeper(), loader(data))
    before = _names(opened)
    more = trainer(f"{opened.url}run2", plugin=plugin, max_epochs=2)
    more.fit(Keeper(), loader(data), ckpt_path=f"{opened.url}run/epoch=0-step=6.ckpt")
    assert _names(opened) == before == ["epoch=0-step=6.ckpt", "last.ckpt"]
    assert _names(opened, "run2") == ["epoch=1-step=12.ckpt", "last.ckpt"]


def test_weights_alone_are_saved_and_loaded(opened, data):
    plugin = CheckpointIO(opened.store)
    folder = f"{opened.url}run"
    trainer(folder, plugin=plugin, max_epochs=1, saves={"save_weights_only": True}).fit(Keeper(), loader(data))
    assert "optimizer_states" not in plugin.load_checkpoint(f"{folder}/last.ckpt")
    trainer(folder, plugin=plugin).validate(Keeper(), loader(data), ckpt_path=f"{folder}/last.ckpt")


def test_training_raises_the_error_of_its_failed_last_async_save(opened, data):
    class Lost(CheckpointIO):
        def save_checkpoint(self, checkpoint, *_, **__):
            super().save_checkpoint(checkpoint, "s3://no-such-bucket-of-ours/x")

    plugin = AsyncCheckpointIO(Lost(opened.store))
    run = trainer(f"{opened.url}run", plugin=plugin, max_steps=1, saves={"save_last": False})
    with pytest.raises(NotFound):
        run.fit(Keeper(), loader(data))


@pytest.fixture
def small(moto_server):
    """Make a bucket on moto alone: these take long, and Ceph has its say in tests of what they stand on."""
    name = f"test-{uuid.uuid4().hex}"
    moto_server.client().create_bucket(Bucket=name)
    return Bucket(moto_server, name, moto_server.client())


def _sharded(count, bucket, data, out, *fits):
    """Return, of each rank, what it noted of each fit."""
    out.mkdir()
    run = ranks(count, Path(__file__).with_name("sharded.py"), data, out, *fits, **bucket.server.environment)
    assert run.returncode == 0, run.stdout
    return [json.loads((out / f"{rank}.json").read_text("utf-8")) for rank in range(count)]


@pytest.mark.parametrize("how", ["shards", "whole"])
def test_sharded_model_resumes_from_checkpoint_in_the_bucket(small, data, tmp_path, how):
    fits = [f"{small.url}all|5|{how}", f"{small.url}run|2|{how}", f"{small.url}run|4|{how}"]
    two = _sharded(2, small, data, tmp_path / "two", *fits, f"{tmp_path}/disk|1|shards")
    for (_, whole), first, (before, second), _ in two:
        assert first == [0, whole[:2]]
        assert (before, second) == (2, whole[2:4])
    names = ["last.ckpt", "step=4.ckpt"]
    shards = [f"{name}/{each}" for name in names for each in ("0.data", "1.data", "checkpoint.json", "penstock.index")]
    found = sorted(re.sub("[0-9a-f]{32}/", "", name) for name in _names(small))
    assert found == (names if how == "whole" else shards)  # the last, and the newest
    assert (tmp_path / "disk/last.ckpt/meta.pt").is_file()  # on a disk it is as Lightning saves it
    if how == "shards":
        (((before, (loss,)),),) = _sharded(1, small, data, tmp_path / "one", f"{small.url}run|5|{how}")
        assert before == 2
        assert loss == pytest.approx(sum(rank[0][1][4] for rank in two) / 2, rel=1e-5)


def test_strategy_that_supports_only_local_disks_is_refused(opened):
    run = trainer(
        f"{opened.url}run", plugin=CheckpointIO(opened.store), strategy=strategies.ModelParallelStrategy(1, 1)
    )
    with pytest.raises(Unusable, match="disks only"):
        run.checkpoint_callback.setup(run, Keeper(), "fit")
