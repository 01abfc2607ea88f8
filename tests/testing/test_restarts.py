"""Everything of ours that resumes passes the check that third parties get; and the check finds what it looks for."""

from __future__ import annotations

import warnings
from itertools import islice

import pytest
from torch.utils.data import DataLoader as TorchDataLoader

import penstock as ps
from penstock.errors import StateMismatch
from penstock.testing.restarts import Counted, check_restarts
from tests.data.datasets.transforms import number, numbered

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchdata.stateful_dataloader import StatefulDataLoader

COUNT, BATCH = 23, 4
SECOND = ps.Place(rank=1, world=2)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    folder = numbered(tmp_path_factory.mktemp("restarts") / "data", COUNT)
    return ps.MapDataset.from_prefix(folder).catalog


def mapped(catalog) -> ps.MapDataset:
    return ps.MapDataset.from_catalog(catalog, transform=number)


def streamed(catalog, **options) -> ps.IterableDataset:
    return ps.IterableDataset.from_catalog(catalog, transform=number, **{"shuffle": True, "seed": 3, **options})


def test_a_block_shuffle_restarts_under_each_loader_and_no_other_order_takes_its_state(catalog):
    def make(shuffle=ps.order.BlockShuffle(5, 2), **options):  # noqa: B008  frozen
        return lambda: ps.DataLoader(mapped(catalog), BATCH, shuffle=shuffle, **{"seed": 3, **options})

    def streaming():
        return ps.DataLoader(streamed(catalog, shuffle=ps.order.BlockShuffle(5, 2)), BATCH)

    others = [True, False, ps.order.BlockShuffle(6, 2), ps.order.BlockShuffle(5, 3)]
    check_restarts(
        make(),
        epochs=1,
        alike=[make(decode_threads=3), streaming],
        foreign=[*(make(shuffle=each) for each in others), make(seed=4)],
    )


def test_the_loader_over_a_map_dataset_with_threads_and_workers(catalog):
    def make(of=catalog, batch=BATCH, **options):
        options = {"shuffle": True, "seed": 3, **options}
        return lambda: ps.DataLoader(mapped(of), batch, **options)

    check_restarts(
        make(),
        alike=[
            make(decode_threads=3, prefetch=1),
            make(decode_threads=1, prefetch=50),
            make(place=ps.Place(), prefetch=3),
        ],
        foreign=[
            make(seed=4),
            make(shuffle=False),
            make(batch=BATCH + 1),
            make(batch=BATCH // 2),
            make(place=SECOND),
            make(of=catalog[1:]),
            make(of=catalog[::-1]),
        ],
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_the_loader_with_worker_processes(catalog, workers):
    few = catalog[:7]
    check_restarts(
        lambda: ps.DataLoader(streamed(few), 3, prefetch=1),
        epochs=1,
        alike=[
            lambda: ps.DataLoader(streamed(few), 3, num_workers=workers, timeout=60),
            lambda: ps.DataLoader(streamed(few), 3, num_workers=workers, persistent_workers=True, timeout=60),
        ],
    )


@pytest.mark.parametrize("tail", ["short", "pad", "drop"])
@pytest.mark.parametrize("place", [ps.Place(), SECOND])
def test_the_loader_with_every_tail_on_every_rank(catalog, tail, place):
    check_restarts(
        lambda: ps.DataLoader(streamed(catalog, place=place), BATCH, tail=tail),
        alike=[lambda: ps.DataLoader(streamed(catalog, place=place), BATCH, tail=tail, decode_threads=2)],
        foreign=[lambda: ps.DataLoader(streamed(catalog[:-1], place=place), BATCH, tail=tail)],
    )


def test_raw_samples_and_repeats_come_again_as_they_were(catalog):
    check_restarts(
        lambda: ps.DataLoader(ps.MapDataset.from_catalog(catalog), BATCH, place=SECOND, tail="pad"), epochs=1
    )


@pytest.mark.parametrize("opened", [mapped, streamed])
def test_batches_under_torchs_loader(catalog, opened):
    def make(workers=0, batch=BATCH, of=catalog):
        def made():
            batches = opened(of).batched(batch)
            return Counted(TorchDataLoader(batches, batch_size=None, num_workers=workers), batches)

        return made

    few = catalog[:7]
    check_restarts(make(), foreign=[make(batch=2), make(of=catalog[1:])])
    check_restarts(make(of=few), epochs=1, alike=[make(2, of=few)])


def test_the_batch_sampler_under_torchs_loader(catalog):
    few = catalog[:10]

    def make(workers=0, of=catalog, **options):
        def made():
            dataset = mapped(of)
            sampler = ps.BatchSampler(dataset, BATCH, **{"shuffle": True, "seed": 3, **options})
            return Counted(TorchDataLoader(dataset, batch_sampler=sampler, num_workers=workers), sampler)

        return made

    check_restarts(make(), foreign=[make(seed=4), make(place=SECOND)])
    check_restarts(make(of=few, tail="pad"), epochs=1, alike=[make(1, of=few, tail="pad")])


@pytest.mark.parametrize("opened", [mapped, streamed])
def test_batches_without_a_loader(catalog, opened):
    def make(batch=BATCH, of=catalog):
        return lambda: opened(of).batched(batch)

    check_restarts(make(), foreign=[make(batch=2), make(of=catalog[1:])])


class Elastic:
    """A StatefulDataLoader whose state goes through ``elastic_state``, and comes back by way of the batches."""

    def __init__(self, made) -> None:
        self.forming, self.loader = made

    def __iter__(self):
        return iter(self.loader)

    def state_dict(self):
        return ps.elastic_state(self.loader.state_dict())

    def load_state_dict(self, state):
        self.forming.load_state_dict(state)


def sampled(catalog, workers: int, every: int = 1):
    dataset = mapped(catalog)
    sampler = ps.BatchSampler(dataset, BATCH, shuffle=True, seed=3)
    return sampler, StatefulDataLoader(
        dataset, batch_sampler=sampler, num_workers=workers, snapshot_every_n_steps=every
    )


def formed(catalog, workers: int, every: int = 1):
    batches = streamed(catalog).batched(BATCH)
    return batches, StatefulDataLoader(batches, batch_size=None, num_workers=workers, snapshot_every_n_steps=every)


def by_torch(catalog, workers: int, every: int = 1):
    dataset = streamed(catalog)
    return dataset, StatefulDataLoader(dataset, batch_size=BATCH, num_workers=workers, snapshot_every_n_steps=every)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize(
    ("made", "workers", "every"),
    [(sampled, 0, 1), (sampled, 1, 1), (sampled, 2, 3), (formed, 0, 1), (formed, 1, 1), (by_torch, 0, 1)],
)
def test_torchdata_loader_resumes_from_its_own_state(catalog, made, workers, every):
    few = catalog[: COUNT if not workers else 10]
    check_restarts(lambda: made(few, workers, every)[1], epochs=1 if workers else 2, limit_bytes=None)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_elastic_states_of_different_torchdata_loaders_are_interchangeable(catalog):
    few = catalog[:10]
    check_restarts(lambda: Elastic(sampled(few, 0)), epochs=1, alike=[lambda: Elastic(formed(few, 2))])


class Countdown:
    """What a third party may write: an epoch is a list of batches, and the state says how far it came."""

    def __init__(self, **faults) -> None:
        self.epoch, self.at, self.faults, self.resumed = 0, 0, faults, 0

    def batches(self) -> list[list[int]]:
        return [[self.epoch * 100 + at, at] for at in range(4)]

    def __iter__(self):
        if "twice" in self.faults:
            self.at = max(0, self.at - 1)
        while self.at < 4:
            batch = self.batches()[self.at]
            self.at += 1
            yield batch
        self.epoch, self.at, self.resumed = self.epoch + 1, 0, 0

    def state_dict(self):
        state = {"epoch": self.epoch, "at": self.at, "catalog": self.faults.get("catalog", "abc")}
        if "large" in self.faults:
            state["padding"] = "x" * 1000
        if "tuple" in self.faults:
            state["at"] = (self.at,)
        if "adrift" in self.faults:
            state["at"] = max(0, self.at - self.resumed)
        return state

    def load_state_dict(self, state):
        if state.get("catalog") != self.faults.get("catalog", "abc") and "gullible" not in self.faults:
            raise StateMismatch("another catalog")
        if not {"epoch", "at"} <= set(state):
            if "rash" in self.faults:
                self.epoch = 7
            raise StateMismatch("not all of it")
        at = state["at"][0] if isinstance(state["at"], list | tuple) else state["at"]
        self.at = self.resumed = at if "behind" not in self.faults else self.at + at
        self.epoch = state["epoch"] if "amnesia" not in self.faults else self.epoch


def test_a_third_partys_loader_passes():
    check_restarts(Countdown, alike=[Countdown], foreign=[lambda: Countdown(catalog="xyz")])


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("twice", "what was left of the epoch came differently"),
        ("behind", "what was left of the epoch came differently"),
        ("amnesia", "came differently"),
        ("adrift", "what was left of the epoch has other states"),
        ("large", "a state of 1"),
        ("tuple", "JSON makes another state of it"),
        ("rash", "a refused state changed something"),
    ],
)
def test_the_check_finds(fault, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_restarts(lambda: Countdown(**{fault: True}), foreign=[lambda: Countdown(catalog="xyz")])


def test_the_check_finds_a_loader_that_takes_any_state():
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check_restarts(Countdown, foreign=[lambda: Countdown(catalog="xyz", gullible=True)])


class ReadsAhead(Countdown):
    """The state says what was prefetched, not what was received: the classic."""

    def __iter__(self):
        whole = list(super().__iter__())
        yield from islice(whole, len(whole))


def test_restart_check_detects_state_that_counts_prefetched_items():
    with pytest.raises(AssertionError, match="another layout has other batches or states"):
        check_restarts(Countdown, alike=[ReadsAhead])
    with pytest.raises(AssertionError, match="came differently"):
        check_restarts(ReadsAhead)
