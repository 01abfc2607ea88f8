"""What better loading can gain at most: the same loop on kept batches, by a clock that the test moves."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader

import penstock as ps
from penstock.errors import Unusable
from penstock.observe import Scalars, headroom
from tests.data.datasets.transforms import number, numbered

COUNT = 40
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


@pytest.fixture
def clock(monkeypatch):
    """Move the clock by hand: ``clock[0] += seconds``."""
    now = [100.0]
    monkeypatch.setattr("penstock.observe.loader.monotonic", lambda: now[0])
    return now


@pytest.fixture
def loader(tmp_path):
    dataset = ps.MapDataset.from_prefix(numbered(tmp_path / "data", COUNT), transform=number)
    return ps.DataLoader(dataset, 2, shuffle=True, collate_fn=list)


def slow(clock, count, seconds, first=0.0):
    """Yield ``count`` batches that take ``seconds`` each, and the first one longer."""
    for index in range(count):
        clock[0] += seconds + (first if not index else 0)
        yield index


@pytest.mark.parametrize(
    ("read_s", "step_s", "gain", "waiting"), [(0.9, 0.1, 10.0, 0.9), (0.0, 0.5, 1.0, 0.0), (0.25, 0.25, 2.0, 0.5)]
)
def test_headroom_gain_measures_waiting_after_warm_up(clock, read_s, step_s, gain, waiting):
    measured = headroom(slow(clock, 1000, read_s, first=500.0))
    seen = []
    for batch in measured:
        seen.append(batch)
        clock[0] += step_s
    assert measured.batches == 50
    assert measured.batch_s == pytest.approx(read_s + step_s)
    assert measured.kept_s == pytest.approx(step_s)
    assert measured.gain == pytest.approx(gain)
    assert measured.waiting == pytest.approx(waiting)
    assert seen[:55] == [*range(55)]
    assert seen[55:] == [51 + index % 4 for index in range(55)], "the last four, again and again"
    assert f"gains {measured.gain:.3g} times at most" in str(measured)


def test_a_short_epoch_is_measured_as_far_as_it_goes(clock):
    measured = headroom(slow(clock, 4, 1.0), warm_up=100)
    for _ in measured:
        clock[0] += 1.0
    assert (measured.batches, measured.gain) == (2, pytest.approx(2.0))


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_batches_are_refused(count):
    with pytest.raises(Unusable, match=f"the loader has {count},"):
        list(headroom(range(count)))


def test_a_step_that_takes_no_time_at_all_has_no_bound(clock):
    measured = headroom(slow(clock, 10, 1.0))
    for _ in measured:
        pass
    assert measured.gain == float("inf")
    assert measured.waiting == 1.0
    assert "100% of the time" in str(measured)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_is_where_it_was_and_nothing_runs_on(loader, workers):
    loader = ps.DataLoader(loader.dataset, 2, shuffle=True, collate_fn=list, num_workers=workers)
    undisturbed = [*ps.DataLoader(loader.dataset, 2, shuffle=True, collate_fn=list)]
    measured = headroom(loader, batches=6, warm_up=1)
    batches = []
    for batch in measured:
        batches.append(batch)
        if len(batches) > 7:
            assert not [each.name for each in threading.enumerate() if each.name.startswith("penstock-decode")]
    assert batches[:7] == undisturbed[:7]
    assert all(batch in undisturbed[3:7] for batch in batches[7:])
    assert len(batches) == 14
    assert [*loader] == undisturbed, "the epoch begins where it would have begun"


def test_a_loop_that_is_left_early_measures_nothing_and_returns_the_loader(loader):
    undisturbed = [*ps.DataLoader(loader.dataset, 2, shuffle=True, collate_fn=list)]
    measured = headroom(loader, batches=6)
    iterator = iter(measured)
    next(iterator)
    iterator.close()
    assert measured.batches == 0
    with pytest.raises(Unusable, match="nothing has been measured yet"):
        measured.gain  # noqa: B018  asking is the test
    assert "nothing was measured" in str(measured)
    with pytest.raises(ZeroDivisionError):
        for _ in measured:
            raise ZeroDivisionError
    assert [*loader] == undisturbed


def test_torchs_own_loader_is_measured_too(clock):
    measured = headroom(DataLoader([*range(20)], batch_size=2), batches=5)
    for _ in measured:
        clock[0] += 1.0
    assert (measured.batches, measured.gain) == (5, 1.0)


@pytest.mark.parametrize("arguments", [{"batches": 1}, {"batches": 2.5}, {"warm_up": -1}])
def test_numbers_that_cannot_be_meant_are_refused(arguments):
    with pytest.raises(Unusable):
        headroom([1, 2, 3], **arguments)


@dataclass
class Loader:
    batches: int = 0
    samples: int = 0
    waiting_s: float = 0.0
    computing_s: float = 0.0
    total: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(requests=0, retries=0, errors=0, skipped=0, cached=0, size_bytes=0)
    )

    def stats(self):
        return self


RATES = ["batches_per_s", "samples_per_s", "bytes_per_s"]
NAMES = ["utilisation", "waiting_s", *RATES, "requests", "retries", "errors", "skipped", "cached"]


def test_scalars_are_differences_since_the_previous_take(clock):
    loader = Loader(batches=5, waiting_s=9)
    scalars = Scalars(loader, "")
    loader.batches, loader.samples, loader.waiting_s, loader.computing_s = 7, 64, 10, 3
    loader.total = SimpleNamespace(requests=70, retries=3, errors=2, skipped=1, cached=4, size_bytes=1000)
    clock[0] += 4
    assert scalars.take() == {
        "utilisation": 0.75,
        "waiting_s": 1,
        "batches_per_s": 0.5,
        "samples_per_s": 16,
        "bytes_per_s": 250,
        "requests": 70,
        "retries": 3,
        "errors": 2,
        "skipped": 1,
        "cached": 4,
    }
    assert scalars.take() == dict.fromkeys(NAMES, 0.0)


def test_a_loader_that_counts_anew_in_a_forked_rank_gives_no_negative_number(clock):
    loader = Loader(batches=5, waiting_s=9)
    scalars = Scalars(loader, "")
    loader.batches, loader.waiting_s = 1, 0.5
    clock[0] += 1
    assert set(scalars.take().values()) == {0.0}


def test_tensorboard_and_wandb_take_them():
    scalars = Scalars(Loader())
    added, logged = {}, []
    writer = SimpleNamespace(add_scalar=lambda name, value, step: added.update({name: (value, step)}))
    scalars.to_tensorboard(writer, 7)
    scalars.to_wandb(SimpleNamespace(log=logged.append), loss=0.5)
    assert added == {f"penstock/{name}": (0.0, 7) for name in NAMES}
    assert logged == [{f"penstock/{name}": 0.0 for name in NAMES} | {"loss": 0.5}]


def test_scalar_writer_errors_are_logged_at_most_every_30_seconds(clock, caplog):
    def broken(*_):
        raise OSError("the server is away")

    scalars = Scalars(Loader())
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(3):
            scalars.to_tensorboard(SimpleNamespace(add_scalar=broken), 1)
            scalars.to_wandb(SimpleNamespace(log=broken))
        clock[0] += 31
        scalars.to_wandb(None)
    assert len(caplog.messages) == 2
    assert "OSError: the server is away" in caplog.messages[0]


def test_a_loader_that_does_not_count_is_refused():
    with pytest.raises(Unusable, match=r"penstock\.DataLoader"):
        Scalars([1, 2, 3])
