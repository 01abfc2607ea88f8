"""Lightning: whatever it saves, and wherever a training dies, the one that goes on loses and repeats no batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader

import penstock as ps
from penstock.errors import StateMismatch
from tests.edges.keeper import Keeper, Killed, fit, keys
from tests.edges.launch import program

SAMPLES, BATCH = 23, 4
EVERY_STEP = {"every_n_train_steps": 1}
EVERY_EPOCH = {"every_n_epochs": 1, "save_on_train_epoch_end": True}
AFTER_VALIDATION = {}

# Lightning gives advice as warnings: more workers, an empty folder, no length for an iterable dataset (ours is right).
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings(r"ignore:.*LeafSpec.* is deprecated:FutureWarning"),  # between Lightning and torch
]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A set that neither the batch nor the ranks divide."""
    folder = tmp_path_factory.mktemp("objects")
    for number in range(SAMPLES):
        (folder / f"{number:02}").write_bytes(b"x")
    return f"file://{folder}/"


def _map(url, workers=0):
    return ps.DataLoader(ps.MapDataset.from_prefix(url, transform=keys), BATCH, shuffle=True, num_workers=workers)


def _iterable(url, workers=0):
    dataset = ps.IterableDataset.from_prefix(url, transform=keys, shuffle=True)
    return ps.DataLoader(dataset, BATCH, num_workers=workers)


@pytest.fixture(scope="module")
def whole(url, tmp_path_factory):
    """Return the ledger of a training that nothing interrupts: each sample once in each of three epochs."""
    ledger = fit(Keeper(), _map(url), tmp_path_factory.mktemp("whole"), EVERY_STEP)
    for epoch in range(3):
        assert sorted(key for at, _, batch in ledger for key in batch if at == epoch) == list(range(SAMPLES))
    return ledger


def _interrupted(loaders, folder, saves, dies_at, **trainer):
    """Return the ledger of a training that dies in batch ``dies_at`` and goes on from its last checkpoint."""
    with pytest.raises(Killed):
        fit(Keeper(dies_at), next(loaders), folder, saves, **trainer)
    return fit(Keeper(), next(loaders), folder, saves, resumes=folder / "last.ckpt", **trainer)


# Six batches make an epoch: the first dies within one, the second and fourth right after an epoch's last batch.
@pytest.mark.parametrize("dies_at", [3, 6, 8, 12, 13])
@pytest.mark.parametrize("make", [_map, _iterable])
def test_killed_training_resumes_after_its_last_saved_step(url, whole, tmp_path, make, dies_at):
    loaders = iter([make(url), make(url)])
    assert _interrupted(loaders, tmp_path, EVERY_STEP, dies_at) == whole


@pytest.mark.parametrize("dies_at", [3, 12])
@pytest.mark.parametrize("workers", [(2, 2), (0, 2), (2, 0)])
def test_training_resumes_with_a_different_number_of_workers(url, whole, tmp_path, workers, dies_at):
    loaders = (_map(url, each) for each in workers)
    assert _interrupted(loaders, tmp_path, EVERY_STEP, dies_at) == whole


@pytest.mark.parametrize("dies_at", [8, 13])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_checkpoint_of_an_epoch_s_end_begins_the_next_one(url, whole, tmp_path, workers, dies_at):
    loaders = (_map(url, workers) for _ in range(2))
    assert _interrupted(loaders, tmp_path, EVERY_EPOCH, dies_at) == whole


@pytest.mark.parametrize("saves", [EVERY_STEP, EVERY_EPOCH, AFTER_VALIDATION], ids=["step", "epoch", "validation"])
@pytest.mark.parametrize("dies_at", [7, 13])
def test_validation_in_between_changes_nothing(url, whole, tmp_path, saves, dies_at):
    loaders = (_map(url) for _ in range(2))
    between = {"validation": _map(url), "val_check_interval": 3, "num_sanity_val_steps": 1}
    assert _interrupted(loaders, tmp_path, saves, dies_at, **between) == whole


def test_gradients_of_several_batches_may_make_a_step(url, whole, tmp_path):
    loaders = (_map(url) for _ in range(2))
    assert _interrupted(loaders, tmp_path, EVERY_STEP, 9, accumulate_grad_batches=2) == whole


@pytest.mark.parametrize("dies_at", [3, 6, 13])
def test_training_limited_by_max_steps_resumes_after_its_last_step(url, whole, tmp_path, dies_at):
    loaders = (_map(url) for _ in range(2))
    steps = {"max_steps": 17, "max_epochs": -1}
    assert _interrupted(loaders, tmp_path, EVERY_STEP, dies_at, **steps) == whole[:17]


def _mixed(url, workers=0):
    dataset = ps.MapDataset.from_prefix(url, transform=keys)
    mix = ps.Mix({"first": dataset[:15], "second": dataset[15:]}, weights={"first": 1, "second": 1}, epoch_samples=22)
    return ps.DataLoader(mix, BATCH, shuffle=True, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dies_at", [3, 6, 13])
def test_training_on_a_mixture_resumes_after_its_last_saved_step(url, tmp_path, workers, dies_at):
    ledger = fit(Keeper(), _mixed(url), tmp_path / "whole", EVERY_STEP)
    assert len(ledger) == 18
    loaders = (_mixed(url, workers) for _ in range(2))
    assert _interrupted(loaders, tmp_path / "killed", EVERY_STEP, dies_at) == ledger


class _Paired(Keeper):
    """Notes the samples of both loaders."""

    def training_step(self, batch, number):
        short, long = (each and each[1].tolist() for each in (batch["short"], batch["long"]))
        super().training_step(batch["long"], number)
        self.ledger[-1][2] = [short, long]


def _pair(url, mode):
    dataset = ps.MapDataset.from_prefix(url, transform=keys)
    short, long = (ps.DataLoader(each, BATCH, shuffle=True) for each in (dataset[:15], dataset))
    return CombinedLoader({"short": short, "long": long}, mode)


# Four batches make an epoch of the first loader, six of the second. Trainings die right before and after its end.
@pytest.mark.parametrize("dies_at", [2, 3, 5, 6])
@pytest.mark.parametrize(
    ("mode", "options"),
    [("max_size_cycle", {}), ("max_size", {}), ("min_size", {}), ("max_size_cycle", {"limit_train_batches": 3})],
)
def test_training_on_two_loaders_of_different_lengths_resumes_after_its_last_step(
    url, tmp_path, mode, options, dies_at
):
    whole = fit(_Paired(), _pair(url, mode), tmp_path / "whole", EVERY_STEP, **options)
    loaders = iter([_pair(url, mode), _pair(url, mode)])
    with pytest.raises(Killed):
        fit(_Paired(dies_at), next(loaders), tmp_path, EVERY_STEP, **options)
    assert fit(_Paired(), next(loaders), tmp_path, EVERY_STEP, resumes=tmp_path / "last.ckpt", **options) == whole


def test_epochs_limited_to_one_batch_each_begin_with_their_own_order(url, tmp_path, caplog):
    ledger = fit(Keeper(), _map(url), tmp_path, EVERY_STEP, limit_train_batches=1, max_epochs=6)
    loader = _map(url)
    assert [row[2] for row in ledger] == [
        [sample.index for sample in loader.inspect(0, epoch=epoch)] for epoch in range(6)
    ]
    assert "ended after their first batch" not in caplog.text


def test_another_set_is_refused(url, tmp_path):
    loaders = iter([_map(url), ps.DataLoader(ps.MapDataset.from_prefix(url, transform=keys)[1:], BATCH, shuffle=True)])
    with pytest.raises(StateMismatch):
        _interrupted(loaders, tmp_path, EVERY_STEP, 3)


class _Sampled(Keeper):
    """Saves where its loader's sampler is, for torch's own loader does not: counted over all epochs, whole ones off."""

    def __init__(self, sampler, dies_at=None):
        super().__init__(dies_at)
        self.sampler = sampler

    def on_save_checkpoint(self, checkpoint):
        super().on_save_checkpoint(checkpoint)
        epoch, batches = divmod(self.trainer.fit_loop.total_batch_idx + 1, len(self.sampler))
        checkpoint["data"] = self.sampler.state_at(batches, epoch=epoch)

    def on_load_checkpoint(self, checkpoint):
        super().on_load_checkpoint(checkpoint)
        self.sampler.load_state_dict(checkpoint["data"])


@pytest.mark.parametrize("saves", [EVERY_STEP, EVERY_EPOCH], ids=["step", "epoch"])
@pytest.mark.parametrize("workers", [0, 2])
def test_torch_dataloader_with_batch_sampler_resumes_from_checkpoint(url, whole, tmp_path, workers, saves):
    dataset = ps.MapDataset.from_prefix(url, transform=keys)

    def begin(dies_at=None):
        sampler = ps.BatchSampler(dataset, BATCH, shuffle=True)
        return _Sampled(sampler, dies_at), DataLoader(dataset, batch_sampler=sampler, num_workers=workers)

    with pytest.raises(Killed):
        fit(*begin(12), tmp_path, saves)  # after an epoch's last batch
    assert fit(*begin(), tmp_path, saves, resumes=tmp_path / "last.ckpt") == whole


def test_loader_is_created_with_world_size_set_but_rank_unset(url, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")  # and no RANK, until there is a group
    _map(url)


def _merged(*ledgers):
    """Return the ledger that one rank with the whole global batch would have kept."""
    return [[*rows[0][:2], sorted(key for row in rows for key in row[2])] for rows in zip(*ledgers, strict=True)]


def test_run_of_two_killed_ranks_resumes_on_a_single_rank(url, tmp_path):
    one = ps.MapDataset.from_prefix(url, transform=keys)
    whole = fit(Keeper(), ps.DataLoader(one, 2 * BATCH, shuffle=True), tmp_path / "whole", EVERY_STEP)
    folder = tmp_path / "ranks"
    run = program(Path(__file__).with_name("keeper.py"), url, folder, 4)
    assert run.returncode == 0, run.stdout
    ranks = [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in range(2)]
    assert _merged(*ranks) == _merged(whole[:4])
    model, loader = Keeper(), ps.DataLoader(one, 2 * BATCH, shuffle=True)
    fit(model, loader, folder, EVERY_STEP, resumes=folder / "last.ckpt")
    assert model.ledger == whole[4:]
